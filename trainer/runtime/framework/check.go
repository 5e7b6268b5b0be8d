package framework

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
)

// maxErrorsShown bounds a refusal's text: no reader needs every error of a list.
const maxErrorsShown = 8

// maxErrorBytes bounds the text of one of them, and so keeps the whole below what a condition takes.
const maxErrorBytes = 1000

// runtimePrefix begins the paths of a runtime's fields where a TrainJob's are meant too.
const runtimePrefix = "runtime."

// Refusal says why a TrainJob cannot be carried out. It holds until the TrainJob or its runtime is another.
// Webhooks answer with it, and the controller makes a Failed condition of it, in the same words.
type Refusal struct {
	// Reason is the reason of the Failed condition.
	Reason string

	// Errors name the fields, those of the runtime with the prefix "runtime.".
	Errors field.ErrorList

	// RuntimeRef is the runtime that is meant.
	RuntimeRef v1alpha1.RuntimeRef
}

// Refuse makes the Refusal of a TrainJob, nil if there are no errors.
func Refuse(trainJob *v1alpha1.TrainJob, reason string, errs ...*field.Error) *Refusal {
	if len(errs) == 0 {
		return nil
	}
	return &Refusal{Reason: reason, Errors: errs, RuntimeRef: trainJob.Spec.RuntimeRef}
}

// Message returns the errors in one line, and names the runtime where one of its fields is meant.
func (r *Refusal) Message() string {
	errs := make(field.ErrorList, len(r.Errors))
	for i, err := range r.Errors {
		named := *err
		if path, ok := strings.CutPrefix(err.Field, runtimePrefix); ok {
			named.Field = fmt.Sprintf("%s %s: %s", r.RuntimeRef.RuntimeKind(), r.RuntimeRef.Name, path)
		}
		errs[i] = &named
	}
	return Summary(errs)
}

// Summary returns errors in one line, and only counts them where there are many.
func Summary(errs field.ErrorList) string {
	// Each of them quotes its value, which may be a megabyte long.
	lines := make([]string, 0, maxErrorsShown+1)
	for i, err := range errs {
		if i == maxErrorsShown {
			lines = append(lines, fmt.Sprintf("and %d more", len(errs)-i))
			break
		}
		lines = append(lines, Cut(err.Error(), maxErrorBytes))
	}
	return strings.Join(lines, "; ")
}

// Cut shortens a text that has more than a number of bytes, and ends it with dots then.
func Cut(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes], "") + "..."
}

// CheckRuntimeRef tells whether a TrainJob names a kind of runtime that is known.
func CheckRuntimeRef(trainJob *v1alpha1.TrainJob) *Refusal {
	ref := trainJob.Spec.RuntimeRef
	if ref.Supported() {
		return nil
	}
	kind := schema.GroupKind{Group: ref.RuntimeGroup(), Kind: ref.RuntimeKind()}.String()
	return Refuse(trainJob, v1alpha1.ReasonRuntimeNotSupported,
		field.Invalid(field.NewPath("spec", "runtimeRef"), kind, "unsupported runtime: "+kind))
}

// Check tells whether a TrainJob can be carried out with a runtime, and returns the Info to build it from if
// so.
func (f *Framework) Check(trainJob *v1alpha1.TrainJob, spec *v1alpha1.TrainingRuntimeSpec) (*runtime.Info, *Refusal) {
	info, err := runtime.New(trainJob, spec)
	if err != nil {
		return nil, Refuse(trainJob, v1alpha1.ReasonInvalid, asFieldError(err))
	}
	if errs := f.Validate(info, trainJob); len(errs) > 0 {
		return nil, Refuse(trainJob, v1alpha1.ReasonInvalid, errs...)
	}
	return info, nil
}

// CheckRuntime returns what is wrong with a runtime whichever TrainJob uses it. Paths begin with spec.
func (f *Framework) CheckRuntime(spec *v1alpha1.TrainingRuntimeSpec) field.ErrorList {
	anyJob := &v1alpha1.TrainJob{}
	info, err := runtime.New(anyJob, spec)
	if err != nil {
		return field.ErrorList{asFieldError(err)}
	}
	var errs field.ErrorList
	for _, err := range f.Validate(info, anyJob) {
		if path, ok := strings.CutPrefix(err.Field, runtimePrefix); ok {
			err.Field = path
			errs = append(errs, err)
		}
	}
	return errs
}

func asFieldError(err error) *field.Error {
	var fieldErr *field.Error
	if errors.As(err, &fieldErr) {
		return fieldErr
	}
	return field.InternalError(nil, err)
}

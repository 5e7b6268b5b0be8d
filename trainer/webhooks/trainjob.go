package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/snapshot"
)

// trainJobDefaulter notes when patches were written.
type trainJobDefaulter struct {
	clock clock.PassiveClock
}

var _ admission.Defaulter[*v1alpha1.TrainJob] = (*trainJobDefaulter)(nil)

// Default implements admission.Defaulter.
func (d *trainJobDefaulter) Default(ctx context.Context, trainJob *v1alpha1.TrainJob) error {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return err
	}
	before := &v1alpha1.TrainJob{}
	if request.Operation == admissionv1.Update {
		if err := json.Unmarshal(request.OldObject.Raw, before); err != nil {
			return fmt.Errorf("decoding the TrainJob as it was: %w", err)
		}
	}
	patches := lastByManager(trainJob.Spec.RuntimePatches)
	stamp(patches, before.Spec.RuntimePatches, metav1.NewTime(d.clock.Now()))
	trainJob.Spec.RuntimePatches = patches
	return nil
}

// trainJobValidator refuses TrainJobs that could not be carried out.
type trainJobValidator struct {
	framework *framework.Framework
	runtimes  *snapshot.Store
	jobSets   client.Reader
}

var _ admission.Validator[*v1alpha1.TrainJob] = (*trainJobValidator)(nil)

// ValidateCreate implements admission.Validator.
func (v *trainJobValidator) ValidateCreate(ctx context.Context, trainJob *v1alpha1.TrainJob) (admission.Warnings, error) {
	return v.check(ctx, trainJob, v.runtimes.Current)
}

// ValidateUpdate implements admission.Validator. What does not change is not checked again, so that every
// TrainJob can be suspended and deleted; what changes is checked against the runtime that the TrainJob uses,
// whatever has become of it since.
func (v *trainJobValidator) ValidateUpdate(ctx context.Context, before, after *v1alpha1.TrainJob) (admission.Warnings, error) {
	if after.DeletionTimestamp != nil || sameButSuspend(before, after) {
		return nil, nil
	}
	if patchesDiffer(before.Spec.RuntimePatches, after.Spec.RuntimePatches) {
		if err := v.mayPatch(ctx, before, after); err != nil {
			return nil, err
		}
	}
	return v.check(ctx, after, func(ctx context.Context, trainJob *v1alpha1.TrainJob) (*snapshot.Runtime, error) {
		runtime, err := v.runtimes.Get(ctx, trainJob)
		if err != nil || runtime != nil {
			return runtime, err
		}
		return v.runtimes.Current(ctx, trainJob)
	})
}

// ValidateDelete implements admission.Validator.
func (*trainJobValidator) ValidateDelete(context.Context, *v1alpha1.TrainJob) (admission.Warnings, error) {
	return nil, nil
}

func (v *trainJobValidator) check(ctx context.Context, trainJob *v1alpha1.TrainJob,
	runtimeOf func(context.Context, *v1alpha1.TrainJob) (*snapshot.Runtime, error)) (admission.Warnings, error) {
	if refusal := framework.CheckRuntimeRef(trainJob); refusal != nil {
		return nil, errors.New(refusal.Message())
	}
	runtime, err := runtimeOf(ctx, trainJob)
	if apierrors.IsNotFound(err) {
		ref := trainJob.Spec.RuntimeRef
		return nil, field.Invalid(field.NewPath("spec", "runtimeRef"), ref.Name,
			fmt.Sprintf("there is no %s of this name; create it before the TrainJob", ref.RuntimeKind()))
	}
	if unusable := (*snapshot.Unusable)(nil); errors.As(err, &unusable) {
		return nil, unusable
	}
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	deprecated := warnings(v1alpha1.DeprecationWarning(runtime.Kind, runtime.Name, runtime.Labels))
	info, refusal := v.framework.Check(trainJob, runtime.Spec)
	if refusal != nil {
		return deprecated, errors.New(refusal.Message())
	}
	told := deprecated
	for _, warning := range info.Warnings(trainJob) {
		told = append(told, warning.Text)
	}
	return told, nil
}

// mayPatch tells whether patches may change now: only if the TrainJob is suspended before or after, and
// if none of its pods is left over from before.
func (v *trainJobValidator) mayPatch(ctx context.Context, before, after *v1alpha1.TrainJob) error {
	path := field.NewPath("spec", "runtimePatches")
	if !suspended(before) && !suspended(after) {
		return field.Forbidden(path, "may change only while the TrainJob is suspended, or together with suspend")
	}
	active, err := activeJob(ctx, v.jobSets, after)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if active != "" {
		return field.Forbidden(path, fmt.Sprintf("cannot change while pods of the replicated job %s are left", active))
	}
	return nil
}

// sameButSuspend tells whether an update leaves alone what is checked.
func sameButSuspend(before, after *v1alpha1.TrainJob) bool {
	old, updated := before.Spec, after.Spec
	old.Suspend, updated.Suspend = nil, nil
	return equality.Semantic.DeepEqual(old, updated)
}

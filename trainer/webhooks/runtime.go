package webhooks

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/framework"
)

// runtimeValidator refuses runtimes that no TrainJob could use.
type runtimeValidator[T client.Object] struct {
	kind      string
	framework *framework.Framework
	spec      func(T) *v1alpha1.TrainingRuntimeSpec
}

var (
	_ admission.Validator[*v1alpha1.TrainingRuntime]        = (*runtimeValidator[*v1alpha1.TrainingRuntime])(nil)
	_ admission.Validator[*v1alpha1.ClusterTrainingRuntime] = (*runtimeValidator[*v1alpha1.ClusterTrainingRuntime])(nil)
)

// ValidateCreate implements admission.Validator.
func (v *runtimeValidator[T]) ValidateCreate(_ context.Context, runtime T) (admission.Warnings, error) {
	return warnings(v1alpha1.DeprecationWarning(v.kind, runtime.GetName(), runtime.GetLabels())), v.check(runtime)
}

// ValidateUpdate implements admission.Validator. A runtime that was stored before these checks may be used
// and deleted as it is.
func (v *runtimeValidator[T]) ValidateUpdate(_ context.Context, before, after T) (admission.Warnings, error) {
	if after.GetDeletionTimestamp() != nil || equality.Semantic.DeepEqual(v.spec(before), v.spec(after)) {
		return nil, nil
	}
	return nil, v.check(after)
}

// ValidateDelete implements admission.Validator.
func (*runtimeValidator[T]) ValidateDelete(context.Context, T) (admission.Warnings, error) {
	return nil, nil
}

func (v *runtimeValidator[T]) check(runtime T) error {
	errs := v.framework.CheckRuntime(v.spec(runtime))
	if len(errs) == 0 {
		return nil
	}
	return errors.New(framework.Summary(errs))
}

// warnings makes a response's warnings of those texts that are not empty.
func warnings(texts ...string) admission.Warnings {
	var list admission.Warnings
	for _, text := range texts {
		if text != "" {
			list = append(list, text)
		}
	}
	return list
}

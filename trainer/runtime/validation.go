package runtime

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// UnsupportedPolicies returns one error for each policy of a runtime that no plugin carries out. To ignore
// such a policy would start a training that cannot work, or that is not gathered as the runtime asks.
func UnsupportedPolicies(spec *v1alpha1.TrainingRuntimeSpec) field.ErrorList {
	var errs field.ErrorList
	refuse := func(path *field.Path, set bool) {
		if set {
			errs = append(errs, field.Forbidden(path, "this policy is not supported"))
		}
	}
	path := field.NewPath("runtime", "spec")
	if policy := spec.PodGroupPolicy; policy != nil {
		refuse(path.Child("podGroupPolicy", "volcano"), policy.Volcano != nil)
	}
	return errs
}

package podgroup

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// Validate returns what is wrong with the group's spec, by field. The CRD's schema stops some of it, but not
// a missing minMember, and a cluster may run with a laxer schema.
func Validate(group *v1alpha1.PodGroup) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if group.Spec.MinMember < 1 {
		errs = append(errs, field.Invalid(spec.Child("minMember"), group.Spec.MinMember, "must be 1 or more"))
	}
	minResources := spec.Child("minResources")
	for _, name := range slices.Sorted(maps.Keys(group.Spec.MinResources)) {
		if quantity := group.Spec.MinResources[name]; quantity.Sign() < 0 {
			errs = append(errs, field.Invalid(minResources.Key(string(name)), quantity.String(), "must not be negative"))
		}
	}
	if timeout := group.Spec.ScheduleTimeoutSeconds; timeout != nil && *timeout < 0 {
		errs = append(errs, field.Invalid(spec.Child("scheduleTimeoutSeconds"), *timeout, "must not be negative"))
	}
	return errs
}

// Problem says what is wrong with the group, by field or by annotation; it returns "" if nothing is. Annotations that
// ask for a topology are the planner's to judge.
func Problem(group *v1alpha1.PodGroup) string {
	if errs := Validate(group); len(errs) > 0 {
		return errs.ToAggregate().Error()
	}
	if _, err := ParseSettings(group.Annotations); err != nil {
		return err.Error()
	}
	return ""
}

package podgroup

import (
	"slices"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

func TestValidate(t *testing.T) {
	negative := newGroup(1)
	negative.Spec.MinResources = resources("cpu", "-1", "memory", "0", "nvidia.com/gpu", "-8")
	negative.Spec.ScheduleTimeoutSeconds = ptr.To[int32](-1)
	zero := newGroup(1)
	zero.Spec.ScheduleTimeoutSeconds = ptr.To[int32](0)
	for _, test := range []struct {
		name  string
		group *v1alpha1.PodGroup
		want  []string
	}{
		{"good", newGroup(1), nil},
		{"no timeout", zero, nil},
		{"no minMember", newGroup(0), []string{"spec.minMember"}},
		{"negative minMember", newGroup(-1), []string{"spec.minMember"}},
		{"negative amounts", negative, []string{
			"spec.minResources[cpu]", "spec.minResources[nvidia.com/gpu]", "spec.scheduleTimeoutSeconds"}},
	} {
		var got []string
		for _, err := range Validate(test.group) {
			got = append(got, err.Field)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: errors for fields %v, want %v", test.name, got, test.want)
		}
	}
}

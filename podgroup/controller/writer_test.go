package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

func TestStatusFieldsAreTheControllersOwn(t *testing.T) {
	condition := func(conditionType string) metav1.Condition {
		return metav1.Condition{Type: conditionType, Status: "True", Reason: "Because", LastTransitionTime: metav1.NewTime(noon)}
	}
	full := v1alpha1.PodGroupStatus{
		PodGroupStatus: upstream.PodGroupStatus{
			Phase: upstream.PodGroupRunning, OccupiedBy: "ns/job", Running: 3, Succeeded: 2, Failed: 1, ScheduleStartTime: metav1.NewTime(noon),
		},
		Conditions: []metav1.Condition{
			condition(v1alpha1.ConditionUnschedulable), condition(v1alpha1.ConditionFinished), condition("Other"), condition(v1alpha1.ConditionScheduled),
		},
	}
	content := func(conditionType string) map[string]any {
		return map[string]any{"type": conditionType, "status": "True", "reason": "Because", "message": "", "lastTransitionTime": "2026-03-01T12:00:00Z"}
	}
	for _, test := range []struct {
		name           string
		status         v1alpha1.PodGroupStatus
		withConditions bool
		want           map[string]any
	}{
		{"full", full, true, map[string]any{
			"phase": "Running", "occupiedBy": "ns/job", "running": int64(3), "succeeded": int64(2), "failed": int64(1),
			"scheduleStartTime": "2026-03-01T12:00:00Z",
			"conditions":        []any{content(v1alpha1.ConditionScheduled), content(v1alpha1.ConditionFinished)},
		}},
		{"without conditions", full, false, map[string]any{
			"phase": "Running", "occupiedBy": "ns/job", "running": int64(3), "succeeded": int64(2), "failed": int64(1),
			"scheduleStartTime": "2026-03-01T12:00:00Z",
		}},
		{"what is not known is not claimed", v1alpha1.PodGroupStatus{
			PodGroupStatus: upstream.PodGroupStatus{Phase: upstream.PodGroupPending},
			Conditions:     []metav1.Condition{condition(v1alpha1.ConditionScheduled)},
		}, true, map[string]any{
			"phase": "Pending", "running": int64(0), "succeeded": int64(0), "failed": int64(0),
			"conditions": []any{content(v1alpha1.ConditionScheduled)},
		}},
	} {
		got, err := statusFields(test.status, test.withConditions)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

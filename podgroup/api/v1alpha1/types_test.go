package v1alpha1

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	upstream "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// A group written by a program that links scheduler-plugins' types reads the same here, and back.
func TestPodGroupHasUpstreamsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		timeout := rapid.Int32().Draw(t, "timeout")
		theirs := upstream.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Name: "gang", Namespace: "ns"},
			Spec: upstream.PodGroupSpec{
				MinMember:              rapid.Int32().Draw(t, "minMember"),
				ScheduleTimeoutSeconds: &timeout,
			},
			Status: upstream.PodGroupStatus{
				Phase:      upstream.PodGroupRunning,
				OccupiedBy: rapid.StringMatching("[a-z/]*").Draw(t, "occupiedBy"),
				Running:    rapid.Int32().Draw(t, "running"),
				Succeeded:  rapid.Int32().Draw(t, "succeeded"),
				Failed:     rapid.Int32().Draw(t, "failed"),
			},
		}
		written, err := json.Marshal(theirs)
		if err != nil {
			t.Fatal(err)
		}
		var ours PodGroup
		if err := json.Unmarshal(written, &ours); err != nil {
			t.Fatal(err)
		}
		rewritten, err := json.Marshal(ours)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(written), string(rewritten)); diff != "" {
			t.Fatalf("the JSON changed (-theirs +ours):\n%s", diff)
		}
	})
}

func TestAddToScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"PodGroup", "PodGroupList"} {
		if !scheme.Recognizes(GroupVersion.WithKind(kind)) {
			t.Errorf("%s is not registered", kind)
		}
	}
}

func TestDeepCopySharesNoConditions(t *testing.T) {
	group := &PodGroup{Status: PodGroupStatus{Conditions: []metav1.Condition{{Type: ConditionScheduled}}}}
	group.DeepCopy().Status.Conditions[0].Type = "changed"
	if group.Status.Conditions[0].Type != ConditionScheduled {
		t.Error("changing the copy changed the original")
	}
}

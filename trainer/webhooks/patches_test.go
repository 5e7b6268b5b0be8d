package webhooks

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

func TestDefault(t *testing.T) {
	stamped := func(manager, value string, time *metav1.Time) v1alpha1.RuntimePatch {
		job := trainJob(patched(manager, "node", v1alpha1.PodSpecPatch{NodeSelector: map[string]string{"pool": value}}))
		job.Spec.RuntimePatches[0].Time = time
		return job.Spec.RuntimePatches[0]
	}
	for name, tc := range map[string]struct {
		create           bool
		old, given, want []v1alpha1.RuntimePatch
	}{
		"no patches": {create: true},
		"new": {
			create: true,
			given:  []v1alpha1.RuntimePatch{stamped("a", "1", nil), stamped("b", "1", &before)},
			want:   []v1alpha1.RuntimePatch{stamped("a", "1", &now), stamped("b", "1", &before)},
		},
		"unchanged": {
			old:   []v1alpha1.RuntimePatch{stamped("a", "1", &before)},
			given: []v1alpha1.RuntimePatch{stamped("a", "1", nil)},
			want:  []v1alpha1.RuntimePatch{stamped("a", "1", &before)},
		},
		"unchanged, with a time made up": {
			old:   []v1alpha1.RuntimePatch{stamped("a", "1", &before)},
			given: []v1alpha1.RuntimePatch{stamped("a", "1", &now)},
			want:  []v1alpha1.RuntimePatch{stamped("a", "1", &before)},
		},
		"changed": {
			old:   []v1alpha1.RuntimePatch{stamped("a", "1", &before)},
			given: []v1alpha1.RuntimePatch{stamped("a", "2", &before)},
			want:  []v1alpha1.RuntimePatch{stamped("a", "2", &now)},
		},
		"added": {
			old:   []v1alpha1.RuntimePatch{stamped("a", "1", &before)},
			given: []v1alpha1.RuntimePatch{stamped("b", "1", nil), stamped("a", "1", &before)},
			want:  []v1alpha1.RuntimePatch{stamped("b", "1", &now), stamped("a", "1", &before)},
		},
		"appended anew by its manager": {
			old:   []v1alpha1.RuntimePatch{stamped("a", "1", &before), stamped("b", "1", &before)},
			given: []v1alpha1.RuntimePatch{stamped("a", "1", &before), stamped("b", "1", &before), stamped("a", "2", nil), stamped("b", "1", nil)},
			want:  []v1alpha1.RuntimePatch{stamped("a", "2", &now), stamped("b", "1", &before)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create}}
			if !tc.create {
				old := trainJob()
				old.Spec.RuntimePatches = tc.old
				content, err := json.Marshal(old)
				if err != nil {
					t.Fatal(err)
				}
				request.Operation, request.OldObject.Raw = admissionv1.Update, content
			}
			job := trainJob()
			job.Spec.RuntimePatches = tc.given
			d := &trainJobDefaulter{clock: clocktesting.NewFakePassiveClock(now.Time)}
			if err := d.Default(admission.NewContextWithRequest(context.Background(), request), job); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, job.Spec.RuntimePatches); diff != "" {
				t.Errorf("patches (-want +got)\n%s", diff)
			}
		})
	}
}

// However often managers append their patches, each has one: its last, and the order is that of the first.
func TestLastByManager(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		managers := rapid.SliceOf(rapid.SampledFrom([]string{"a", "b", "c"})).Draw(t, "managers")
		var patches []v1alpha1.RuntimePatch
		last, order := map[string]int64{}, []string{}
		for i, manager := range managers {
			if _, seen := last[manager]; !seen {
				order = append(order, manager)
			}
			last[manager] = int64(i)
			patches = append(patches, v1alpha1.RuntimePatch{Manager: manager, Time: &metav1.Time{Time: time.Unix(int64(i), 0)}})
		}
		got := lastByManager(patches)
		if len(got) != len(order) {
			t.Fatalf("%d patches of %d managers", len(got), len(order))
		}
		for i, patch := range got {
			if patch.Manager != order[i] || patch.Time.Unix() != last[patch.Manager] {
				t.Fatalf("patch %d is %d of %s, want %d of %s", i, patch.Time.Unix(), patch.Manager, last[order[i]], order[i])
			}
		}
	})
}

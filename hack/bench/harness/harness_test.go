package harness

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-sched/muster/hack/bench/workload"
)

// Every case's nodes come out of its template, and what fills them fits.
func TestNodesHoldWhatFillsThem(t *testing.T) {
	for _, c := range workload.Cases() {
		nodes := c.Nodes
		c.Nodes = min(c.Nodes, 2*workload.VictimNodes)
		run, err := workload.WriteFiles(c, workload.Schedulers()[0], t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		node, err := nodeTemplate(run)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{c.Empty, workload.VictimNodes - 1, workload.VictimNodes, nodes - 1} {
			n, err := node(i)
			if err != nil {
				t.Fatal(err)
			}
			if n.Labels[workload.RackLabel] == "" {
				t.Errorf("%s: node %d is in no rack", c.Name, i)
			}
			used := corev1.ResourceList{}
			for _, pod := range fill(c.Filling, i) {
				if pod.Spec.NodeName != n.Name {
					t.Errorf("%s: the pods of %s run on %q", c.Name, n.Name, pod.Spec.NodeName)
				}
				for name, amount := range pod.Spec.Containers[0].Resources.Requests {
					sum := used[name]
					sum.Add(amount)
					used[name] = sum
				}
			}
			for name, amount := range used {
				if free := n.Status.Allocatable[name]; free.Cmp(amount) < 0 {
					t.Errorf("%s: node %d has %v of %s, its pods %v", c.Name, i, free, name, amount)
				}
			}
		}
	}
}

func TestSettled(t *testing.T) {
	told := func(status corev1.ConditionStatus, reason string) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: status, Reason: reason}}}}
	}
	for _, tc := range []struct {
		name           string
		pod            *corev1.Pod
		bound, refused bool
	}{
		{name: "new", pod: &corev1.Pod{}},
		{name: "gated", pod: told(corev1.ConditionFalse, corev1.PodReasonSchedulingGated)},
		{name: "refused", pod: told(corev1.ConditionFalse, corev1.PodReasonUnschedulable), refused: true},
		{name: "bound", pod: &corev1.Pod{Spec: corev1.PodSpec{NodeName: "a"}}, bound: true},
	} {
		if settled(tc.pod, false) != tc.bound || settled(tc.pod, true) != tc.refused {
			t.Errorf("%s: bound %v, refused %v", tc.name, settled(tc.pod, false), settled(tc.pod, true))
		}
	}
}

func TestSince(t *testing.T) {
	start := map[string]workload.Duration{"a": {Count: 2, Seconds: 1}, "b": {Count: 1, Seconds: 1}}
	end := map[string]workload.Duration{"a": {Count: 5, Seconds: 4}, "b": {Count: 1, Seconds: 1}, "c": {Count: 1, Seconds: 2}}
	got := since(start, end)
	if len(got) != 2 || got["a"] != (workload.Duration{Count: 3, Seconds: 3}) || got["c"] != end["c"] {
		t.Errorf("%+v", got)
	}
}

func TestServed(t *testing.T) {
	crd := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": "example.org", "names": map[string]any{"plural": "gangs"},
		"versions": []any{map[string]any{"name": "v1alpha1", "served": false}, map[string]any{"name": "v1", "served": true}},
	}}}
	if kind, err := served(crd); err != nil || kind.String() != "example.org/v1, Resource=gangs" {
		t.Errorf("%v, %v", kind, err)
	}
	unstructured.RemoveNestedField(crd.Object, "spec", "versions")
	if _, err := served(crd); err == nil {
		t.Error("no version is served, and that is not an error")
	}
}

package gputopology

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/plugins/stage"
)

// divided returns the placements of a composite group with the constraint ("" for none), of which the
// one group "gang" has these members placed.
func divided(t *testing.T, key string, placed []*corev1.Pod, nodes ...*corev1.Node) ([]*fwk.Placement, *fwk.Status) {
	t.Helper()
	wrapper := st.MakeCompositePodGroup().Name("root").Namespace("ns")
	if key != "" {
		wrapper = wrapper.TopologyKey(key)
	}
	root, child := wrapper.Obj(), stage.PodGroup("gang", 1)
	child.Spec.ParentCompositePodGroupName = ptr.To("root")
	fw, infos, _ := stage.NewNativeFramework(t, []*schedulingv1beta1.PodGroup{child}, []*schedulingv1alpha3.CompositePodGroup{root},
		stage.InGroup("gang", placed...), nodes...)
	group := &framework.PodGroupInfo{Name: "root", Namespace: "ns", Type: fwk.CompositePodGroupKeyType, CompositePodGroup: root}
	result, status := newPlugin(t, fw, levelArgs).GeneratePlacements(t.Context(), framework.NewCycleState(), group, &fwk.Placement{Nodes: infos})
	if result == nil {
		return nil, status
	}
	return result.Placements, status
}

// describe lists placements as name=nodes.
func describe(placements []*fwk.Placement) string {
	var out []string
	for _, p := range placements {
		out = append(out, p.Name+"="+strings.Join(names(p), "+"))
	}
	return strings.Join(out, " ")
}

func TestCompositeGroups(t *testing.T) {
	nodes := []*corev1.Node{
		place("b", "r2", "b-r2", 8), place("b", "r10", "b-r10", 8), place("a", "r2", "a-r2-1", 8), place("a", "r2", "a-r2-0", 8),
		place("a", "", "a-no-rack", 8), place("", "", "nowhere", 8),
	}
	for _, test := range []struct {
		name, key string
		placed    []*corev1.Pod
		want      string
	}{
		{"a domain is inside those around it, and they come in topology order", "rack", nil, "a/r2=a-r2-0+a-r2-1 b/r2=b-r2 b/r10=b-r10"},
		{"an outer level", "zone", nil, "a=a-r2-0+a-r2-1+a-no-rack b=b-r2+b-r10"},
		{"the domain that has members", "rack", []*corev1.Pod{stage.Pod(0, 1).Node("b-r10").Obj()}, "b/r10=b-r10"},
	} {
		placements, status := divided(t, test.key, test.placed, nodes...)
		if got := describe(placements); got != test.want || !status.IsSuccess() {
			t.Errorf("%s: got %q, want %q: %v", test.name, got, test.want, status)
		}
	}
	placements, _ := divided(t, "", nil, nodes...)
	if len(placements) != 1 || len(placements[0].Nodes) != len(nodes) {
		t.Errorf("without a constraint: %s", describe(placements))
	}
}

func TestCompositeGroupsThatCannotBeKeptTogether(t *testing.T) {
	nodes := append(racks(2, 2), place("a", "", "nowhere", 8))
	for _, test := range []struct {
		name, key string
		placed    []*corev1.Pod
		want      string
	}{
		{"unknown level", "row", nil, `"row" is not a topology level`},
		{"torn already", "rack", []*corev1.Pod{stage.Pod(0, 1).Node("r0-n0").Obj(), stage.Pod(1, 1).Node("r1-n0").Obj()}, "not in one domain of rack"},
		{"outside the level already", "rack", []*corev1.Pod{stage.Pod(0, 1).Node("nowhere").Obj()}, "not in one domain of rack"},
	} {
		if _, status := divided(t, test.key, test.placed, nodes...); status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), test.want) {
			t.Errorf("%s: %v", test.name, status)
		}
	}
	if _, status := divided(t, "rack", nil, stage.Nodes(2, 8)...); status.Code() != fwk.Unschedulable || !strings.Contains(status.Message(), "no node has the label rack") {
		t.Errorf("no labels: %v", status)
	}
}

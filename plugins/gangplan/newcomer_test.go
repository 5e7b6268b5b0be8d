package gangplan

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
)

// newcomersFor describes pods, all of them needed, beside members in their places, for a gang that asks for this
// topology.
func newcomersFor(t *testing.T, levels []string, arrangement *podgroup.Arrangement, pods []*corev1.Pod, placed []Placed, nodes ...*corev1.Node) (*Newcomers, klog.Logger) {
	t.Helper()
	_, infos := stage.NewFramework(t, nil, nodes...)
	c := NewCluster(levels)
	c.Sync(infos)
	logger, _ := ktesting.NewTestContext(t)
	d, err := c.NewDemand(logger, pods, len(pods), placed)
	if err != nil {
		t.Fatal(err)
	}
	if arrangement != nil {
		if err := c.Constrain(d, arrangement); err != nil {
			t.Fatal(err)
		}
	}
	return c.Newcomers(d), logger
}

func TestNewcomerIsClaimedAsFarAsTheGangCanUseIt(t *testing.T) {
	workers := stage.Pods(3, 4, nil)
	launcher := stage.Pod(9, 0).Req(map[corev1.ResourceName]string{"cpu": "60"}).Obj()
	picky := stage.Pod(8, 4).NodeSelector(map[string]string{"pool": "x"}).Obj()
	port := func(w *st.PodWrapper) *st.PodWrapper { return w.HostPort(80) }
	for name, tc := range map[string]struct {
		pods      []*corev1.Pod
		node      *corev1.Node
		elsewhere []int
		want      []int // by kind
	}{
		"room for some":               {pods: workers, node: stage.Node("a", 8).Obj(), want: []int{2}},
		"room for more than it needs": {pods: workers, node: stage.Node("a", 64).Obj(), want: []int{3}},
		"some are elsewhere":          {pods: workers, node: stage.Node("a", 64).Obj(), elsewhere: []int{2}, want: []int{1}},
		"all are elsewhere":           {pods: workers, node: stage.Node("a", 64).Obj(), elsewhere: []int{3}, want: []int{0}},
		"kinds share a node":          {pods: append(slices.Clone(workers), launcher, with(launcher, "m-10")), node: stage.Node("a", 8).Obj(), want: []int{2, 1}},
		"one kind may not use it":     {pods: append(slices.Clone(workers), picky), node: stage.Node("a", 64).Obj(), want: []int{3, 0}},
		"no room for pods":            {pods: workers, node: stage.Node("a", 8).Capacity(map[corev1.ResourceName]string{"pods": "1", stage.GPU: "8"}).Obj(), want: []int{1}},
		"one host port on a node":     {pods: stage.Pods(2, 1, port), node: stage.Node("a", 8).Obj(), want: []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			n, logger := newcomersFor(t, nil, nil, tc.pods, nil, stage.Node("n0", 2).Obj())
			if n.Needed() != len(tc.pods) {
				t.Errorf("needs %d, want %d", n.Needed(), len(tc.pods))
			}
			claims, taken := n.Claim(logger, tc.node, tc.elsewhere)
			sum := 0
			for _, x := range tc.want {
				sum += x
			}
			if !slices.Equal(taken, tc.want) || len(claims) != sum {
				t.Errorf("takes %v by %d claims, want %v", taken, len(claims), tc.want)
			}
			for _, claim := range claims {
				if claim.Node != "a" || len(claim.Requests) == 0 || claim.of(string(corev1.ResourcePods)) != 1 {
					t.Errorf("claim %+v", claim)
				}
			}
		})
	}
}

func with(pod *corev1.Pod, name string) *corev1.Pod {
	other := pod.DeepCopy()
	other.Name = name
	return other
}

func TestNewcomersMustBeWhereTheGangMustBe(t *testing.T) {
	rack := func(name, rack string) *corev1.Node {
		return stage.Node(name, 8).Label("zone", "z").Label("rack", rack).Obj()
	}
	node := rack("n0", "r0")
	levels := []string{"zone", "rack"}
	for name, tc := range map[string]struct {
		required string
		placed   []Placed
		node     *corev1.Node
		want     []string
		ok       bool
	}{
		"anywhere":                       {node: rack("a", "r1"), want: []string{}, ok: true},
		"any rack":                       {required: "rack", node: rack("a", "r1"), want: []string{"z", "r1"}, ok: true},
		"any zone":                       {required: "zone", node: rack("a", "r1"), want: []string{"z"}, ok: true},
		"no rack":                        {required: "rack", node: stage.Node("a", 8).Label("zone", "z").Obj()},
		"the rack of those in place":     {required: "rack", placed: []Placed{{UID: "p", Node: "n0"}}, node: rack("a", "r0"), want: []string{"z", "r0"}, ok: true},
		"another than of those in place": {required: "rack", placed: []Placed{{UID: "p", Node: "n0"}}, node: rack("a", "r1")},
	} {
		t.Run(name, func(t *testing.T) {
			arrangement := &podgroup.Arrangement{}
			arrangement.Gang.Required.Label = tc.required
			n, _ := newcomersFor(t, levels, arrangement, stage.Pods(2, 8, nil), tc.placed, node)
			got, ok := n.Domain(tc.node)
			if ok != tc.ok || !slices.Equal(got, tc.want) {
				t.Errorf("domain %q, %v; want %q, %v", got, ok, tc.want, tc.ok)
			}
		})
	}
}

func TestNewcomerMustHoldAGangThatWantsOneNode(t *testing.T) {
	arrangement := &podgroup.Arrangement{}
	arrangement.Gang.Required.Label = corev1.LabelHostname
	n, logger := newcomersFor(t, nil, arrangement, stage.Pods(2, 8, nil), nil, stage.Node("n0", 8).Obj())
	if claims, _ := n.Claim(logger, stage.Node("a", 8).Obj(), nil); len(claims) != 0 {
		t.Errorf("%d claims on a node that does not hold the gang", len(claims))
	}
	if claims, _ := n.Claim(logger, stage.Node("b", 16).Obj(), nil); len(claims) != 2 {
		t.Errorf("%d claims on a node that holds the gang, want 2", len(claims))
	}
}

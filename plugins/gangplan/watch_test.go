package gangplan

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup/planner"
)

// A refused gang that fits after some events had been told to try again by one of them, whatever it
// waits for.
func TestWatchMissesNothingThatHelps(t *testing.T) {
	yes, no := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		var nodes []*corev1.Node
		node := func(i int) *corev1.Node {
			n := stage.Node(fmt.Sprintf("n%d", i), rapid.IntRange(0, 4).Draw(r, "gpus"))
			if zone := rapid.IntRange(0, 2).Draw(r, "zone"); zone > 0 {
				n = n.Label("zone", fmt.Sprintf("z%d", zone))
			}
			if rapid.IntRange(0, 3).Draw(r, "tainted") == 0 {
				n = n.Taints([]corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}})
			}
			return n.Obj()
		}
		for i := range rapid.IntRange(1, 4).Draw(r, "nodes") {
			nodes = append(nodes, node(i))
		}
		var running []*corev1.Pod
		for i := range rapid.IntRange(0, 6).Draw(r, "running") {
			p := stage.Pod(100+i, rapid.IntRange(0, 3).Draw(r, "uses")).Node(nodes[rapid.IntRange(0, len(nodes)-1).Draw(r, "on")].Name)
			switch rapid.IntRange(0, 3).Draw(r, "kind") {
			case 0:
				p = p.HostPort(8000)
			case 1:
				p = p.PodAntiAffinityExists("app", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq)
			}
			running = append(running, p.Obj())
		}
		rule := rapid.IntRange(0, 4).Draw(r, "rule")
		members := stage.Pods(rapid.IntRange(1, 4).Draw(r, "members"), rapid.IntRange(0, 3).Draw(r, "request"), func(p *st.PodWrapper) *st.PodWrapper {
			switch rule {
			case 1:
				return p.HostPort(8000)
			case 2:
				return p.PodAntiAffinityExists("app", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq)
			case 3:
				return p.SpreadConstraint(1, "zone", corev1.DoNotSchedule, st.MakeLabelSelector().Label("app", "train").Obj(), nil, nil, nil, nil)
			}
			return p
		})
		required := planner.Level(rapid.IntRange(0, 1).Draw(r, "required"))
		try := func() (*scene, *Demand, *planner.Explanation) {
			s := newScene(t, []string{"zone"}, running, nodes...)
			d, err := s.cluster.NewDemand(klog.Background(), members, len(members), nil)
			if err != nil {
				r.Fatal(err)
			}
			d.Required = required
			_, e, err := Plan(t.Context(), s.fw, s.cluster, d, nil)
			if err != nil {
				r.Fatal(err)
			}
			return s, d, e
		}
		s, d, e := try()
		if e == nil {
			return
		}
		w := s.cluster.Watch(d, e)
		for range rapid.IntRange(1, 5).Draw(r, "events") {
			helps, event := false, ""
			switch kind := rapid.IntRange(0, 3).Draw(r, "event"); {
			case kind <= 1 && len(running) > 0:
				i := rapid.IntRange(0, len(running)-1).Draw(r, "gone")
				freed, err := FreedBy(running[i], nil)
				if err != nil {
					r.Fatal(err)
				}
				helps, event = w.PodHelps(freed), "pod "+running[i].Name+" went from "+running[i].Spec.NodeName
				running = slices.Delete(slices.Clone(running), i, i+1)
			case kind == 2:
				n := node(len(nodes))
				helps, event = w.NodeHelps(nil, n), "a node came"
				nodes = append(slices.Clone(nodes), n)
			default:
				i := rapid.IntRange(0, len(nodes)-1).Draw(r, "changed")
				was, n := nodes[i], node(i)
				n.Status = was.Status
				helps, event = w.NodeHelps(was, n), "node "+n.Name+" changed"
				nodes = slices.Clone(nodes)
				nodes[i] = n
			}
			if helps {
				yes++
				return
			}
			no++
			if _, _, now := try(); now == nil {
				r.Fatalf("%s, and the gang fits now, which was refused: %s", event, e)
			}
		}
	})
	t.Logf("%d events could help, %d could not", yes, no)
	if no < yes/4 {
		t.Errorf("of %d events hardly any (%d) was told to be of no use", yes+no, no)
	}
}

func TestFreedBy(t *testing.T) {
	was := stage.Pod(0, 3).HostPort(8000).Node("n0").Obj()
	now := stage.Pod(0, 1).HostPort(8000).Node("n0").Obj()
	for name, tc := range map[string]struct {
		now  *corev1.Pod
		want []planner.ResourceAmount
	}{
		"gone": {nil, []planner.ResourceAmount{{Name: stage.GPU, Value: 3}, {Name: "pods", Value: 1}, {Name: "host port 8000/TCP", Value: 1}}},
		"less": {now, []planner.ResourceAmount{{Name: stage.GPU, Value: 2}}},
		"same": {was, nil},
	} {
		freed, err := FreedBy(was, tc.now)
		if err != nil || freed.node != "n0" || !slices.Equal(freed.amounts, tc.want) {
			t.Errorf("%s: %+v (%v), want %v", name, freed, err, tc.want)
		}
	}
}

// A pod on one node may be a part of a gang, and of a gang there may be many pods.
func TestWhoUsesTheNodes(t *testing.T) {
	gang := func(i, gpus int, node string) *corev1.Pod {
		return stage.Pod(i, gpus).Label("scheduling.x-k8s.io/pod-group", "llm").Node(node).Obj()
	}
	s := newScene(t, nil, []*corev1.Pod{gang(0, 2, "n0"), gang(1, 3, "n0"), stage.Pod(2, 1).Node("n0").Obj(), gang(3, 1, "n1")}, stage.Nodes(2, 8)...)
	members := stage.Pods(2, 8, nil)
	for range 2 { // also from what is remembered
		_, e := s.plan(2, members...)
		d, err := s.cluster.NewDemand(klog.Background(), members, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.cluster.Advise(&d.Demand, e, s.cluster.Others(types.NamespacedName{Namespace: "ns", Name: "waiting"}))
		var users []string
		for _, u := range e.Short[0].UsedBy {
			users = append(users, fmt.Sprintf("%s %d", u.Tenant, u.Amount))
		}
		if want := []string{"ns/llm 6", "pod ns/m-2 1"}; !slices.Equal(users, want) {
			t.Errorf("%s\nused by %v, want %v", e, users, want)
		}
	}
}

package gangplan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup/planner"
)

// scene is a model of a fixed snapshot, with the in-tree framework to plan with.
type scene struct {
	t       testing.TB
	fw      framework.Framework
	nodes   []fwk.NodeInfo
	cluster *Cluster
}

func newScene(t *testing.T, levels []string, pods []*corev1.Pod, nodes ...*corev1.Node) *scene {
	t.Helper()
	s := &scene{t: t, cluster: NewCluster(levels)}
	s.fw, s.nodes = stage.NewFramework(t, pods, nodes...)
	s.cluster.Use(s.fw)
	s.cluster.Sync(s.nodes)
	return s
}

// plan places the pods, at least min of them, as the scheduling cycle would.
func (s *scene) plan(min int, pods ...*corev1.Pod) ([]string, *planner.Explanation) {
	s.t.Helper()
	logger, ctx := ktesting.NewTestContext(s.t)
	d, err := s.cluster.NewDemand(logger, pods, min, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	plan, explanation, err := Plan(ctx, s.fw, s.cluster, d, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if explanation != nil {
		return nil, explanation
	}
	var nodes []string
	for _, id := range plan.Nodes {
		if id == planner.NoNode {
			nodes = append(nodes, "")
		} else {
			nodes = append(nodes, s.cluster.NodeName(id))
		}
	}
	return nodes, nil
}

func TestPlanOverRealFilters(t *testing.T) {
	hog := st.MakePod().Namespace("ns").Name("hog").UID("hog").Label("app", "hog").Node("n0")
	for name, tc := range map[string]struct {
		pods    []*corev1.Pod // on the nodes already
		nodes   []*corev1.Node
		min     int
		members []*corev1.Pod
		want    []string
		refused string
	}{
		"whole nodes": {
			nodes: stage.Nodes(3, 8), min: 2, members: stage.Pods(2, 8, nil),
			want: []string{"n0", "n1"},
		},
		"what running pods use is not free": {
			pods:  []*corev1.Pod{hog.Req(map[corev1.ResourceName]string{stage.GPU: "1"}).Obj()},
			nodes: stage.Nodes(3, 8), min: 2, members: stage.Pods(2, 8, nil),
			want: []string{"n1", "n2"},
		},
		"cordoned, tainted and unselected nodes are named": {
			nodes: []*corev1.Node{
				stage.Node("n0", 8).Unschedulable(true).Obj(),
				stage.Node("n1", 8).Taints([]corev1.Taint{{Key: "dedicated", Value: "infra", Effect: corev1.TaintEffectNoSchedule}}).Obj(),
				stage.Node("n2", 8).Label("pool", "b").Obj(),
				stage.Node("n3", 8).Label("pool", "a").Obj(),
			},
			min: 2, members: stage.Pods(2, 8, func(p *st.PodWrapper) *st.PodWrapper { return p.NodeSelector(map[string]string{"pool": "a"}) }),
			refused: "room for 1; short of nvidia.com/gpu: needed 16, free 8 of 8; of 4 nodes: 1 cordoned, 1 outside the node selector or affinity, 1 with taint dedicated=infra:NoSchedule",
		},
		"tolerated taints are no obstacle": {
			nodes: []*corev1.Node{stage.Node("n0", 8).Taints([]corev1.Taint{{Key: "stage.GPU", Effect: corev1.TaintEffectNoSchedule}}).Obj()},
			min:   1, members: stage.Pods(1, 8, func(p *st.PodWrapper) *st.PodWrapper { return p.Toleration("stage.GPU") }),
			want: []string{"n0"},
		},
		"a filter that arithmetic does not see is learned from": {
			// The pod on n0 keeps members away from its node, which only InterPodAffinity knows.
			pods:  []*corev1.Pod{st.MakePod().Namespace("ns").Name("hermit").UID("hermit").Node("n0").PodAntiAffinityExists("app", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq).Obj()},
			nodes: stage.Nodes(3, 8), min: 2, members: stage.Pods(2, 8, nil),
			want: []string{"n1", "n2"},
		},
		"and named when it leaves too little": {
			pods:  []*corev1.Pod{st.MakePod().Namespace("ns").Name("hermit").UID("hermit").Node("n0").PodAntiAffinityExists("app", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq).Obj()},
			nodes: stage.Nodes(2, 8), min: 2, members: stage.Pods(2, 8, nil),
			refused: "room for 1; of 2 nodes: 1 refused by InterPodAffinity",
		},
		"members that another pod tells apart by a label": {
			pods: []*corev1.Pod{st.MakePod().Namespace("ns").Name("hermit").UID("hermit").Node("n0").
				PodAntiAffinityExists("worker", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq).Obj()},
			nodes: stage.Nodes(2, 8), min: 2, members: []*corev1.Pod{stage.Pod(0, 1).Obj(), stage.Pod(1, 1).Label("worker", "").Obj()},
			want: []string{"n1", "n1"},
		},
		"members of which only one keeps away from other pods": {
			pods:  []*corev1.Pod{st.MakePod().Namespace("ns").Name("hermit").UID("hermit").Node("n0").Label("noisy", "").Obj()},
			nodes: stage.Nodes(2, 8), min: 2, members: []*corev1.Pod{stage.Pod(0, 1).Obj(),
				stage.Pod(1, 1).PodAntiAffinityExists("noisy", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq).Obj()},
			want: []string{"n1", "n1"},
		},
		"members that keep apart from each other": {
			nodes: stage.Nodes(3, 8), min: 3, members: stage.Pods(3, 1, func(p *st.PodWrapper) *st.PodWrapper {
				return p.PodAntiAffinityExists("app", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq)
			}),
			want: []string{"n0", "n1", "n2"},
		},
		"members that keep apart and have too few nodes": {
			nodes: stage.Nodes(2, 8), min: 3, members: stage.Pods(3, 1, func(p *st.PodWrapper) *st.PodWrapper {
				return p.PodAntiAffinityExists("app", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq)
			}),
			refused: "room for 2; short of own node (anti-affinity): needed 3, free 2 of 2",
		},
		"host ports": {
			nodes: stage.Nodes(2, 8), min: 2, members: stage.Pods(2, 1, func(p *st.PodWrapper) *st.PodWrapper {
				return p.HostPort(29500)
			}),
			want: []string{"n0", "n1"},
		},
		"members that spread": {
			nodes: stage.Nodes(2, 8), min: 4, members: stage.Pods(4, 1, func(p *st.PodWrapper) *st.PodWrapper {
				return p.SpreadConstraint(1, "kubernetes.io/hostname", corev1.DoNotSchedule, st.MakeLabelSelector().Label("app", "train").Obj(), nil, nil, nil, nil)
			}),
			want: []string{"n0", "n1", "n0", "n1"},
		},
		"a sum of requests that is too large for an integer": {
			// NodeResourcesFit takes it for nothing requested.
			nodes: stage.Nodes(1, 8), min: 1, members: stage.Pods(1, 1, func(p *st.PodWrapper) *st.PodWrapper {
				return p.Req(map[corev1.ResourceName]string{"memory": "9223372036854775807"}).Req(map[corev1.ResourceName]string{"memory": "9223372036854775807"})
			}),
			want: []string{"n0"},
		},
		"surplus members go as far as there is room": {
			nodes: stage.Nodes(2, 8), min: 1, members: stage.Pods(3, 8, nil),
			want: []string{"n0", "n1", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, nil, tc.pods, tc.nodes...)
			got, explanation := s.plan(tc.min, tc.members...)
			if tc.refused != "" {
				if explanation == nil || !strings.Contains(explanation.String(), tc.refused) {
					t.Fatalf("\n got %v %v\nwant %q", got, explanation, tc.refused)
				}
				return
			}
			if explanation != nil || !slices.Equal(got, tc.want) {
				t.Errorf("got %v (%v), want %v", got, explanation, tc.want)
			}
		})
	}
}

func TestPlanLeavesOutClaims(t *testing.T) {
	s := newScene(t, nil, nil, stage.Nodes(2, 8)...)
	logger, ctx := ktesting.NewTestContext(t)
	d, err := s.cluster.NewDemand(logger, stage.Pods(1, 8, nil), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	claims := []Claim{{Node: "n0", Requests: d.Classes[0].Requests}, {Node: "gone", Requests: d.Classes[0].Requests}}
	plan, e, err := Plan(ctx, s.fw, s.cluster, d, claims)
	if err != nil || e != nil || s.cluster.NodeName(plan.Nodes[0]) != "n1" {
		t.Errorf("%v, %v, %v: want the node that is not held", plan, e, err)
	}
	if got, e := s.plan(2, stage.Pods(2, 8, nil)...); e != nil {
		t.Errorf("%v, %v: the claims outlive the plan they were made for", got, e)
	}
}

func TestTopologyLevels(t *testing.T) {
	var nodes []*corev1.Node
	for i := range 8 {
		nodes = append(nodes, stage.Node(fmt.Sprintf("n%d", i), 8).Label("rack", fmt.Sprintf("r%d", i%2)).Obj())
	}
	s := newScene(t, []string{"rack"}, []*corev1.Pod{st.MakePod().Name("hog").UID("hog").Node("n1").Req(map[corev1.ResourceName]string{stage.GPU: "8"}).Obj()}, nodes...)
	got, e := s.plan(3, stage.Pods(3, 8, nil)...)
	if want := []string{"n3", "n5", "n7"}; e != nil || !slices.Equal(got, want) {
		t.Errorf("got %v (%v), want the fuller rack: %v", got, e, want)
	}
}

func TestClusterFollowsTheSnapshot(t *testing.T) {
	s := newScene(t, []string{"rack"}, nil, stage.Node("n0", 8).Label("rack", "a").Obj(), stage.Node("n1", 8).Label("rack", "b").Obj())
	column := s.cluster.Resource(stage.GPU)
	free := func(name string) int64 {
		id, ok := s.cluster.Node(name)
		if !ok {
			t.Fatalf("no node %s", name)
		}
		return s.cluster.Free(id, column)
	}
	info, err := framework.NewPodInfo(stage.Pod(0, 5).Obj())
	if err != nil {
		t.Fatal(err)
	}
	s.nodes[0].AddPodInfo(info)
	s.cluster.Sync(s.nodes)
	if name := s.nodes[0].Node().Name; free(name) != 3 {
		t.Errorf("after a pod of 5 GPUs came: %d free on %s", free(name), name)
	}
	if err := s.nodes[0].RemovePod(ktesting.NewLogger(t, ktesting.NewConfig()), info.Pod); err != nil {
		t.Fatal(err)
	}
	s.cluster.Sync(s.nodes)
	if name := s.nodes[0].Node().Name; free(name) != 8 {
		t.Errorf("after it went: %d free on %s", free(name), name)
	}
	// A node that moves to another rack rebuilds the tree.
	s.nodes[0].SetNode(stage.Node(s.nodes[0].Node().Name, 8).Label("rack", "b").Obj())
	s.nodes[1].SetNode(stage.Node(s.nodes[1].Node().Name, 8).Label("rack", "b").Obj())
	s.cluster.Sync(s.nodes)
	if got := s.cluster.DomainOf([]planner.NodeID{0, 1}); got != "rack b" {
		t.Errorf("both nodes are in rack b, the cluster says %q", got)
	}
	if free(s.nodes[0].Node().Name) != 8 || free(s.nodes[1].Node().Name) != 8 {
		t.Error("capacity was lost in the rebuild")
	}
	// A node that leaves is gone.
	s.cluster.Sync(s.nodes[:1])
	if s.cluster.NumNodes() != 1 {
		t.Errorf("%d nodes", s.cluster.NumNodes())
	}
}

func TestEligibilityFollowsNodes(t *testing.T) {
	logger, _ := ktesting.NewTestContext(t)
	cache := newEligibilityCache()
	pod := stage.Pod(0, 1).Obj()
	key := requirementsOf(pod).key()
	free, cordoned := stage.Node("n0", 8).Obj(), stage.Node("n0", 8).Unschedulable(true).Obj()
	for i, step := range []struct {
		node *corev1.Node
		want string
	}{{free, ""}, {cordoned, causeCordoned}, {cordoned, causeCordoned}, {free, ""}} {
		e := cache.forPod(logger, pod, key, []*corev1.Node{step.node})
		got := ""
		if e.blocked[0] != 0 {
			got = e.causes[e.blocked[0]-1]
		}
		if got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}

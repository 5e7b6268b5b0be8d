package coscheduling

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	schedqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	schedmetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/muster-sched/muster/podgroup/planner"
)

const gpu = "nvidia.com/gpu"

// stage is a plugin in the in-tree scheduling framework over a fixed snapshot, without a queue
// that runs.
type stage struct {
	*Coscheduling
	t     *testing.T
	nodes []fwk.NodeInfo
}

func newStage(t *testing.T, levels []string, pods []*corev1.Pod, nodes ...*corev1.Node) *stage {
	t.Helper()
	schedmetrics.Register()
	_, ctx := ktesting.NewTestContext(t)
	client := clientsetfake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	snapshot := schedcache.NewSnapshot(pods, nodes)
	defaults, err := latest.Default()
	if err != nil {
		t.Fatal(err)
	}
	profile := &schedconfig.KubeSchedulerProfile{SchedulerName: "test", Plugins: &schedconfig.Plugins{}, PluginConfig: defaults.Profiles[0].PluginConfig}
	for _, name := range []string{
		names.PrioritySort, names.DefaultBinder, names.NodeUnschedulable, names.NodeName, names.TaintToleration, names.NodeAffinity,
		names.NodePorts, names.NodeResourcesFit, names.PodTopologySpread, names.InterPodAffinity,
	} {
		profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, schedconfig.Plugin{Name: name})
	}
	fw, err := frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), profile,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithPodNominator(schedqueue.NewTestQueue(ctx, func(a, b fwk.QueuedEntityInfo) bool { return false })),
	)
	if err != nil {
		t.Fatal(err)
	}
	infos, err := snapshot.NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, nodes: infos, Coscheduling: &Coscheduling{handle: fw, cluster: newCluster(levels), gangs: newGangs()}}
	s.cluster.sync(infos)
	return s
}

// plan places the pods, at least min of them, as the scheduling cycle would.
func (s *stage) plan(min int, pods ...*corev1.Pod) ([]string, *planner.Explanation) {
	s.t.Helper()
	logger, ctx := ktesting.NewTestContext(s.t)
	d, err := s.cluster.newDemand(logger, pods, min, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	plan, explanation, err := s.Coscheduling.plan(ctx, testKey, d)
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

func testNode(name string, gpus int) *st.NodeWrapper {
	return st.MakeNode().Name(name).Label("kubernetes.io/hostname", name).Capacity(map[corev1.ResourceName]string{
		"cpu": "100", "memory": "100Gi", "pods": "110", gpu: fmt.Sprint(gpus),
	})
}

func testPod(i, gpus int) *st.PodWrapper {
	return st.MakePod().Namespace("ns").Name(fmt.Sprintf("m-%d", i)).UID(string(uid(i))).Label("app", "train").
		Req(map[corev1.ResourceName]string{gpu: fmt.Sprint(gpus)})
}

func testPods(n, gpus int, change func(*st.PodWrapper) *st.PodWrapper) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range n {
		p := testPod(i, gpus)
		if change != nil {
			p = change(p)
		}
		pods = append(pods, p.Obj())
	}
	return pods
}

func testNodes(n, gpus int) []*corev1.Node {
	var nodes []*corev1.Node
	for i := range n {
		nodes = append(nodes, testNode(fmt.Sprintf("n%d", i), gpus).Obj())
	}
	return nodes
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
			nodes: testNodes(3, 8), min: 2, members: testPods(2, 8, nil),
			want: []string{"n0", "n1"},
		},
		"what running pods use is not free": {
			pods:  []*corev1.Pod{hog.Req(map[corev1.ResourceName]string{gpu: "1"}).Obj()},
			nodes: testNodes(3, 8), min: 2, members: testPods(2, 8, nil),
			want: []string{"n1", "n2"},
		},
		"cordoned, tainted and unselected nodes are named": {
			nodes: []*corev1.Node{
				testNode("n0", 8).Unschedulable(true).Obj(),
				testNode("n1", 8).Taints([]corev1.Taint{{Key: "dedicated", Value: "infra", Effect: corev1.TaintEffectNoSchedule}}).Obj(),
				testNode("n2", 8).Label("pool", "b").Obj(),
				testNode("n3", 8).Label("pool", "a").Obj(),
			},
			min: 2, members: testPods(2, 8, func(p *st.PodWrapper) *st.PodWrapper { return p.NodeSelector(map[string]string{"pool": "a"}) }),
			refused: "room for 1; short of nvidia.com/gpu: needed 16, free 8 of 8; of 4 nodes: 1 cordoned, 1 outside the node selector or affinity, 1 with taint dedicated=infra:NoSchedule",
		},
		"tolerated taints are no obstacle": {
			nodes: []*corev1.Node{testNode("n0", 8).Taints([]corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}).Obj()},
			min:   1, members: testPods(1, 8, func(p *st.PodWrapper) *st.PodWrapper { return p.Toleration("gpu") }),
			want: []string{"n0"},
		},
		"a filter that arithmetic does not see is learned from": {
			// The pod on n0 keeps members away from its node, which only InterPodAffinity knows.
			pods:  []*corev1.Pod{st.MakePod().Namespace("ns").Name("hermit").UID("hermit").Node("n0").PodAntiAffinityExists("app", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq).Obj()},
			nodes: testNodes(3, 8), min: 2, members: testPods(2, 8, nil),
			want: []string{"n1", "n2"},
		},
		"and named when it leaves too little": {
			pods:  []*corev1.Pod{st.MakePod().Namespace("ns").Name("hermit").UID("hermit").Node("n0").PodAntiAffinityExists("app", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq).Obj()},
			nodes: testNodes(2, 8), min: 2, members: testPods(2, 8, nil),
			refused: "room for 1; of 2 nodes: 1 refused by InterPodAffinity",
		},
		"members that another pod tells apart by a label": {
			pods: []*corev1.Pod{st.MakePod().Namespace("ns").Name("hermit").UID("hermit").Node("n0").
				PodAntiAffinityExists("worker", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq).Obj()},
			nodes: testNodes(2, 8), min: 2, members: []*corev1.Pod{testPod(0, 1).Obj(), testPod(1, 1).Label("worker", "").Obj()},
			want: []string{"n1", "n1"},
		},
		"members that keep apart from each other": {
			nodes: testNodes(3, 8), min: 3, members: testPods(3, 1, func(p *st.PodWrapper) *st.PodWrapper {
				return p.PodAntiAffinityExists("app", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq)
			}),
			want: []string{"n0", "n1", "n2"},
		},
		"members that keep apart and have too few nodes": {
			nodes: testNodes(2, 8), min: 3, members: testPods(3, 1, func(p *st.PodWrapper) *st.PodWrapper {
				return p.PodAntiAffinityExists("app", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq)
			}),
			refused: "room for 2; of 2 nodes: 2 refused by InterPodAffinity",
		},
		"host ports": {
			nodes: testNodes(2, 8), min: 2, members: testPods(2, 1, func(p *st.PodWrapper) *st.PodWrapper {
				return p.HostPort(29500)
			}),
			want: []string{"n0", "n1"},
		},
		"members that spread": {
			nodes: testNodes(2, 8), min: 4, members: testPods(4, 1, func(p *st.PodWrapper) *st.PodWrapper {
				return p.SpreadConstraint(1, "kubernetes.io/hostname", corev1.DoNotSchedule, st.MakeLabelSelector().Label("app", "train").Obj(), nil, nil, nil, nil)
			}),
			want: []string{"n0", "n1", "n0", "n1"},
		},
		"a sum of requests that is too large for an integer": {
			// NodeResourcesFit takes it for nothing requested.
			nodes: testNodes(1, 8), min: 1, members: testPods(1, 1, func(p *st.PodWrapper) *st.PodWrapper {
				return p.Req(map[corev1.ResourceName]string{"memory": "9223372036854775807"}).Req(map[corev1.ResourceName]string{"memory": "9223372036854775807"})
			}),
			want: []string{"n0"},
		},
		"surplus members go as far as there is room": {
			nodes: testNodes(2, 8), min: 1, members: testPods(3, 8, nil),
			want: []string{"n0", "n1", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, nil, tc.pods, tc.nodes...)
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

func TestPlanLeavesOutWhatOtherGangsHold(t *testing.T) {
	s := newStage(t, nil, nil, testNodes(2, 8)...)
	logger, _ := ktesting.NewTestContext(t)
	pods := testPods(1, 8, nil)
	d, err := s.cluster.newDemand(logger, pods, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	id, _ := s.cluster.Node("n0")
	c := &commit{seats: map[types.UID]*seat{uid(9): s.newSeat(d, 0, id)}}
	s.gangs.begin(types.NamespacedName{Namespace: "ns", Name: "first"}, c)
	if got, e := s.plan(1, testPods(1, 8, nil)...); e != nil || got[0] != "n1" {
		t.Errorf("%v, %v: want the node that the first gang does not hold", got, e)
	}
}

func TestTopologyLevels(t *testing.T) {
	var nodes []*corev1.Node
	for i := range 8 {
		nodes = append(nodes, testNode(fmt.Sprintf("n%d", i), 8).Label("rack", fmt.Sprintf("r%d", i%2)).Obj())
	}
	s := newStage(t, []string{"rack"}, []*corev1.Pod{st.MakePod().Name("hog").UID("hog").Node("n1").Req(map[corev1.ResourceName]string{gpu: "8"}).Obj()}, nodes...)
	got, e := s.plan(3, testPods(3, 8, nil)...)
	if want := []string{"n3", "n5", "n7"}; e != nil || !slices.Equal(got, want) {
		t.Errorf("got %v (%v), want the fuller rack: %v", got, e, want)
	}
}

func TestClusterFollowsTheSnapshot(t *testing.T) {
	s := newStage(t, []string{"rack"}, nil, testNode("n0", 8).Label("rack", "a").Obj(), testNode("n1", 8).Label("rack", "b").Obj())
	column := s.cluster.Resource(gpu)
	free := func(name string) int64 {
		id, ok := s.cluster.Node(name)
		if !ok {
			t.Fatalf("no node %s", name)
		}
		return s.cluster.Free(id, column)
	}
	info, err := framework.NewPodInfo(testPod(0, 5).Obj())
	if err != nil {
		t.Fatal(err)
	}
	s.nodes[0].AddPodInfo(info)
	s.cluster.sync(s.nodes)
	if name := s.nodes[0].Node().Name; free(name) != 3 {
		t.Errorf("after a pod of 5 GPUs came: %d free on %s", free(name), name)
	}
	if err := s.nodes[0].RemovePod(ktesting.NewLogger(t, ktesting.NewConfig()), info.Pod); err != nil {
		t.Fatal(err)
	}
	s.cluster.sync(s.nodes)
	if name := s.nodes[0].Node().Name; free(name) != 8 {
		t.Errorf("after it went: %d free on %s", free(name), name)
	}
	// A node that moves to another rack rebuilds the tree.
	s.nodes[0].SetNode(testNode(s.nodes[0].Node().Name, 8).Label("rack", "b").Obj())
	s.nodes[1].SetNode(testNode(s.nodes[1].Node().Name, 8).Label("rack", "b").Obj())
	s.cluster.sync(s.nodes)
	if got := s.cluster.DomainOf([]planner.NodeID{0, 1}); got != "rack b" {
		t.Errorf("both nodes are in rack b, the cluster says %q", got)
	}
	if free(s.nodes[0].Node().Name) != 8 || free(s.nodes[1].Node().Name) != 8 {
		t.Error("capacity was lost in the rebuild")
	}
	// A node that leaves is gone.
	s.cluster.sync(s.nodes[:1])
	if s.cluster.NumNodes() != 1 {
		t.Errorf("%d nodes", s.cluster.NumNodes())
	}
}

func TestEligibilityFollowsNodes(t *testing.T) {
	logger, _ := ktesting.NewTestContext(t)
	cache := newEligibilityCache()
	pod := testPod(0, 1).Obj()
	key := requirementsOf(pod).key()
	free, cordoned := testNode("n0", 8).Obj(), testNode("n0", 8).Unschedulable(true).Obj()
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

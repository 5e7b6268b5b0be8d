package preemption

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/podgroup/planner"
)

// noon is when the tests take place.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// scene is a snapshot with pods on nodes, and a gang that was refused on it.
type scene struct {
	t       *testing.T
	fw      framework.Framework
	nodes   []fwk.NodeInfo
	cluster *gangplan.Cluster
	known   map[types.NamespacedName]Gang
	evicted map[types.UID]bool
}

func (s *scene) Gang(key types.NamespacedName) (Gang, bool) {
	g, ok := s.known[key]
	return g, ok
}

func newScene(t *testing.T, levels []string, pods []*corev1.Pod, nodes ...*corev1.Node) *scene {
	t.Helper()
	s := &scene{t: t, cluster: gangplan.NewCluster(levels), known: map[types.NamespacedName]Gang{}, evicted: map[types.UID]bool{}}
	s.fw, s.nodes = stage.NewFramework(t, pods, nodes...)
	s.cluster.Use(s.fw)
	s.cluster.Sync(s.nodes)
	return s
}

// gang makes a gang known.
func (s *scene) gang(name string, minMember int) {
	s.known[types.NamespacedName{Namespace: "ns", Name: name}] = Gang{MinMember: minMember, Preemptible: true}
}

func (s *scene) budget(name string, allowed int32, labels map[string]string) {
	s.t.Helper()
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	pdb.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	pdb.Status.DisruptionsAllowed = allowed
	if err := s.fw.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Informer().GetStore().Add(pdb); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) candidates(priority int32) *Candidates {
	s.t.Helper()
	census := &Census{
		Cluster: s.cluster, Gangs: s, Now: noon, Evicted: func(uid types.UID) bool { return s.evicted[uid] },
		Budgets: Budgets{Lister: s.fw.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister()},
	}
	c, err := census.Take(priority, func(pod *corev1.Pod) bool { return pod.Labels[v1alpha1.GroupLabel] == "preemptor" })
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// find looks for room for pods of priority 100, which must have been refused.
func (s *scene) find(a *podgroup.Arrangement, pods ...*corev1.Pod) *Room {
	s.t.Helper()
	logger, ctx := ktesting.NewTestContext(s.t)
	d, err := s.cluster.NewDemand(logger, pods, len(pods), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if a != nil {
		if err := s.cluster.Constrain(d, a); err != nil {
			s.t.Fatal(err)
		}
	}
	before := s.state()
	if plan, _, err := gangplan.Plan(ctx, s.fw, s.cluster, d, nil); err != nil || plan != nil {
		s.t.Fatalf("the gang fits as it is: %v, %v", plan, err)
	}
	room, err := Find(ctx, s.fw, s.cluster, d, nil, s.candidates(100))
	if err != nil {
		s.t.Fatal(err)
	}
	if after := s.state(); after != before {
		s.t.Errorf("looking for room changed the cluster\nfrom %s\nto   %s", before, after)
	}
	return room
}

// state is what is on the nodes, in the snapshot and in the model.
func (s *scene) state() string {
	s.t.Helper()
	infos, err := s.fw.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, info := range infos {
		id, _ := s.cluster.Node(info.Node().Name)
		if s.cluster.Info(id) != info {
			s.t.Errorf("the model's entry of node %s is not the snapshot's", info.Node().Name)
		}
		free := s.cluster.Free(id, s.cluster.Resource(stage.GPU))
		out = append(out, fmt.Sprintf("%s %d pods %d free", info.Node().Name, len(info.GetPods()), free))
	}
	return strings.Join(out, ", ")
}

// victims are the names of whom a room is made by.
func victims(r *Room) []string {
	if r == nil {
		return nil
	}
	var names []string
	for _, u := range r.Victims {
		names = append(names, u.Tenant.String())
	}
	slices.Sort(names)
	return names
}

// on puts pod number i, of priority 0, on a node.
func on(node string, i, gpus int) *st.PodWrapper {
	return stage.Pod(i, gpus).Node(node).Priority(0).StartTime(metav1.NewTime(noon.Add(-time.Hour)))
}

func inGang(name string) func(*st.PodWrapper) *st.PodWrapper {
	return func(p *st.PodWrapper) *st.PodWrapper { return p.Label(v1alpha1.GroupLabel, name) }
}

// preemptors are n pods of priority 100, numbered from 100.
func preemptors(n, gpus int, change func(*st.PodWrapper)) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range n {
		p := stage.Pod(100+i, gpus).Priority(100).Label(v1alpha1.GroupLabel, "preemptor")
		if change != nil {
			change(p)
		}
		pods = append(pods, p.Obj())
	}
	return pods
}

func (s *scene) mustPreempt(r *Room, want ...string) {
	s.t.Helper()
	if r == nil {
		s.t.Fatalf("nobody is preempted, want %v", want)
	}
	if got := victims(r); !slices.Equal(got, want) {
		s.t.Errorf("preempts %v, want %v", got, want)
	}
	for i, node := range r.Nodes {
		if node == planner.NoNode {
			s.t.Errorf("member %d has no place", i)
		}
	}
}

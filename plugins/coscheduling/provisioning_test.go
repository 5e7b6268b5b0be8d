package coscheduling

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// awaits makes a gang of the test's namespace that was refused for room and has a window, with its PodGroup so many
// seconds old. Its members need 8 GPUs each.
func (p *play) awaits(name string, members, age int, window string, change func(*st.PodWrapper) *st.PodWrapper) types.NamespacedName {
	p.t.Helper()
	key := types.NamespacedName{Namespace: "ns", Name: name}
	group := &v1alpha1.PodGroup{}
	group.Namespace, group.Name, group.CreationTimestamp = key.Namespace, name, metav1.NewTime(p.clock.Now().Add(-time.Duration(age)*time.Second))
	if window != "" {
		group.Annotations = map[string]string{podgroup.ProvisioningWindowAnnotation: window}
	}
	group.Spec.MinMember = int32(members)
	if err := p.groups.Add(group); err != nil {
		p.t.Fatal(err)
	}
	p.groupChanged(p.logger, nil, group)
	var first *corev1.Pod
	for i := range members {
		w := stage.Pod(i, 8).Name(fmt.Sprintf("%s-%d", name, i)).UID(fmt.Sprintf("%s-%d", name, i)).Label(v1alpha1.GroupLabel, name).SchedulerName("test")
		if change != nil {
			w = change(w)
		}
		if pod := p.see(nil, w.Obj()); first == nil {
			first = pod
		}
	}
	p.refusalStatus(first)
	return key
}

// joins makes a node join the cluster, and returns for whom some of it is held.
func (p *play) joins(node *corev1.Node) string {
	p.t.Helper()
	if node.CreationTimestamp.IsZero() {
		node.CreationTimestamp = metav1.NewTime(p.clock.Now())
	}
	p.nodeJoins(p.logger, node)
	return p.heldFor(node.Name)
}

func (p *play) heldFor(node string) string {
	for key, w := range p.provisioning.byGang {
		if w.has(node) >= 0 {
			return key.Name
		}
	}
	return ""
}

// fitsOn reports whether a pod without a gang may use a node without pods.
func (p *play) fitsOn(node *corev1.Node, pod *corev1.Pod) bool {
	info := framework.NewNodeInfo()
	info.SetNode(node)
	return p.keptByHold(pod, info) == ""
}

func (p *play) provisioningSays(key types.NamespacedName) string {
	r := p.report.wanted[key][v1alpha1.ConditionProvisioning]
	return fmt.Sprintf("%s %s: %s", r.status, r.reason, r.message)
}

func TestNewNodesAreHeldUntilTheGangFits(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	key := p.awaits("gang", 3, 60, "10m", nil)
	a, b := stage.Node("a", 8).Obj(), stage.Node("b", 8).Obj()
	if p.joins(a) != "gang" {
		t.Fatal("the first node is not held")
	}
	p.clock.Step(time.Minute)
	if p.joins(b) != "gang" {
		t.Fatal("the second node is not held")
	}
	single := stage.Pod(50, 1).Obj()
	if p.fitsOn(a, single) || p.fitsOn(b, single) {
		t.Error("another pod may take what is held")
	}
	if !p.fitsOn(a, stage.Pod(51, 0).Obj()) {
		t.Error("what the gang cannot use is held too")
	}
	if !p.fitsOn(a, stage.Pod(52, 8).Priority(1).Obj()) {
		t.Error("a pod of higher priority is kept out")
	}
	if !p.fitsOn(a, with(single, func(pod *corev1.Pod) {
		yes := true
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "driver", Controller: &yes}}
	})) {
		t.Error("a pod of a DaemonSet is kept out")
	}
	if says, want := p.provisioningSays(key), "True NodesArriving: new nodes are held for 2 of the 3 members that have no place, until 2026-03-01T12:10:00Z: a, b"; says != want {
		t.Errorf("says %q, want %q", says, want)
	}

	p.endProvisioning(p.logger, key, nil, ReasonPlaced, "the gang has its place")
	if !p.fitsOn(a, single) || !strings.HasPrefix(p.provisioningSays(key), "False Placed") {
		t.Errorf("held for a gang that has its place; says %q", p.provisioningSays(key))
	}
}

func TestWindowEndsAndRests(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	key := p.awaits("gang", 3, 60, "10m", nil)
	a, single := stage.Node("a", 8).Obj(), stage.Pod(50, 8).Obj()
	p.joins(a)
	p.clock.Step(10*time.Minute - time.Second)
	if p.fitsOn(a, single) {
		t.Fatal("given up too early")
	}
	p.inLine()
	p.clock.Step(time.Second)
	if !p.fitsOn(a, single) {
		t.Error("held for longer than the window")
	}
	p.mustBeInLine("ns/" + single.Name)
	if says := p.provisioningSays(key); !strings.HasPrefix(says, "False WindowOver") {
		t.Errorf("says %q", says)
	}
	if held := p.joins(stage.Node("b", 8).Obj()); held != "" {
		t.Error("a new window begins with the next node, so that there is no end to it")
	}
	p.clock.Step(10 * time.Minute)
	if p.joins(stage.Node("c", 8).Obj()) != "gang" {
		t.Error("no window after the rest")
	}
}

func TestNodesThatAreNotHeld(t *testing.T) {
	for name, tc := range map[string]struct {
		window string
		node   func(*corev1.Node)
		want   string
	}{
		"held":                {window: "10m", want: "gang"},
		"without a window":    {window: ""},
		"with none":           {window: "0s"},
		"older than the gang": {window: "10m", node: func(n *corev1.Node) { n.CreationTimestamp.Time = n.CreationTimestamp.Add(-2 * time.Minute) }},
		"cordoned":            {window: "10m", node: func(n *corev1.Node) { n.Spec.Unschedulable = true }},
		"not ready": {window: "10m", node: func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
		}},
		"without its device plugin": {window: "10m", node: func(n *corev1.Node) { delete(n.Status.Allocatable, stage.GPU) }},
		"too small": {window: "10m", node: func(n *corev1.Node) {
			n.Status.Allocatable[stage.GPU] = stage.Node("x", 4).Obj().Status.Allocatable[stage.GPU]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, stage.Nodes(1, 8)...)
			p.awaits("gang", 3, 60, tc.window, nil)
			node := stage.Node("a", 8).Obj()
			node.CreationTimestamp = metav1.NewTime(p.clock.Now())
			if tc.node != nil {
				tc.node(node)
			}
			if got := p.joins(node); got != tc.want {
				t.Errorf("held for %q, want %q", got, tc.want)
			}
		})
	}
}

func TestNodeIsHeldWhenItComesOfUse(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	p.awaits("gang", 3, 60, "10m", nil)
	node := stage.Node("a", 8).Unschedulable(true).Obj()
	if p.joins(node) != "" {
		t.Fatal("held although it is cordoned")
	}
	p.clock.Step(5 * time.Minute)
	if p.joins(changed(node, func(n *corev1.Node) { n.Spec.Unschedulable = false })) != "gang" {
		t.Error("not held when it came of use")
	}
	late := stage.Node("b", 8).Unschedulable(true).Obj()
	p.joins(late)
	p.clock.Step(joinedLately + time.Second)
	if p.joins(changed(late, func(n *corev1.Node) { n.Spec.Unschedulable = false })) != "" {
		t.Error("an old node that was uncordoned is taken for a new one")
	}
}

func changed(node *corev1.Node, change func(*corev1.Node)) *corev1.Node {
	out := node.DeepCopy()
	change(out)
	return out
}

func TestNewNodesGoToTheFirstInLine(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	p.awaits("young", 2, 10, "10m", nil)
	p.awaits("old", 3, 60, "10m", nil)
	p.awaits("urgent", 2, 5, "10m", func(w *st.PodWrapper) *st.PodWrapper { return w.Priority(5) })
	p.awaits("picky", 2, 90, "10m", func(w *st.PodWrapper) *st.PodWrapper { return w.NodeSelector(map[string]string{"pool": "other"}) })
	var got []string
	for i := range 8 {
		got = append(got, p.joins(stage.Node(fmt.Sprintf("n-%d", i), 8).Obj()))
	}
	if want := []string{"urgent", "urgent", "old", "old", "old", "young", "young", ""}; !slices.Equal(got, want) {
		t.Errorf("nodes went to %v, want %v", got, want)
	}
}

func TestAnOlderGangIsNotKeptOut(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	p.awaits("gang", 3, 60, "10m", nil)
	node := stage.Node("a", 8).Obj()
	p.joins(node)
	old, young := p.awaits("old", 2, 90, "", nil), p.awaits("young", 2, 30, "", nil)
	for key, want := range map[types.NamespacedName]int{old: 0, young: 1} {
		if got := len(p.holds.against(candidate{gang: key}, p.clock.Now())); got != want {
			t.Errorf("%s must leave %d claims alone, want %d", key.Name, got, want)
		}
	}
}

func TestNewNodesInsideTheRequiredDomain(t *testing.T) {
	p := newPlay(t, stage.Node("n0", 8).Label("rack", "r0").Obj())
	p.cluster = gangplan.NewCluster([]string{"rack"})
	p.cluster.Sync(p.nodes)
	required := func(w *st.PodWrapper) *st.PodWrapper {
		return w.Annotation(podgroup.RequiredTopologyAnnotation, "rack")
	}
	p.awaits("gang", 3, 60, "10m", required)
	in := func(name, rack string) *corev1.Node { return stage.Node(name, 8).Label("rack", rack).Obj() }
	if p.joins(stage.Node("nowhere", 8).Obj()) != "" {
		t.Error("a node without the label is held")
	}
	if p.joins(in("a", "r1")) != "gang" || p.joins(in("b", "r2")) != "" || p.joins(in("c", "r1")) != "gang" {
		t.Errorf("held: %v", p.provisioning.byGang)
	}
}

func TestNoMoreIsHeldThanTheGangNeeds(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	key := p.awaits("gang", 3, 60, "10m", nil)
	big := stage.Node("big", 16).Obj()
	p.joins(big)
	p.joins(stage.Node("a", 8).Obj())
	if got := p.joins(stage.Node("b", 8).Obj()); got != "" {
		t.Error("held a fourth place for three members")
	}
	if says := p.provisioningSays(key); !strings.Contains(says, "3 of the 3 members") {
		t.Error(says)
	}
	p.newcomerGone(p.logger, "big")
	if p.joins(stage.Node("c", 8).Obj()) != "gang" || p.joins(stage.Node("d", 8).Obj()) != "gang" || p.joins(stage.Node("e", 8).Obj()) != "" {
		t.Errorf("after a node left, held: %v", p.provisioning.byGang[key].names())
	}
}

func TestHoldEndsWithTheGang(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	key := p.awaits("gang", 2, 60, "10m", nil)
	p.joins(stage.Node("a", 8).Obj())
	p.groupDeleted(p.logger, p.Coscheduling.group(key))
	if !p.holds.empty() || len(p.provisioning.byGang) != 0 {
		t.Error("held for a gang that is gone")
	}
}

func TestConditionOfADeadSchedulerIsTakenBack(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	group := p.group(2)
	meta.SetStatusCondition(&group.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionProvisioning, Status: metav1.ConditionTrue, Reason: ReasonNodesArriving})
	p.refusalStatus(p.wholeNodeMembers(2)[0])
	if says := p.provisioningSays(testKey); !strings.HasPrefix(says, "False WindowOver") {
		t.Errorf("says %q", says)
	}
}

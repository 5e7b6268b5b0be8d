package preemption

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
)

func TestOneVictimWhereOneSuffices(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 10 {
		pods = append(pods, on(fmt.Sprintf("n%d", i), i, 8).Priority(int32(10-i)).Obj())
	}
	s := newScene(t, nil, pods, stage.Nodes(10, 8)...)
	s.mustPreempt(s.find(nil, preemptors(1, 8, nil)...), "pod ns/m-9")
}

func TestFreeAndFreedRoomMix(t *testing.T) {
	s := newScene(t, nil, []*corev1.Pod{on("n0", 0, 8).Obj(), on("n1", 1, 8).Obj()}, stage.Nodes(3, 8)...)
	room := s.find(nil, preemptors(2, 8, nil)...)
	if len(room.Victims) != 1 {
		t.Errorf("victims: %v", victims(room))
	}
}

func TestNobodyIsPreemptedForAGangThatWouldNotFit(t *testing.T) {
	s := newScene(t, nil, []*corev1.Pod{on("n0", 0, 8).Obj(), on("n1", 1, 8).Priority(100).Obj()}, stage.Nodes(2, 8)...)
	if room := s.find(nil, preemptors(2, 8, nil)...); room != nil {
		t.Errorf("preempts %v", victims(room))
	}
}

func TestAFullDomainIsFreed(t *testing.T) {
	var nodes []*corev1.Node
	var pods []*corev1.Pod
	for i, rack := range []string{"a", "a", "b", "b"} {
		name := fmt.Sprintf("%s%d", rack, i)
		nodes = append(nodes, stage.Node(name, 8).Label("rack", rack).Obj())
		pods = append(pods, inGang("low-"+rack)(on(name, i, 8)).Priority(int32(10*(1+int(rack[0]-'a')))).Obj())
	}
	s := newScene(t, []string{"rack"}, pods, nodes...)
	a, err := podgroup.Arrange(map[string]string{podgroup.RequiredTopologyAnnotation: "rack"}, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.mustPreempt(s.find(a, preemptors(2, 8, nil)...), "ns/low-a")
}

func TestSurplusGoesAndItsGangStays(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 4 {
		pods = append(pods, inGang("low")(on(fmt.Sprintf("n%d", i), i, 8)).Obj())
	}
	s := newScene(t, nil, pods, stage.Nodes(4, 8)...)
	s.gang("low", 2)
	s.mustPreempt(s.find(nil, preemptors(2, 8, nil)...), "pod ns/m-2", "pod ns/m-3")
	s.mustPreempt(s.find(nil, preemptors(3, 8, nil)...), "ns/low", "pod ns/m-2", "pod ns/m-3")
}

// What ends anyhow is room, and no reason to evict anybody.
func TestPodsOnTheirWayOutAreWaitedFor(t *testing.T) {
	ending := on("n0", 0, 8).Terminating().Obj()
	ending.DeletionTimestamp = &metav1.Time{Time: noon.Add(time.Minute)}
	s := newScene(t, nil, []*corev1.Pod{ending, on("n1", 1, 8).Obj(), on("n2", 2, 8).Obj()}, stage.Nodes(3, 8)...)
	room := s.find(nil, preemptors(1, 8, nil)...)
	s.mustPreempt(room)
	if len(room.Awaited) != 1 || room.Awaited[0].GetPod().Name != "m-0" {
		t.Errorf("awaited: %v", room.Awaited)
	}
	room = s.find(nil, preemptors(2, 8, nil)...)
	if len(room.Victims) != 1 || len(room.Awaited) != 1 {
		t.Errorf("victims %v, awaited %v", victims(room), room.Awaited)
	}
}

// Filters other than arithmetic see the victims gone.
func TestVictimsThatKeepTheGangAway(t *testing.T) {
	repels := func(p *st.PodWrapper) *st.PodWrapper {
		return p.PodAntiAffinityIn("app", corev1.LabelHostname, []string{"train"}, st.PodAntiAffinityWithRequiredReq)
	}
	s := newScene(t, nil, []*corev1.Pod{repels(on("n0", 0, 1)).Priority(1).Obj(), repels(on("n1", 1, 1)).Obj()}, stage.Nodes(2, 8)...)
	s.mustPreempt(s.find(nil, preemptors(2, 1, nil)...), "pod ns/m-1")
}

// A gang that is placed one member at a time sees them gone too.
func TestVictimsForAGangWithRulesOfItsOwn(t *testing.T) {
	spread := func(p *st.PodWrapper) {
		p.SpreadConstraint(1, corev1.LabelHostname, corev1.DoNotSchedule, st.MakeLabelSelector().Exists("preempts").Obj(), nil, nil, nil, nil).Label("preempts", "")
	}
	s := newScene(t, nil, []*corev1.Pod{on("n0", 0, 8).Priority(50).Obj(), on("n1", 1, 4).Obj(), on("n1", 2, 4).Obj()}, stage.Nodes(2, 8)...)
	room := s.find(nil, preemptors(2, 4, spread)...)
	if len(room.Victims) != 2 {
		t.Errorf("preempts %v: one member on each node needs one victim on each", victims(room))
	}
	if room.Nodes[0] == room.Nodes[1] {
		t.Errorf("both members on node %d", room.Nodes[0])
	}
}

func TestAnotherClaimIsNoRoom(t *testing.T) {
	s := newScene(t, nil, []*corev1.Pod{on("n0", 0, 8).Obj()}, stage.Nodes(2, 8)...)
	s.mustPreempt(s.find(nil, preemptors(2, 8, nil)...), "pod ns/m-0")
}

func TestBudgetsAreRespectedWhereThereIsAnotherWay(t *testing.T) {
	s := newScene(t, nil, []*corev1.Pod{on("n0", 0, 8).Label("tier", "web").Obj(), on("n1", 1, 8).Priority(50).Obj()}, stage.Nodes(2, 8)...)
	s.budget("web", 0, map[string]string{"tier": "web"})
	room := s.find(nil, preemptors(1, 8, nil)...)
	s.mustPreempt(room, "pod ns/m-1")
	if room.Violations != 0 {
		t.Errorf("%d violations", room.Violations)
	}
	room = s.find(nil, preemptors(2, 8, nil)...)
	s.mustPreempt(room, "pod ns/m-0", "pod ns/m-1")
	if room.Violations != 1 {
		t.Errorf("%d violations, want 1", room.Violations)
	}
}

// Each victim alone respects the budget; both together do not.
func TestBudgetsAreCountedTogether(t *testing.T) {
	web := func(node string, i int) *corev1.Pod { return on(node, i, 8).Label("tier", "web").Obj() }
	s := newScene(t, nil, []*corev1.Pod{web("n0", 0), web("n1", 1), on("n2", 2, 8).Priority(50).Obj()}, stage.Nodes(3, 8)...)
	s.budget("web", 1, map[string]string{"tier": "web"})
	room := s.find(nil, preemptors(2, 8, nil)...)
	if room.Violations != 0 || len(room.Victims) != 2 {
		t.Errorf("preempts %v with %d violations", victims(room), room.Violations)
	}
}

func TestWords(t *testing.T) {
	pods := []*corev1.Pod{inGang("low")(on("n0", 0, 8)).Obj(), inGang("low")(on("n1", 1, 8)).Obj(), on("n2", 2, 8).Label("tier", "web").Obj()}
	s := newScene(t, nil, pods, stage.Nodes(3, 8)...)
	s.gang("low", 2)
	s.budget("web", 0, map[string]string{"tier": "web"})
	want := "pod ns/m-2 (priority 0, 8.0 device-hours of work) and ns/low (priority 0, 2 pods, 16.0 device-hours of work), " +
		"the least that makes room in cluster; nothing less exceeds PodDisruptionBudgets by fewer than 1 disruption"
	if got := s.find(nil, preemptors(3, 8, nil)...).String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

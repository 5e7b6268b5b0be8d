package coscheduling

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// newRackedPlay is a play on racks "a", "b" and so on, of so many nodes of 8 GPUs each: a0, a1, b0 ...
func newRackedPlay(t *testing.T, sizes ...int) *play {
	t.Helper()
	var nodes []*corev1.Node
	for rack, size := range sizes {
		for i := range size {
			name := string(rune('a' + rack))
			nodes = append(nodes, stage.Node(fmt.Sprintf("%s%d", name, i), 8).Label("rack", name).Obj())
		}
	}
	p := newPlay(t, nodes...)
	p.cluster = gangplan.NewCluster([]string{"rack"})
	return p
}

// ask changes the annotations of the PodGroup.
func (p *play) ask(annotations map[string]string) {
	p.t.Helper()
	old := p.Coscheduling.group(testKey)
	now := old.DeepCopy()
	now.Annotations = annotations
	if err := p.groups.Update(now); err != nil {
		p.t.Fatal(err)
	}
	p.groupChanged(p.logger, old, now)
}

func requireTopology(level string) map[string]string {
	return map[string]string{podgroup.RequiredTopologyAnnotation: level}
}

func TestInvalidTopologyIsAVerdictThatNoNodeTurns(t *testing.T) {
	p := newRackedPlay(t, 1, 2)
	p.group(2)
	p.ask(requireTopology("rak"))
	pods := p.wholeNodeMembers(2)
	_, why := p.turn(pods[0])
	for _, word := range []string{podgroup.RequiredTopologyAnnotation, "the PodGroup", `"rak"`, "rack, kubernetes.io/hostname"} {
		if !strings.Contains(why, word) {
			t.Errorf("%q does not contain %q", why, word)
		}
	}
	if _, same := p.turn(pods[1]); same != why {
		t.Errorf("the second member is told %q, the first %q", same, why)
	}
	if got := p.report.wanted[testKey][v1alpha1.ConditionUnschedulable]; got != (report{metav1.ConditionTrue, ReasonInvalidTopology, why}) {
		t.Errorf("reported: %+v", got)
	}
	for _, pod := range pods {
		if hint, err := p.nodeHelps(p.logger, pod, nil, stage.Node("c0", 8).Obj()); err != nil || hint != fwk.QueueSkip {
			t.Errorf("a new node: %v, %v for %s", hint, err, pod.Name)
		}
		if hint, err := p.podHelps(p.logger, pod, stage.Pod(9, 8).Obj(), nil); err != nil || hint != fwk.QueueSkip {
			t.Errorf("a pod that ends: %v, %v for %s", hint, err, pod.Name)
		}
	}
	p.inLine()
	p.ask(requireTopology("rack"))
	p.mustBeInLine("ns/m-0", "ns/m-1")
	if node, why := p.turn(pods[0]); node != "b0" {
		t.Errorf("after the correction: %q, %s", node, why)
	}
}

func TestCorrectedMemberWakesTheGang(t *testing.T) {
	p := newRackedPlay(t, 2)
	p.group(2)
	pods := p.wholeNodeMembers(2)
	wrong := p.see(pods[1], with(pods[1], func(pod *corev1.Pod) { pod.Annotations = requireTopology("rak") }))
	if _, why := p.turn(pods[0]); !strings.Contains(why, `pod "m-1"`) {
		t.Fatalf("refused for %q, want the second member named", why)
	}
	p.inLine()
	p.see(wrong, with(wrong, func(pod *corev1.Pod) { pod.Annotations = requireTopology("rack") }))
	p.mustBeInLine("ns/m-0", "ns/m-1")
	if node, why := p.turn(pods[0]); node == "" {
		t.Errorf("after the correction: %q, %s", node, why)
	}
}

// Whoever was in the way can also go: a bound member, say, whose leaving no hint reports to an invalid gang.
func TestMemberInTheWayLeaves(t *testing.T) {
	p := newRackedPlay(t, 3)
	p.group(2)
	placed := p.see(nil, stage.Pod(8, 8).Label(v1alpha1.GroupLabel, testKey.Name).Node("a0").Annotation(podgroup.RequiredTopologyAnnotation, "rak").Obj())
	pods := p.wholeNodeMembers(2)
	if _, why := p.turn(pods[0]); !strings.Contains(why, `pod "m-8"`) {
		t.Fatalf("refused for %q, want the placed member named", why)
	}
	p.inLine()
	p.podDeleted(p.logger, placed)
	p.mustBeInLine("ns/m-0")
}

// A plan is for the topology that was asked for when it was made.
func TestTopologyChangesDuringACommit(t *testing.T) {
	for name, change := range map[string]func(p *play, pods []*corev1.Pod){
		"of the gang": func(p *play, _ []*corev1.Pod) { p.ask(requireTopology("rack")) },
		"of a member": func(p *play, pods []*corev1.Pod) {
			p.see(pods[1], with(pods[1], func(pod *corev1.Pod) { pod.Annotations = requireTopology("rack") }))
		},
		"of a reserved": func(p *play, pods []*corev1.Pod) {
			p.see(pods[0], with(pods[0], func(pod *corev1.Pod) { pod.Annotations = requireTopology("rack") }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newRackedPlay(t, 2, 2)
			p.group(2)
			pods := p.wholeNodeMembers(2)
			p.follow(pods[0])
			change(p, pods)
			if v := p.gangs.verdictFor(testKey, pods[1].UID); v.node != "" {
				t.Errorf("the commit goes on: %+v", v)
			}
		})
	}
}

// Late members go where the gang is, and wait if there is no room; extra members do not spill either.
func TestLateMembersKeepTheRequiredRack(t *testing.T) {
	p := newRackedPlay(t, 3, 3)
	p.group(2)
	p.ask(requireTopology("rack"))
	for i, node := range []string{"b1", "b2"} {
		p.see(nil, stage.Pod(10+i, 8).Label(v1alpha1.GroupLabel, testKey.Name).Node(node).Obj())
	}
	pods := p.wholeNodeMembers(2)
	// The snapshot does not show the placed members: their places look free, and rack a as well.
	if node, why := p.turn(pods[0]); !strings.HasPrefix(node, "b") {
		t.Fatalf("the late member goes to %q (%s), want rack b", node, why)
	}
}

// A commit that is planned anew stays with members that were placed before it, not only with its own.
func TestReplanKeepsTheRequiredRack(t *testing.T) {
	p := newRackedPlay(t, 3, 3)
	p.group(3)
	p.ask(requireTopology("rack"))
	p.see(nil, stage.Pod(10, 8).Label(v1alpha1.GroupLabel, testKey.Name).Node("b2").Obj())
	pods := p.wholeNodeMembers(2)
	first, why := p.turn(pods[0])
	if !strings.HasPrefix(first, "b") {
		t.Fatalf("planned on %q (%s), want rack b", first, why)
	}
	open, _, ok := p.gangs.replan(testKey, pods[0].UID)
	if !ok {
		t.Fatal("cannot be planned anew")
	}
	seats, why, err := p.Coscheduling.replan(p.ctx, testKey, open)
	if err != nil || why != "" {
		t.Fatalf("planned anew: %s, %v", why, err)
	}
	for _, s := range seats {
		if !strings.HasPrefix(s.Node, "b") {
			t.Errorf("%s is planned anew on %s, want rack b", s.pod.Name, s.Node)
		}
	}
}

// A late member whose slice has no room does not keep those of other slices waiting.
func TestLateMemberOfAFullSliceHoldsUpNoOther(t *testing.T) {
	p := newPlay(t, stage.Node("a0", 0).Label("rack", "a").Obj(), stage.Node("b0", 8).Label("rack", "b").Obj(), stage.Node("b1", 8).Label("rack", "b").Obj())
	p.cluster = gangplan.NewCluster([]string{"rack"})
	p.group(2)
	p.ask(map[string]string{podgroup.SliceRequiredTopologyAnnotation: "rack", podgroup.SliceSizeAnnotation: "2"})
	for rank, node := range map[int]string{0: "a0", 2: "b0"} {
		p.see(nil, stage.Pod(rank, 8).Label(v1alpha1.GroupLabel, testKey.Name).Node(node).Obj())
	}
	late := func(rank int) *corev1.Pod {
		return p.see(nil, stage.Pod(rank, 8).Label(v1alpha1.GroupLabel, testKey.Name).SchedulerName("test").Obj())
	}
	first, second := late(1), late(3)
	if node, _ := p.turn(first); node != "" {
		t.Fatalf("rank 1 goes to %q, and its slice is in rack a", node)
	}
	if node, why := p.turn(second); !strings.HasPrefix(node, "b") {
		t.Fatalf("rank 3 goes to %q: %s", node, why)
	}
	if !p.follow(second) {
		t.Fatal("rank 3 waits for others")
	}
	// Rank 1 has its turn again, and a reason of its own now.
	if _, why := p.turn(first); !strings.Contains(why, "1 more member beside 3 placed") {
		t.Errorf("rank 1 is told %q", why)
	}
	if v := p.gangs.refusalOf(testKey); v == nil || v.invalid {
		t.Errorf("verdict %+v", v)
	}
}

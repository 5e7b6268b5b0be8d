package coscheduling

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/plugins/stage"
)

// elastic is a gang of three members, of which it needs two, with a plan for all of them.
func elastic(t *testing.T) (*play, []*corev1.Pod) {
	t.Helper()
	p := newPlay(t, stage.Nodes(3, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(3)
	if _, why := p.turn(pods[0]); why != "" {
		t.Fatal(why)
	}
	p.inLine()
	return p, pods
}

// gone takes a member away, from the scheduler's view too.
func (p *play) gone(pod *corev1.Pod) {
	p.t.Helper()
	if err := p.handle.SharedInformerFactory().Core().V1().Pods().Informer().GetStore().Delete(pod); err != nil {
		p.t.Fatal(err)
	}
	p.podDeleted(p.logger, pod)
}

func TestGangGoesOnWithoutSurplusThatGoesBeforeItsTurn(t *testing.T) {
	p, pods := elastic(t)
	p.gone(pods[1])
	if p.follow(pods[0]) {
		t.Fatal("the first member binds alone")
	}
	if !p.follow(pods[2]) {
		t.Error("the gang waits for a member that is gone")
	}
	if p.gangs.refusalOf(testKey) != nil || p.gangs.byKey[testKey].failures != 0 {
		t.Error("the gang let go for a member beyond its minimum")
	}
}

func TestGangStartsWhenTheOneItWaitsForGoesAndIsSurplus(t *testing.T) {
	p, pods := elastic(t)
	p.follow(pods[0])
	p.follow(pods[1])
	p.gone(pods[2])
	for _, pod := range pods[:2] {
		if status := p.handle.WaitOnPermit(p.ctx, pod); !status.IsSuccess() {
			t.Errorf("%s does not bind: %v", pod.Name, status)
		}
	}
	if got := p.gangs.placedNodes(testKey); len(got) != 2 {
		t.Errorf("on their way: %v", got)
	}
}

// The surplus that goes may be the last that a commit waits for when another member, which the commit counted on, has
// lost its place.
func TestSurplusGoesWhenThePlacesAreTooFew(t *testing.T) {
	p := newPlay(t, stage.Nodes(4, 8)...)
	p.group(3)
	pods := p.wholeNodeMembers(4)
	bound := p.see(pods[0], with(pods[0], func(pod *corev1.Pod) { pod.Spec.NodeName = "n0" }))
	p.follow(pods[1])
	p.follow(pods[2])
	p.gone(bound)
	p.gone(pods[3])
	for _, pod := range pods[1:3] {
		if status := p.handle.WaitOnPermit(p.ctx, pod); !status.IsRejected() {
			t.Errorf("%s binds, one of two where three are needed: %v", pod.Name, status)
		}
	}
	if r := p.gangs.refusalOf(testKey); r == nil || r.reason != ReasonLetGo {
		t.Errorf("the gang goes on: %+v", r)
	}
}

func TestReservedSurplusGoes(t *testing.T) {
	for name, first := range map[string]func(*play, *corev1.Pod){
		"the plugin hears of it first": func(p *play, pod *corev1.Pod) { p.gone(pod); p.unreserve(pod) },
		"the scheduler takes it back first": func(p *play, pod *corev1.Pod) {
			if err := p.handle.SharedInformerFactory().Core().V1().Pods().Informer().GetStore().Delete(pod); err != nil {
				p.t.Fatal(err)
			}
			p.unreserve(pod)
			p.podDeleted(p.logger, pod)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, pods := elastic(t)
			p.follow(pods[0])
			first(p, pods[0])
			p.follow(pods[1])
			if !p.follow(pods[2]) {
				t.Error("the gang waits for a member that is gone")
			}
			if got := p.gangs.placedNodes(testKey); len(got) != 2 || got[pods[0].UID] != "" {
				t.Errorf("on their way: %v", got)
			}
			if n := p.gangs.byKey[testKey].leaving.Len(); n != 0 {
				t.Errorf("%d members are about to be taken back for ever", n)
			}
		})
	}
}

func (p *play) unreserve(pod *corev1.Pod) {
	p.Unreserve(p.ctx, framework.NewCycleState(), pod, "")
}

func TestGangLetsGoOfAMemberThatItNeeds(t *testing.T) {
	p, pods := elastic(t)
	p.follow(pods[0])
	p.gone(pods[1])
	p.gone(pods[2])
	if r := p.gangs.refusalOf(testKey); r == nil || r.reason != ReasonLetGo {
		t.Errorf("the gang goes on with less than its minimum: %+v", r)
	}
	if status := p.handle.WaitOnPermit(p.ctx, pods[0]); !status.IsRejected() {
		t.Errorf("a member binds alone: %v", status)
	}
}

func TestSurplusIsNotDroppedWhileAnotherIsAboutToWait(t *testing.T) {
	g := newGangs()
	c := testCommit(3)
	c.need = 2
	g.begin(testKey, c)
	g.reserve(testKey, stage.UID(0), "0")
	g.reserve(testKey, stage.UID(1), "1")
	waits := map[types.UID]bool{stage.UID(0): true}
	if gone, _ := g.without(testKey, stage.UID(2), func(uid types.UID) bool { return waits[uid] }); gone != nil {
		t.Fatal("nobody would let the other member go on")
	}
	if len(c.seats) != 3 {
		t.Error("the seat is gone all the same")
	}
	waits[stage.UID(1)] = true
	gone, last := g.without(testKey, stage.UID(2), func(uid types.UID) bool { return waits[uid] })
	waiting, done, known := g.complete(testKey, "", func(uid types.UID) bool { return waits[uid] })
	if gone == nil || !last || !done || !known || len(waiting) != 2 {
		t.Errorf("gone %v, last %v, waiting %v, done %v, known %v", gone, last, waiting, done, known)
	}
}

func TestReplannedMemberThatIsGoneStaysGone(t *testing.T) {
	g := newGangs()
	c := testCommit(3)
	c.need = 2
	g.begin(testKey, c)
	open, _, _ := g.replan(testKey, stage.UID(0))
	g.without(testKey, stage.UID(2), everyone)
	g.reseat(testKey, open)
	if len(c.seats) != 2 {
		t.Errorf("%d seats, one of them of a member that is gone", len(c.seats))
	}
}

// A member that is added later to a gang that has its minimum is placed by itself, or refused without a word on the
// PodGroup, and its leaving changes nothing for the others.
func TestLateSurplusComesAndGoes(t *testing.T) {
	p := newPlay(t, stage.Nodes(3, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(2)
	for i, pod := range pods {
		pods[i] = p.see(pod, with(pod, func(pod *corev1.Pod) { pod.Spec.NodeName = []string{"n0", "n1"}[i] }))
	}
	late := p.see(nil, with(pods[0], func(pod *corev1.Pod) {
		pod.ObjectMeta = metav1.ObjectMeta{Namespace: "ns", Name: "late", UID: "late", Labels: pod.Labels}
		pod.Spec.NodeName = ""
	}))
	if node, why := p.turn(late); node == "" {
		t.Fatalf("no place: %s", why)
	}
	p.gone(late)
	if p.gangs.byKey[testKey].commit != nil {
		t.Error("a commit without members")
	}
	if says := p.report.wanted[testKey]; len(says) != 0 {
		t.Errorf("the PodGroup says %v", says)
	}
}

package coscheduling

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// claim is what a pod would claim on a node.
func (p *play) claim(pod *corev1.Pod, node string) gangplan.Claim {
	p.t.Helper()
	d, err := p.cluster.NewDemand(p.logger, []*corev1.Pod{pod}, 1, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	id, ok := p.cluster.Node(node)
	if !ok {
		p.t.Fatalf("no node %s", node)
	}
	return p.cluster.ClaimFor(d, 0, id)
}

// keep holds a node of 8 GPUs for another gang.
func (p *play) keep(node string, change func(*hold)) holdOwner {
	p.t.Helper()
	owner := holdOwner{types.NamespacedName{Namespace: "ns", Name: "other"}, repairHold}
	h := &hold{claims: []gangplan.Claim{p.claim(stage.Pod(99, 8).Obj(), node)}, until: p.clock.Now().Add(time.Minute)}
	if change != nil {
		change(h)
	}
	p.hold(p.logger, owner, h)
	return owner
}

// filter asks the plugin whether a pod may use a node, in the way that the framework does.
func (p *play) filter(pod *corev1.Pod, node string) *fwk.Status {
	p.t.Helper()
	id, _ := p.cluster.Node(node)
	info := p.cluster.Info(id)
	state := framework.NewCycleState()
	if _, status := p.PreFilter(p.ctx, state, pod, p.nodes); status.IsSkip() {
		return nil
	}
	return p.Filter(p.ctx, state, pod, info)
}

func TestGangIsPlannedBesideHolds(t *testing.T) {
	tests := []struct {
		name   string
		change func(*hold)
		group  map[string]string
		pod    func(*st.PodWrapper) *st.PodWrapper
		passed time.Duration
		own    bool
		want   bool
	}{
		{name: "held", want: false},
		{name: "held for itself", own: true, want: true},
		{name: "held for less important gangs", pod: func(w *st.PodWrapper) *st.PodWrapper { return w.Priority(1) }, want: true},
		{name: "held for as important ones", change: func(h *hold) { h.priority = 1 }, pod: func(w *st.PodWrapper) *st.PodWrapper { return w.Priority(1) }, want: false},
		{name: "its time is over", passed: time.Minute, want: true},
		{
			name:   "admitted for its run time",
			change: func(h *hold) { h.admits = func(c candidate) bool { return c.runTime == time.Hour } },
			group:  map[string]string{podgroup.RunTimeAnnotation: "1h"},
			want:   true,
		},
		{
			name:   "not admitted: it runs too long",
			change: func(h *hold) { h.admits = func(c candidate) bool { return c.runTime == time.Hour } },
			group:  map[string]string{podgroup.RunTimeAnnotation: "2h"},
			want:   false,
		},
		{
			name:   "admitted because it can be preempted",
			change: func(h *hold) { h.admits = func(c candidate) bool { return c.preemptible } },
			want:   true,
		},
		{
			name:   "not preemptible",
			change: func(h *hold) { h.admits = func(c candidate) bool { return c.preemptible } },
			group:  map[string]string{podgroup.PreemptibleAnnotation: "false"},
			want:   false,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := newPlay(t, stage.Nodes(2, 8)...)
			group := p.group(2)
			group.Annotations = test.group
			if test.own {
				p.hold(p.logger, holdOwner{testKey, repairHold}, &hold{claims: []gangplan.Claim{p.claim(stage.Pod(99, 8).Obj(), "n0")}, until: p.clock.Now().Add(time.Minute)})
			} else {
				p.keep("n0", test.change)
			}
			p.clock.Step(test.passed)
			pods := stage.Pods(2, 8, func(w *st.PodWrapper) *st.PodWrapper {
				if test.pod != nil {
					w = test.pod(w)
				}
				return w.Label(v1alpha1.GroupLabel, testKey.Name).SchedulerName("test")
			})
			for _, pod := range pods {
				p.see(nil, pod)
			}
			if node, why := p.turn(pods[0]); (node != "") != test.want {
				t.Errorf("planned on %q, refused for %q", node, why)
			}
		})
	}
}

func TestPodsWithoutAGangMindHolds(t *testing.T) {
	p := newPlay(t, stage.Nodes(2, 8)...)
	plain := st.MakePod().Namespace("ns").Name("plain").UID("plain").Req(map[corev1.ResourceName]string{"nvidia.com/gpu": "1"}).Obj()
	cpu := st.MakePod().Namespace("ns").Name("cpu").UID("cpu").Req(map[corev1.ResourceName]string{"cpu": "1"}).Obj()
	important := st.MakePod().Namespace("ns").Name("important").UID("important").Priority(1).Req(map[corev1.ResourceName]string{"nvidia.com/gpu": "1"}).Obj()
	if _, status := p.PreFilter(p.ctx, framework.NewCycleState(), plain, p.nodes); !status.IsSkip() {
		t.Error("a pod without a gang costs something although nothing is held")
	}
	if fragments, status := p.SignPod(p.ctx, plain); len(fragments) != 0 || !status.IsSuccess() {
		t.Errorf("signed with %v, %v", fragments, status)
	}
	owner := p.keep("n0", nil)
	for _, test := range []struct {
		pod   *corev1.Pod
		node  string
		keeps bool
	}{{plain, "n0", true}, {plain, "n1", false}, {cpu, "n0", false}, {important, "n0", false}} {
		status := p.filter(test.pod, test.node)
		if status.IsSuccess() == test.keeps {
			t.Errorf("pod %s on node %s: %v", test.pod.Name, test.node, status)
		}
		if test.keeps && status.Message() != "room on the node is held for a gang (nvidia.com/gpu: 1 needed, 0 left beside what is held)" {
			t.Errorf("it says %q", status.Message())
		}
	}
	a, _ := p.SignPod(p.ctx, plain)
	b, _ := p.SignPod(p.ctx, important)
	if len(a) != 1 || len(b) != 1 || a[0].Value == b[0].Value {
		t.Errorf("pods that holds tell apart are signed %v and %v", a, b)
	}
	p.unhold(p.logger, owner)
	p.mustBeInLine("ns/plain")
	if status := p.filter(plain, "n0"); !status.IsSuccess() {
		t.Errorf("nothing is held, and yet: %v", status)
	}
}

func TestEndOfAHoldPutsGangsInLine(t *testing.T) {
	ends := map[string]func(*play, holdOwner){
		"ended":    func(p *play, owner holdOwner) { p.unhold(p.logger, owner) },
		"over":     func(p *play, _ holdOwner) { p.clock.Step(time.Minute) },
		"replaced": func(p *play, owner holdOwner) { p.hold(p.logger, owner, &hold{until: p.clock.Now().Add(time.Hour)}) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, stage.Nodes(2, 8)...)
			p.group(2)
			owner := p.keep("n1", nil)
			pods := p.wholeNodeMembers(2)
			if node, _ := p.turn(pods[0]); node != "" {
				t.Fatalf("planned on held room, on %s", node)
			}
			clear(p.activated)
			end(p, owner)
			p.mustBeInLine("ns/" + pods[0].Name)
			if node, why := p.turn(pods[0]); node == "" {
				t.Errorf("still refused: %s", why)
			}
		})
	}
}

func TestOlderHoldDoesNotEndItsSuccessor(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	owner := p.keep("n0", nil)
	p.clock.Step(30 * time.Second)
	p.keep("n0", nil)
	p.clock.Step(30 * time.Second)
	if p.holds.of(owner) == nil {
		t.Error("the time of the first hold ended the second")
	}
	p.clock.Step(30 * time.Second)
	if p.holds.of(owner) != nil || !p.holds.empty() {
		t.Error("a hold outlives its time")
	}
}

// Whatever holds begin and end in whatever order, what is to be left alone is the sum of those that bind.
func TestHoldsAddUp(t *testing.T) {
	now := time.Unix(0, 0)
	rapid.Check(t, func(t *rapid.T) {
		s, model := newHolds(), map[holdOwner]*hold{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			owner := holdOwner{types.NamespacedName{Name: fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "gang"))}, holdKind(rapid.IntRange(0, 2).Draw(t, "kind"))}
			var h *hold
			if rapid.IntRange(0, 3).Draw(t, "end") > 0 {
				h = &hold{priority: int32(rapid.IntRange(0, 2).Draw(t, "priority")), until: now.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "until")))}
				for range rapid.IntRange(0, 3).Draw(t, "claims") {
					h.claims = append(h.claims, gangplan.Claim{Node: fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "node"))})
				}
				model[owner] = h
			} else {
				delete(model, owner)
			}
			s.set(owner, h)
		}
		c := candidate{gang: types.NamespacedName{Name: "1"}, priority: 1}
		all, byNode := 0, map[string]int{}
		for owner, h := range model {
			if owner.gang != c.gang && h.priority >= 1 && now.Before(h.until) {
				all += len(h.claims)
				for _, claim := range h.claims {
					byNode[claim.Node]++
				}
			}
		}
		if got := s.against(c, now); len(got) != all {
			t.Errorf("%d claims, want %d", len(got), all)
		}
		for node := range 3 {
			if got := s.onNode(fmt.Sprint(node), c, now); len(got) != byNode[fmt.Sprint(node)] {
				t.Errorf("%d claims on node %d, want %d", len(got), node, byNode[fmt.Sprint(node)])
			}
		}
		if !slices.IsSortedFunc(s.order, holdOwner.compare) || len(s.order) != len(model) || s.empty() != (len(model) == 0) {
			t.Errorf("order is %v for %d holds", s.order, len(model))
		}
		for owner := range model {
			s.set(owner, nil)
		}
		if len(s.byNode) != 0 || len(s.order) != 0 {
			t.Errorf("nothing is held, and yet %v", s.byNode)
		}
	})
}

func TestActiveDeadline(t *testing.T) {
	short := st.MakePod().Obj()
	short.Spec.ActiveDeadlineSeconds = new(int64)
	*short.Spec.ActiveDeadlineSeconds = 60
	long := short.DeepCopy()
	*long.Spec.ActiveDeadlineSeconds = 90
	if got := activeDeadline([]*corev1.Pod{short, long}); got != 90*time.Second {
		t.Errorf("%v", got)
	}
	if got := activeDeadline([]*corev1.Pod{short, st.MakePod().Obj()}); got != 0 {
		t.Errorf("%v although one pod may run for ever", got)
	}
}

// Nobody tells a pod without a gang that seats were given up, which the scheduler kept it out of.
func TestPodsThatSeatsKeptOutTryAgain(t *testing.T) {
	fits := framework.NewNodeToStatus(map[string]*fwk.Status{}, fwk.NewStatus(fwk.Unschedulable, "too little"))
	never := framework.NewNodeToStatus(map[string]*fwk.Status{}, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "cordoned"))
	for name, test := range map[string]struct {
		priority int32
		statuses *framework.NodeToStatus
		// before is done between the pod's filters and their outcome, and then after that.
		before, then func(*play, []*corev1.Pod)
		want         bool
	}{
		"the gang lets go":                  {0, fits, nil, func(p *play, pods []*corev1.Pod) { p.gone(pods[0]) }, true},
		"it let go meanwhile":               {0, fits, func(p *play, pods []*corev1.Pod) { p.gone(pods[0]) }, nil, true},
		"it goes on":                        {0, fits, nil, nil, false},
		"nodes that are of no use to it":    {0, never, nil, func(p *play, pods []*corev1.Pod) { p.gone(pods[0]) }, false},
		"a pod that did not mind the seats": {1, fits, nil, func(p *play, pods []*corev1.Pod) { p.gone(pods[0]) }, false},
		"the gang preempts no more":         {0, fits, nil, func(p *play, _ []*corev1.Pod) { p.endPreempting(p.logger, testKey, nil, "", "", time.Time{}) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, stage.Nodes(2, 8)...)
			p.group(2)
			pods := p.wholeNodeMembers(2)
			if _, why := p.turn(pods[1]); why != "" {
				t.Fatal(why)
			}
			if name == "the gang preempts no more" {
				c := p.gangs.byKey[testKey].commit
				p.gangs.byKey[testKey].commit, p.gangs.byKey[testKey].preempting = nil, &preempting{seats: c.seats}
			}
			p.inLine()
			plain := stage.Pod(50, 8).Priority(test.priority).Obj()
			state := framework.NewCycleState()
			p.PreFilter(p.ctx, state, plain, p.nodes)
			if test.before != nil {
				test.before(p, pods)
			}
			if _, status := p.PostFilter(p.ctx, state, plain, test.statuses); status.Code() != fwk.Unschedulable {
				t.Error(status)
			}
			if test.then != nil {
				test.then(p, pods)
			}
			if got := slices.Contains(p.inLine(), "ns/"+plain.Name); got != test.want {
				t.Errorf("the pod is put in line: %v, want %v", got, test.want)
			}
		})
	}
}

// A gang that is being planned around room when that is given up is tried again.
func TestRoomGivenUpWhileAGangIsPlanned(t *testing.T) {
	for name, giveUp := range map[string]func(*play, holdOwner){
		"held":                func(p *play, owner holdOwner) { p.unhold(p.logger, owner) },
		"kept while it waits": func(p *play, _ holdOwner) { p.endPreempting(p.logger, testKey, nil, "", "", time.Time{}) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, stage.Nodes(1, 8)...)
			owner := p.keep("n0", nil)
			member := stage.Pod(60, 8).Obj()
			p.gangs.preempt(testKey, &preempting{seats: map[types.UID]*seat{member.UID: {pod: member, Claim: p.claim(member, "n0")}}})
			other := p.otherGang(1)[0]
			key, _ := podgroup.Key(other)
			c := p.take(key, other)
			giveUp(p, owner)
			p.inLine()
			p.turnAway(p.ctx, key, other.UID, c, &refusal{})
			p.mustBeInLine("ns/" + other.Name)
		})
	}
}

package coscheduling

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	schedqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
)

// asked is a play with the scheduler's own queue, which counts how often each pod was asked about an event.
type asked struct {
	*play
	queue *schedqueue.PriorityQueue
	hints map[string]int
}

func newAsked(t *testing.T, running []*corev1.Pod, nodes ...*corev1.Node) *asked {
	t.Helper()
	a := &asked{play: newPlayBeside(t, running, nodes...), hints: map[string]int{}}
	registered, err := a.EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hints := schedqueue.QueueingHintMap{}
	for _, e := range registered {
		hints[e.Event] = append(hints[e.Event], &schedqueue.QueueingHintFunction{PluginName: Name, QueueingHintFn: func(logger klog.Logger, pod *corev1.Pod, old, now any) (fwk.QueueingHint, error) {
			a.hints[pod.Name]++
			return e.QueueingHintFn(logger, pod, old, now)
		}})
	}
	// Another plugin waits for pods that come to nodes, as those for affinity and spreading do.
	placed := fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Add}
	hints[placed] = append(hints[placed], &schedqueue.QueueingHintFunction{PluginName: "Other"})
	a.queue = schedqueue.NewTestQueue(a.ctx, a.Less,
		schedqueue.WithClock(a.clock),
		schedqueue.WithPreEnqueuePluginMap(map[string]map[string]fwk.PreEnqueuePlugin{"test": {Name: a.Coscheduling}}),
		schedqueue.WithQueueingHintMapPerProfile(schedqueue.QueueingHintMapPerProfile{"test": hints}))
	a.handle.(interface{ SetPodActivator(fwk.PodActivator) }).SetPodActivator(a.queue)
	return a
}

// take gives the first pod in line its turn, while something may happen, and puts it back. It returns its name.
func (a *asked) take(meanwhile func()) string {
	a.t.Helper()
	entity, err := a.queue.Pop(a.logger)
	if err != nil {
		a.t.Fatal(err)
	}
	info := entity.(*framework.QueuedPodInfo)
	if _, why := a.turn(info.Pod); why == "" {
		a.t.Fatalf("%s has a place", info.Pod.Name)
	}
	if meanwhile != nil {
		meanwhile()
	}
	info.UnschedulablePlugins = sets.New(Name)
	if err := a.queue.AddUnschedulablePodIfNotPresent(a.logger, info, a.queue.SchedulingCycle()); err != nil {
		a.t.Fatal(err)
	}
	return info.Pod.Name
}

// inQueue lists who has a turn to come.
func (a *asked) inQueue() []string {
	var names []string
	for _, pod := range slices.Concat(a.queue.PodsInActiveQ(), a.queue.PodsInBackoffQ()) {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return names
}

// otherTurn is the turn of a pod that is of no gang.
func (a *asked) otherTurn() {
	a.PreFilter(a.ctx, framework.NewCycleState(), stage.Pod(999, 1).Obj(), a.nodes)
}

// wholeNode is a pod that uses a node whole.
func wholeNode(i int) *corev1.Pod {
	return stage.Pod(100+i, 8).Node(fmt.Sprintf("n%d", i)).SchedulerName("test").Obj()
}

// newRefused is two full nodes and a gang of two whose members were all told that there is no room. The turn of the
// first was while something happened.
func newRefused(t *testing.T, meanwhile func(*asked)) *asked {
	t.Helper()
	a := newAsked(t, []*corev1.Pod{wholeNode(0), wholeNode(1)}, stage.Nodes(2, 8)...)
	a.group(2)
	for _, pod := range a.wholeNodeMembers(2) {
		a.queue.Add(a.ctx, pod)
	}
	a.take(func() {
		if meanwhile != nil {
			meanwhile(a)
		}
	})
	a.take(nil)
	a.otherTurn()
	return a
}

// ends shows the scheduler's queue that a pod on a node is gone.
func (a *asked) ends(pod *corev1.Pod) {
	a.queue.MoveAllToActiveOrBackoffQueue(a.logger, framework.EventAssignedPodDelete, pod, nil, nil)
}

// Pods that are bound are not put to members that wait, and what helps their gang wakes the one that stands for it.
func TestWaitingMembersAreAskedOnlyWhatCouldHelp(t *testing.T) {
	a := newRefused(t, nil)
	if got := a.inQueue(); len(got) > 0 {
		t.Fatalf("%v in line after the verdict", got)
	}
	for _, name := range []string{"m-0", "m-1"} {
		if info, ok := a.queue.GetPod(name, "ns", nil); !ok || !info.Gated() {
			t.Errorf("%s is not kept out of line", name)
		}
	}
	for range 10 {
		a.queue.MoveAllToActiveOrBackoffQueue(a.logger, framework.EventAssignedPodAdd, nil, stage.Pod(50, 0).Node("n0").Obj(), nil)
	}
	if len(a.hints) > 0 || len(a.inQueue()) > 0 {
		t.Errorf("members were asked about pods that were bound: %v, %v in line", a.hints, a.inQueue())
	}
	a.ends(wholeNode(0))
	if got := a.inQueue(); len(got) > 0 {
		t.Errorf("%v in line for half of the room", got)
	}
	a.ends(wholeNode(1))
	if got := a.inQueue(); !slices.Equal(got, []string{"m-0"}) {
		t.Errorf("%v in line for all of the room, want the representative", got)
	}
}

// Where the queue does not ask PreEnqueue before the backoff nobody is kept out of line: it may have been called meanwhile.
func TestNobodyIsSetAsideWithoutPopFromBackoffQ(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.SchedulerPopFromBackoffQ, false)
	a := newRefused(t, nil)
	for _, name := range []string{"m-0", "m-1"} {
		if info, ok := a.queue.GetPod(name, "ns", nil); !ok || info.Gated() {
			t.Errorf("%s is kept out of line", name)
		}
	}
}

// What happens during the turn in which a gang is refused is not lost.
func TestRoomThatComesDuringTheTurnWakesTheGang(t *testing.T) {
	a := newRefused(t, func(a *asked) {
		a.ends(wholeNode(0))
		a.ends(wholeNode(1))
	})
	if got := a.inQueue(); !slices.Equal(got, []string{"m-0"}) {
		t.Errorf("%v in line, want the representative", got)
	}
}

// Whoever is activated comes into line, the member whose own rules change does, and after five minutes anybody.
func TestWhatPutsMembersInLineAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		happen func(*asked)
		want   []string
	}{
		{"nothing", func(*asked) {}, nil},
		{"the representative is activated", func(a *asked) { a.activateRepresentative(a.logger, testKey) }, []string{"m-0"}},
		{"all are activated", func(a *asked) { a.activateMembers(a.logger, testKey) }, []string{"m-0", "m-1"}},
		{"a member has another toleration", func(a *asked) {
			old := a.waitingPods(testKey, func(*podgroup.Member) bool { return true })[1]
			a.queue.Update(a.ctx, old, a.see(old, with(old, func(pod *corev1.Pod) {
				pod.Generation++
				pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			})))
		}, []string{"m-1"}},
		{"five minutes", func(a *asked) {
			a.clock.Step(5 * time.Minute)
			a.queue.MoveAllToActiveOrBackoffQueue(a.logger, framework.EventUnschedulableTimeout, nil, nil, nil)
		}, []string{"m-0", "m-1"}},
		{"three minutes", func(a *asked) {
			a.clock.Step(3 * time.Minute)
			a.queue.MoveAllToActiveOrBackoffQueue(a.logger, framework.EventUnschedulableTimeout, nil, nil, nil)
		}, nil},
		{"another verdict", func(a *asked) {
			r := *a.gangs.refusalOf(testKey)
			r.aside = nil
			a.gangs.refuse(testKey, &r)
			a.queue.MoveAllToActiveOrBackoffQueue(a.logger, framework.EventUnschedulableTimeout, nil, nil, nil)
		}, []string{"m-0", "m-1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newRefused(t, nil)
			c.happen(a)
			if got := a.inQueue(); !slices.Equal(got, c.want) {
				t.Errorf("%v in line, want %v", got, c.want)
			}
		})
	}
}

// A gang that a filter had a part in refusing is tried again for pods that come to nodes, less often each time.
func TestGangRefusedByFiltersIsTriedForPodsThatCome(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(2)
	refuse := func(learned bool) {
		p.gangs.refuse(testKey, &refusal{reason: ReasonUnschedulable, learned: learned, representative: pods[0].UID,
			members: map[types.UID]version{pods[0].UID: {}, pods[1].UID: {}}})
		p.inLine()
	}
	bound := stage.Pod(50, 0).Node("n0").Obj()
	relabelled := with(bound, func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "other"} })
	refuse(false)
	p.sighted(p.logger, nil, bound)
	p.clock.Step(time.Minute)
	p.mustBeInLine()
	refuse(true)
	p.sighted(p.logger, nil, stage.Pod(51, 0).Obj())
	p.sighted(p.logger, bound, with(bound, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning }))
	p.clock.Step(time.Minute)
	p.mustBeInLine()
	for _, change := range []struct{ old, now *corev1.Pod }{{nil, bound}, {stage.Pod(50, 0).Obj(), bound}, {bound, relabelled}} {
		for range 3 {
			p.sighted(p.logger, change.old, change.now)
		}
		p.mustBeInLine()
		times := p.gangs.byKey[testKey].pauses
		p.clock.Step(retryAfter(times) - time.Millisecond)
		p.mustBeInLine()
		p.clock.Step(time.Millisecond)
		p.mustBeInLine("ns/m-0")
	}
	if got := p.gangs.byKey[testKey].pauses; got != 3 {
		t.Errorf("%d pauses, want one for each change", got)
	}
}

// A pod that came to a node after the snapshot was made by which a gang is refused is not overlooked.
func TestPodThatComesDuringTheTurnOfAGangRefusedByFilters(t *testing.T) {
	for _, came := range []bool{false, true} {
		p := newPlay(t, stage.Nodes(1, 8)...)
		p.group(2)
		pods := p.wholeNodeMembers(2)
		for range 2 {
			if _, why := p.turn(pods[0]); why == "" {
				t.Fatal("two members on one node")
			}
		}
		p.inLine()
		if came {
			p.sighted(p.logger, nil, stage.Pod(50, 0).Node("n0").Obj())
		}
		c := p.take(testKey, pods[0])
		p.turnAway(p.ctx, testKey, pods[0].UID, c, &refusal{reason: ReasonUnschedulable, learned: true})
		p.clock.Step(retryAfter(1))
		if got := len(p.inLine()) > 0; got != came {
			t.Errorf("a pod came: %v; the gang is tried again: %v", came, got)
		}
	}
}

package coscheduling

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	policylisters "k8s.io/client-go/listers/policy/v1"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/muster-sched/muster/plugins/preemption"
	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// raid is a play in which every node is full of a pod of priority 0, and a gang of priority 100 comes.
type raid struct {
	*play
	low     []*corev1.Pod
	members []*corev1.Pod
	// deleted are the pods that the API server was told to delete, and refuse is its answer.
	deleted []string
	refuse  error
}

func newRaid(t *testing.T, nodes, minMember int, change func(*st.PodWrapper)) *raid {
	t.Helper()
	r := &raid{}
	for i := range nodes {
		r.low = append(r.low, stage.Pod(100+i, 8).Node(fmt.Sprintf("n%d", i)).Priority(0).TerminationGracePeriodSeconds(30).Obj())
	}
	r.play = newPlayBeside(t, r.low, stage.Nodes(nodes, 8)...)
	r.background = func(do func()) { do() }
	r.evictor = preemption.NewEvictor(r.handle, r.background)
	client := r.handle.ClientSet().(*clientsetfake.Clientset)
	for _, pod := range r.low {
		if err := client.Tracker().Add(pod); err != nil {
			t.Fatal(err)
		}
		r.priorities.Update(pod)
	}
	client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if a := action.(clienttesting.DeleteActionImpl); len(a.DeleteOptions.DryRun) == 0 {
			r.deleted = append(r.deleted, a.Name)
			return true, nil, nil
		}
		return true, nil, r.refuse
	})
	r.group(int32(minMember))
	r.members = stage.Pods(minMember, 8, func(p *st.PodWrapper) *st.PodWrapper {
		p.Label(v1alpha1.GroupLabel, testKey.Name).SchedulerName("test").Priority(100)
		if change != nil {
			change(p)
		}
		return p
	})
	for _, pod := range r.members {
		r.see(nil, pod)
	}
	r.inLine()
	return r
}

// mustWait gives the first member its turn, and checks that its gang waits for pods to end.
func (r *raid) mustWait() string {
	r.t.Helper()
	node, why := r.turn(r.members[0])
	if node != "" {
		r.t.Fatalf("has node %s", node)
	}
	if c := r.condition(v1alpha1.ConditionPreempting); c.status != metav1.ConditionTrue || !strings.HasSuffix(why, c.message) {
		r.t.Fatalf("member is told %q, condition %+v", why, c)
	}
	return why
}

func (r *raid) condition(kind string) report { return r.report.wanted[testKey][kind] }

// end takes a low pod off its node, in the snapshot and as an event.
func (r *raid) end(i int) fwk.QueueingHint {
	r.t.Helper()
	snapshot := r.handle.MutableSnapshotSharedLister()
	if err := snapshot.StartMutations(); err != nil {
		r.t.Fatal(err)
	}
	if err := snapshot.RemovePod(r.logger, r.low[i], r.low[i].Spec.NodeName); err != nil {
		r.t.Fatal(err)
	}
	r.nodes, _ = snapshot.NodeInfos().List()
	r.snapshotIs(r.nodes)
	r.priorities.Delete(r.low[i].UID)
	r.evictor.Gone(r.low[i].UID)
	hint, err := r.podHelps(r.logger, r.members[0], r.low[i], nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return hint
}

// snapshotIs makes the framework's snapshot have these entries for good.
func (r *raid) snapshotIs(nodes []fwk.NodeInfo) {
	// A mutation that is never ended would be in the way of the next.
	r.handle = &resnapped{Framework: r.handle, fresh: stage.Snapshot(r.t, nodes)}
}

type resnapped struct {
	framework.Framework
	fresh fwk.MutableSnapshotSharedLister
}

func (r *resnapped) SnapshotSharedLister() fwk.SharedLister { return r.fresh }

func (r *resnapped) MutableSnapshotSharedLister() fwk.MutableSnapshotSharedLister { return r.fresh }

// nominated are the members for which a node is kept.
func (r *raid) nominated() []string {
	var names []string
	for _, pod := range r.members {
		if node := r.gangs.nominatedNode(testKey, pod.UID); node != "" {
			names = append(names, pod.Name+" on "+node)
		}
	}
	return names
}

func TestAGangPreemptsAndWaits(t *testing.T) {
	r := newRaid(t, 3, 2, nil)
	why := r.mustWait()
	if len(r.deleted) != 2 {
		t.Fatalf("deleted: %v", r.deleted)
	}
	for _, words := range []string{"preempting pod ns/m-10", "(priority 0)", "2 pods are to end, until 2026-03-01T12:01:30Z at the latest"} {
		if !strings.Contains(why, words) {
			t.Errorf("%q does not contain %q", why, words)
		}
	}
	if c := r.condition(v1alpha1.ConditionUnschedulable); c.status != metav1.ConditionTrue || c.reason != ReasonPreempting || c.message != why {
		t.Errorf("condition Unschedulable: %+v", c)
	}
	if got := r.nominated(); len(got) != 2 {
		t.Errorf("nominated: %v", got)
	}
	r.mustBeInLine("ns/m-1") // to say so on its pod
	for _, pod := range r.members {
		result, _ := r.PostFilter(r.ctx, framework.NewCycleState(), pod, framework.NewDefaultNodeToStatus())
		if !slices.Contains(r.nominated(), pod.Name+" on "+result.NominatedNodeName) {
			t.Errorf("%s is nominated on %q", pod.Name, result.NominatedNodeName)
		}
	}
	if node, why := r.turn(r.members[1]); node != "" || !strings.Contains(why, "preempting") {
		t.Errorf("the other member: %q, %s", node, why)
	}
	// Whatever wakes it, nobody else is evicted.
	for range 3 {
		r.mustWait()
	}
	if len(r.deleted) != 2 {
		t.Errorf("deleted: %v", r.deleted)
	}
}

func TestTheSeatsOfAPreemptingGangAreKept(t *testing.T) {
	r := newRaid(t, 2, 2, nil)
	r.mustWait()
	other := types.NamespacedName{Namespace: "ns", Name: "other"}
	for priority, want := range map[int32]int{99: 2, 100: 2, 101: 0} {
		if got := r.gangs.held(other, priority); len(got) != want {
			t.Errorf("a gang of priority %d must leave %d seats alone, want %d", priority, len(got), want)
		}
	}
	if got := r.gangs.held(testKey, 100); len(got) != 0 {
		t.Errorf("the gang itself must leave %d seats alone", len(got))
	}
}

func TestTheLastVictimStartsTheGang(t *testing.T) {
	r := newRaid(t, 2, 2, nil)
	r.mustWait()
	r.inLine()
	r.end(0)
	if got := r.inLine(); len(got) != 0 {
		t.Errorf("in line with a victim left: %v", got)
	}
	if hint := r.end(1); hint != fwk.Queue {
		t.Errorf("hint %v", hint)
	}
	r.mustBeInLine("ns/m-0")
	for i, pod := range r.members {
		if binds := r.follow(pod); binds != (i == 1) {
			t.Errorf("%s binds: %v", pod.Name, binds)
		}
	}
	if c := r.condition(v1alpha1.ConditionPreempting); c.status != metav1.ConditionFalse || c.reason != ReasonPlaced {
		t.Errorf("condition Preempting: %+v", c)
	}
	if got := r.gangs.held(types.NamespacedName{}, 0); len(got) != 0 {
		t.Errorf("%d seats are still held", len(got))
	}
}

// The seats that it kept elsewhere are free then, of which nobody else tells.
func TestAGangThatStartsElsewherePutsOthersInLine(t *testing.T) {
	for kept, want := range map[string]bool{"n0": true, "n1": false} {
		r := newRaid(t, 2, 1, nil)
		r.mustWait()
		r.gangs.preemptingOf(testKey).seats[r.members[0].UID].Node = kept
		waiting := stage.Pod(9, 8).Label(v1alpha1.GroupLabel, "other").SchedulerName("test").Obj()
		r.see(nil, waiting)
		r.gangs.refuse(types.NamespacedName{Namespace: "ns", Name: "other"}, &refusal{representative: waiting.UID})
		r.inLine()
		r.end(1)
		r.inLine()
		if node, why := r.turn(r.members[0]); node != "n1" {
			t.Fatalf("node %q, %s", node, why)
		}
		if got := slices.Contains(r.inLine(), "ns/"+waiting.Name); got != want {
			t.Errorf("with a seat kept on %s the other gang is in line: %v", kept, got)
		}
	}
}

func TestVictimsThatDoNotEndAreNotWaitedForForEver(t *testing.T) {
	r := newRaid(t, 2, 2, nil)
	r.mustWait()
	r.inLine()
	r.clock.Step(30*time.Second + overdue)
	r.mustBeInLine("ns/m-0")
	if c := r.condition(v1alpha1.ConditionPreempting); c.status != metav1.ConditionFalse || c.reason != ReasonGaveUp {
		t.Errorf("condition Preempting: %+v", c)
	}
	if got := r.nominated(); len(got) != 0 {
		t.Errorf("nominated: %v", got)
	}
	if got := r.gangs.held(types.NamespacedName{}, 0); len(got) != 0 {
		t.Errorf("%d seats are held", len(got))
	}
	if _, why := r.turn(r.members[0]); !strings.Contains(why, "preempts nobody before 2026-03-01T12:02:00Z") {
		t.Errorf("at once: %s", why)
	}
}

func TestAnEvictionThatIsRefusedLetsGo(t *testing.T) {
	r := newRaid(t, 2, 2, nil)
	r.refuse = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "m-100", errors.New("a policy"))
	if _, why := r.turn(r.members[0]); why == "" {
		t.Fatal("has a place")
	}
	if len(r.deleted) != 0 {
		t.Errorf("deleted: %v", r.deleted)
	}
	c := r.condition(v1alpha1.ConditionPreempting)
	if c.status != metav1.ConditionFalse || c.reason != ReasonEvictionFailed || !strings.Contains(c.message, "evicting pod ns/m-100") {
		t.Errorf("condition Preempting: %+v", c)
	}
	if got := r.nominated(); len(got) != 0 {
		t.Errorf("nominated: %v", got)
	}
	// It rests longer each time, and then tries again.
	r.refuse = nil
	if _, why := r.turn(r.members[0]); !strings.Contains(why, "preempts nobody before 2026-03-01T12:00:30Z") {
		t.Errorf("at once: %s", why)
	}
	r.inLine()
	r.clock.Step(firstRest)
	r.mustBeInLine("ns/m-0")
	r.mustWait()
	if len(r.deleted) != 2 {
		t.Errorf("deleted: %v", r.deleted)
	}
}

func TestRestsBetweenVainPreemptions(t *testing.T) {
	g := newGangs()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		g.preempt(testKey, &preempting{evicts: true})
		g.stopPreempting(testKey, nil, at)
		if got := g.preemptsFrom(testKey).Sub(at); got != want {
			t.Errorf("after %d: %v, want %v", i+1, got, want)
		}
	}
	g = newGangs()
	g.preempt(testKey, &preempting{})
	g.stopPreempting(testKey, nil, at)
	if got := g.preemptsFrom(testKey); !got.IsZero() {
		t.Errorf("a gang that evicted nobody rests until %v", got)
	}
}

func TestWhoeverIsNoMemberAnyMoreEndsThePreemption(t *testing.T) {
	for name, change := range map[string]func(*raid){
		"a member is deleted":  func(r *raid) { r.podDeleted(r.logger, r.members[1]) },
		"the group is deleted": func(r *raid) { r.groupDeleted(r.logger, r.Coscheduling.group(testKey)) },
		"another topology":     func(r *raid) { r.ask(map[string]string{"muster.dev/required-topology": "kubernetes.io/hostname"}) },
		"a member fails": func(r *raid) {
			r.see(r.members[0], with(r.members[0], func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))
		},
		"a member leaves it": func(r *raid) { r.see(r.members[0], with(r.members[0], func(p *corev1.Pod) { p.Labels = nil })) },
	} {
		r := newRaid(t, 2, 2, nil)
		r.mustWait()
		change(r)
		if got := r.gangs.held(types.NamespacedName{}, 0); len(got) != 0 {
			t.Errorf("%s: %d seats are held", name, len(got))
		}
		if got := r.nominated(); len(got) != 0 {
			t.Errorf("%s: nominated %v", name, got)
		}
		if c := r.condition(v1alpha1.ConditionPreempting); c.status == metav1.ConditionTrue {
			t.Errorf("%s: condition %+v", name, c)
		}
	}
}

func TestNobodyOfTheSamePriorityIsPreempted(t *testing.T) {
	r := newRaid(t, 2, 2, func(p *st.PodWrapper) { p.Priority(0) })
	looks := &countedBudgets{}
	r.budgets.Lister = looks
	if _, why := r.turn(r.members[0]); why == "" || len(r.deleted) != 0 || looks.n != 0 {
		t.Errorf("%q, deleted %v, candidates are looked for %d times", why, r.deleted, looks.n)
	}
	if c := r.condition(v1alpha1.ConditionUnschedulable); c.reason != ReasonUnschedulable {
		t.Errorf("%+v", c)
	}
}

// A gang that may preempt nobody is told whom it would, in the words of a preemption, and that is looked for no more
// often than what else would help.
func TestAGangThatMayPreemptNobodyIsToldWhomItWould(t *testing.T) {
	r := newRaid(t, 2, 2, func(p *st.PodWrapper) { p.PreemptionPolicy(corev1.PreemptNever) })
	looks := &countedBudgets{}
	r.budgets.Lister = looks
	const want = "preemptionPolicy Never, so that nobody of lower priority is preempted; it would fit by preempting " +
		"pod ns/m-100 (priority 0) and pod ns/m-101 (priority 0), the least that makes room"
	for i, looked := range []int{1, 1, 2} {
		_, why := r.turn(r.members[0])
		if !strings.Contains(why, want) || len(r.deleted) != 0 {
			t.Errorf("turn %d: %q, deleted %v", i, why, r.deleted)
		}
		if c := r.condition(v1alpha1.ConditionUnschedulable); c.reason != ReasonUnschedulable || !strings.Contains(c.message, want) {
			t.Errorf("turn %d: %+v", i, c)
		}
		if c := r.condition(v1alpha1.ConditionPreempting); c.status == metav1.ConditionTrue {
			t.Errorf("turn %d: %+v", i, c)
		}
		if looks.n != looked {
			t.Errorf("turn %d: looked for candidates %d times, want %d", i, looks.n, looked)
		}
		r.clock.Step(adviceAge / 2)
	}
}

// countedBudgets counts how often candidates are looked for.
type countedBudgets struct {
	policylisters.PodDisruptionBudgetLister
	n int
}

func (b *countedBudgets) List(labels.Selector) ([]*policyv1.PodDisruptionBudget, error) {
	b.n++
	return nil, nil
}

func TestMembersOfDifferentPreemptionPolicies(t *testing.T) {
	r := newRaid(t, 2, 2, func(p *st.PodWrapper) {
		if p.Obj().UID == stage.UID(1) {
			p.PreemptionPolicy(corev1.PreemptNever)
		}
	})
	_, why := r.turn(r.members[0])
	if want := `all members of a gang need one preemptionPolicy: pod "m-0" has PreemptLowerPriority, pod "m-1" has Never`; why != want {
		t.Errorf("%q, want %q", why, want)
	}
	if c := r.condition(v1alpha1.ConditionUnschedulable); c.reason != ReasonMembersDisagree {
		t.Errorf("%+v", c)
	}
}

// A scheduler that starts while victims of the last one are ending evicts nobody else.
func TestAfterARestartEndingPodsAreWaitedFor(t *testing.T) {
	r := newRaid(t, 3, 2, nil)
	for i := range 2 {
		r.low[i].DeletionTimestamp = &metav1.Time{Time: r.clock.Now().Add(10 * time.Minute)}
	}
	why := r.mustWait()
	if len(r.deleted) != 0 {
		t.Errorf("deleted: %v", r.deleted)
	}
	if !strings.Contains(why, "waiting for 2 pods on their way out already") || !strings.Contains(why, "until 2026-03-01T12:11:00Z") {
		t.Errorf("why: %s", why)
	}
	if got := r.nominated(); !slices.Equal(got, []string{"m-0 on n0", "m-1 on n1"}) {
		t.Errorf("nominated: %v", got)
	}
}

func TestMembersBeyondTheMinimumPreemptNobody(t *testing.T) {
	r := newRaid(t, 2, 2, nil)
	bound := stage.Pods(4, 8, func(p *st.PodWrapper) *st.PodWrapper {
		return p.Label(v1alpha1.GroupLabel, testKey.Name).SchedulerName("test").Priority(100)
	})[2:]
	for i, pod := range bound {
		pod.Spec.NodeName = fmt.Sprintf("elsewhere-%d", i)
		r.see(nil, pod)
	}
	if _, why := r.turn(r.members[0]); why == "" || len(r.deleted) != 0 {
		t.Errorf("%q, deleted %v", why, r.deleted)
	}
}

// placedElsewhere adds a third member to the gang, which somebody else has placed.
func (r *raid) placedElsewhere() *corev1.Pod {
	r.t.Helper()
	placed := stage.Pods(3, 8, func(p *st.PodWrapper) *st.PodWrapper {
		return p.Label(v1alpha1.GroupLabel, testKey.Name).SchedulerName("test").Priority(100)
	})[2]
	placed.Spec.NodeName = "elsewhere"
	return r.see(nil, placed)
}

// The minimum may become less, or members be placed by somebody else, while the gang waits for its victims.
func TestAGangThatComesToHaveItsMinimumKeepsNoRoom(t *testing.T) {
	r := newRaid(t, 2, 2, nil)
	r.mustWait()
	r.placedElsewhere()
	r.group(1)
	if node, why := r.turn(r.members[0]); node != "" || why == "" {
		t.Fatalf("node %q, %q", node, why)
	}
	if got := r.nominated(); len(got) != 0 {
		t.Errorf("nominated: %v", got)
	}
	if got := r.gangs.held(types.NamespacedName{}, 0); len(got) != 0 {
		t.Errorf("%d seats are held", len(got))
	}
	if c := r.condition(v1alpha1.ConditionPreempting); c.status != metav1.ConditionFalse {
		t.Errorf("condition %+v", c)
	}
	if got := r.gangs.preemptsFrom(testKey); !got.IsZero() {
		t.Errorf("it rests until %v as if it had preempted in vain", got)
	}
}

// Its other members could not use the room, however soon it is there.
func TestAGangThatBecomesIncompleteKeepsNoRoom(t *testing.T) {
	r := newRaid(t, 2, 2, nil)
	placed := r.placedElsewhere()
	r.group(3)
	r.mustWait()
	r.podDeleted(r.logger, placed)
	r.clock.Step(incompleteGrace / 2)
	if got := r.nominated(); len(got) != 2 {
		t.Errorf("nominated while it may be replaced: %v", got)
	}
	r.clock.Step(incompleteGrace)
	if got := r.gangs.held(types.NamespacedName{}, 0); len(got) != 0 {
		t.Errorf("%d seats are held", len(got))
	}
	if c := r.condition(v1alpha1.ConditionPreempting); c.status != metav1.ConditionFalse || c.reason != ReasonMembersChanged {
		t.Errorf("condition %+v", c)
	}
}

// A gang that is made anew waits for its own pods to end, and evicts nobody in their stead.
func TestPreemptorAwaitsItsOwnPods(t *testing.T) {
	old := stage.Pod(90, 8).Label(v1alpha1.GroupLabel, testKey.Name).SchedulerName("test").Priority(100).Node("n1").TerminationGracePeriodSeconds(30).Obj()
	r := newRaid(t, 1, 1, nil)
	old.DeletionTimestamp = &metav1.Time{Time: r.clock.Now().Add(10 * time.Second)}
	r.handle, r.nodes = stage.NewFramework(t, append(r.low, old), stage.Nodes(2, 8)...)
	r.handle.(interface{ SetPodActivator(fwk.PodActivator) }).SetPodActivator(r.play)
	r.evictor = preemption.NewEvictor(r.handle, r.background)
	if why := r.mustWait(); !strings.Contains(why, "waiting for") {
		t.Errorf("member is told %q", why)
	}
	if len(r.deleted) > 0 {
		t.Errorf("%v evicted", r.deleted)
	}
}

// A PodGroup that was deleted and made again between two looks is another one, and knows nothing of what was said before.
func TestPodGroupMadeAgainBetweenTwoLooks(t *testing.T) {
	r := newRaid(t, 2, 2, nil)
	r.mustWait()
	old := r.Coscheduling.group(testKey)
	again := old.DeepCopy()
	again.UID = "again"
	if err := r.groups.Update(again); err != nil {
		t.Fatal(err)
	}
	r.inLine()
	r.groupChanged(r.logger, old, again)
	if r.gangs.preemptingOf(testKey) != nil || len(r.nominated()) > 0 {
		t.Error("room is kept for the one that is gone")
	}
	if says := r.report.wanted[testKey]; len(says) > 0 {
		t.Errorf("the new one says %v", says)
	}
	r.mustBeInLine("ns/m-0", "ns/m-1")
	r.mustWait()
}

package coscheduling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/preemption"
	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// play is a plugin in the in-tree scheduling framework over a fixed snapshot, with the plugin's
// informers and the scheduler's queue played by the test.
type play struct {
	*Coscheduling
	t         testing.TB
	nodes     []fwk.NodeInfo
	ctx       context.Context
	logger    klog.Logger
	clock     *handClock
	activated map[string]*corev1.Pod

	// shown are the bound members that the snapshot shows.
	shown map[types.UID]*corev1.Pod
}

// Activate notes who was put in line.
func (p *play) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	for name, pod := range pods {
		if key, ok := podgroup.Key(pod); ok && p.gangs.isAside(key, pod, p.clock.Now()) {
			continue // the queue would ask PreEnqueue
		}
		p.activated[name] = pod
	}
}

// handClock runs what is due when the test steps it. Unlike the fake clock of k8s.io/utils it lets
// that ask for more.
type handClock struct {
	clock.RealClock
	now time.Duration
	due []alarm
}

type alarm struct {
	at   time.Duration
	ring func()
}

func (c *handClock) AfterFunc(d time.Duration, ring func()) clock.Timer {
	c.due = append(c.due, alarm{c.now + d, ring})
	return nil
}

// Now is some day, and as much later as the test stepped.
func (c *handClock) Now() time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(c.now)
}

func (c *handClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *handClock) Step(d time.Duration) {
	c.now += d
	due := c.due
	c.due = nil
	for _, a := range due {
		if a.at <= c.now {
			a.ring()
		} else {
			c.due = append(c.due, a)
		}
	}
}

func newPlay(t testing.TB, nodes ...*corev1.Node) *play {
	t.Helper()
	return newPlayBeside(t, nil, nodes...)
}

// newPlayBeside is newPlay with pods on the nodes, which the plugin has yet to see.
func newPlayBeside(t testing.TB, pods []*corev1.Pod, nodes ...*corev1.Node) *play {
	t.Helper()
	fw, infos := stage.NewFramework(t, pods, nodes...)
	p := &play{t: t, nodes: infos, clock: &handClock{}, activated: map[string]*corev1.Pod{}}
	p.Coscheduling = &Coscheduling{
		handle: fw, cluster: gangplan.NewCluster(nil), gangs: newGangs(), holds: newHolds(), repairs: newRepairs(),
		background: func(do func()) { go do() },
		priorities: preemption.NewPriorities(),
		budgets:    preemption.Budgets{Lister: fw.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister()},
	}
	p.evictor = preemption.NewEvictor(fw, p.background)
	p.cluster.Sync(infos)
	p.logger, p.ctx = ktesting.NewTestContext(t)
	p.handle.(interface{ SetPodActivator(fwk.PodActivator) }).SetPodActivator(p)
	var err error
	if p.args, err = decodeArgs(nil); err != nil {
		t.Fatal(err)
	}
	p.members, p.groups = podgroup.NewMembership(), cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	p.Coscheduling.clock = p.clock
	p.line = newLine(p.clock, p.args)
	p.provisioning = newProvisioning()
	p.report = &reporter{
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
		wanted:   map[types.NamespacedName]map[string]report{},
		recorder: &events.FakeRecorder{},
	}
	for _, node := range nodes {
		p.showNode(node)
	}
	p.queueing.Store(true)
	return p
}

// showNode shows a node to the scheduler's informer, not to the snapshot.
func (p *play) showNode(node *corev1.Node) {
	p.t.Helper()
	if err := p.handle.SharedInformerFactory().Core().V1().Nodes().Informer().GetStore().Add(node); err != nil {
		p.t.Fatal(err)
	}
}

// group makes the PodGroup of the tests.
func (p *play) group(minMember int32) *v1alpha1.PodGroup {
	p.t.Helper()
	group := &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: testKey.Namespace, Name: testKey.Name}}
	group.Spec.MinMember = minMember
	if err := p.groups.Add(group); err != nil {
		p.t.Fatal(err)
	}
	p.groupChanged(p.logger, nil, group)
	return group
}

// see shows a pod to the scheduler and to the plugin; old is nil for a new one.
func (p *play) see(old, pod *corev1.Pod) *corev1.Pod {
	p.t.Helper()
	if err := p.handle.SharedInformerFactory().Core().V1().Pods().Informer().GetStore().Add(pod); err != nil {
		p.t.Fatal(err)
	}
	p.podChanged(p.logger, old, pod)
	return pod
}

func (p *play) wholeNodeMembers(n int) []*corev1.Pod {
	p.t.Helper()
	pods := stage.Pods(n, 8, func(w *st.PodWrapper) *st.PodWrapper {
		return w.Label(v1alpha1.GroupLabel, testKey.Name).SchedulerName("test")
	})
	for _, pod := range pods {
		p.see(nil, pod)
	}
	return pods
}

// snapshot shows the members of the gang that are bound where they are.
func (p *play) snapshot() {
	p.t.Helper()
	bound := map[types.UID]*corev1.Pod{}
	for _, m := range p.members.Members(testKey) {
		if m.State != podgroup.Bound && m.State != podgroup.Running {
			continue
		}
		pod, err := p.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(m.Namespace).Get(m.Name)
		if err != nil {
			p.t.Fatal(err)
		}
		bound[m.UID] = pod
	}
	for _, info := range p.nodes {
		for uid, pod := range p.shown {
			if bound[uid] == nil && pod.Spec.NodeName == info.Node().Name {
				if err := info.RemovePod(p.logger, pod); err != nil {
					p.t.Fatal(err)
				}
			}
		}
		for uid, pod := range bound {
			if p.shown[uid] == nil && pod.Spec.NodeName == info.Node().Name {
				added, err := framework.NewPodInfo(pod)
				if err != nil {
					p.t.Fatal(err)
				}
				info.AddPodInfo(added)
			}
		}
	}
	p.shown = bound
}

// turn gives a member its turn up to PreFilter and returns its node, or why it has none.
func (p *play) turn(pod *corev1.Pod) (node, why string) {
	p.t.Helper()
	p.snapshot()
	return p.turnBefore(pod)
}

// turnBefore is turn with the snapshot of the last turn.
func (p *play) turnBefore(pod *corev1.Pod) (node, why string) {
	p.t.Helper()
	result, status := p.PreFilter(p.ctx, framework.NewCycleState(), pod, p.nodes)
	if status.Code() == fwk.Error {
		p.t.Fatal(status.AsError())
	}
	if !status.IsSuccess() {
		return "", status.Message()
	}
	return result.NodeNames.UnsortedList()[0], ""
}

// follow gives a member its whole turn, and says whether it may bind now.
func (p *play) follow(pod *corev1.Pod) (binds bool) {
	p.t.Helper()
	node, why := p.turn(pod)
	if why != "" {
		p.t.Fatalf("%s: %s", pod.Name, why)
	}
	if status := p.Reserve(p.ctx, framework.NewCycleState(), pod, node); !status.IsSuccess() {
		p.t.Fatalf("%s: %v", pod.Name, status)
	}
	status, wait := p.Permit(p.ctx, nil, pod, node)
	if status.Code() == fwk.Wait {
		p.handle.AddWaitingPod(pod, map[string]time.Duration{Name: wait})
		return false
	}
	if !status.IsSuccess() {
		p.t.Fatalf("%s: %v", pod.Name, status)
	}
	return true
}

// inLine returns who was put in line since the last call.
func (p *play) inLine() []string {
	names := slices.Sorted(maps.Keys(p.activated))
	clear(p.activated)
	return names
}

func (p *play) mustBeInLine(want ...string) {
	p.t.Helper()
	if got := p.inLine(); !slices.Equal(got, want) {
		p.t.Fatalf("in line: %v, want %v", got, want)
	}
}

func with(pod *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	changed := pod.DeepCopy()
	change(changed)
	return changed
}

func TestMemberBeforeLastIsRejected(t *testing.T) {
	p := newPlay(t, stage.Nodes(3, 8)...)
	p.group(3)
	pods := p.wholeNodeMembers(3)
	p.follow(pods[0])
	p.follow(pods[1])
	// Rejected and away, but not unreserved yet: that may take other plugins a while.
	p.handle.GetWaitingPod(pods[0].UID).Reject("test", "preempted")
	p.handle.WaitOnPermit(p.ctx, pods[0])
	node, _ := p.turn(pods[2])
	p.Reserve(p.ctx, framework.NewCycleState(), pods[2], node)
	if status, _ := p.Permit(p.ctx, nil, pods[2], node); !status.IsRejected() {
		t.Fatalf("the last member binds beside a rejected one: %v", status)
	}
	p.Unreserve(p.ctx, framework.NewCycleState(), pods[2], node)
	p.Unreserve(p.ctx, framework.NewCycleState(), pods[0], node)
	if status := p.handle.WaitOnPermit(p.ctx, pods[1]); !status.IsRejected() {
		t.Fatalf("the other member binds: %v", status)
	}
	// It may not be counted on, although it is not unreserved yet.
	p.clock.Step(firstRetry)
	if p.turn(pods[0]); len(p.gangs.byKey[testKey].commit.seats) != 3 {
		t.Errorf("planned for %d members, want 3", len(p.gangs.byKey[testKey].commit.seats))
	}
}

func TestCommitIsBounded(t *testing.T) {
	p := newPlay(t, stage.Nodes(3, 8)...)
	p.group(3)
	pods := p.wholeNodeMembers(3)
	if _, why := p.turn(pods[0]); why != "" {
		t.Fatal(why)
	}
	p.inLine()
	p.clock.Step(time.Minute)
	if held := p.gangs.held(types.NamespacedName{}, 0); len(held) != 0 {
		t.Fatalf("%d seats are held for members that never come", len(held))
	}
	if _, why := p.turn(pods[0]); why == "" {
		t.Error("planned again at once")
	}
	p.clock.Step(firstRetry)
	p.mustBeInLine("ns/m-0")
	if _, why := p.turn(pods[0]); why != "" {
		t.Error(why)
	}
}

// The framework lets no pod wait at Permit for longer than 15 minutes, and rejects each by itself: a gang whose
// scheduleTimeoutSeconds is longer must be let go before, as a whole.
func TestCommitEndsBeforeTheFrameworksCap(t *testing.T) {
	p := newPlay(t, stage.Nodes(3, 8)...)
	group := p.group(3)
	group.Spec.ScheduleTimeoutSeconds = ptr.To[int32](3600)
	pods := p.wholeNodeMembers(3)
	node, _ := p.turn(pods[0])
	p.Reserve(p.ctx, framework.NewCycleState(), pods[0], node)
	status, wait := p.Permit(p.ctx, nil, pods[0], node)
	if status.Code() != fwk.Wait || wait > 15*time.Minute {
		t.Fatalf("%v, waits for %v", status, wait)
	}
	p.handle.AddWaitingPod(pods[0], map[string]time.Duration{Name: wait})
	p.clock.Step(15*time.Minute - permitGrace - time.Second)
	if p.gangs.refusalOf(testKey) != nil {
		t.Fatal("let go too early")
	}
	p.clock.Step(time.Second)
	if status := p.handle.WaitOnPermit(p.ctx, pods[0]); !status.IsRejected() || !strings.Contains(status.Message(), "14m55s") {
		t.Errorf("after the commit's time: %v", status)
	}
}

// A gang that cannot start does not put its members in line again and again.
func TestStuckGangActivatesNobody(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	p.group(3)
	pods := p.wholeNodeMembers(3)
	if _, why := p.turn(pods[0]); why == "" {
		t.Fatal("three members on one node")
	}
	p.inLine()
	told := p.report.queue.Len()
	for range 10 {
		for _, pod := range pods {
			if _, why := p.turn(pod); why == "" {
				t.Fatal("three members on one node")
			}
			p.PostFilter(p.ctx, nil, pod, framework.NewDefaultNodeToStatus())
			seen := p.see(pod, with(pod, func(pod *corev1.Pod) {
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
			}))
			p.see(seen, pod)
		}
		p.clock.Step(time.Second)
	}
	p.mustBeInLine()
	if now := p.report.queue.Len(); now != told {
		t.Errorf("%d PodGroups are to be written, %d were", now, told)
	}
}

// Whatever becomes of a member, the gang it was part of does not wait for it.
func TestMemberThatWaitsNoMore(t *testing.T) {
	now := metav1.Now()
	for name, end := range map[string]func(p *play, pod *corev1.Pod){
		"deleted": func(p *play, pod *corev1.Pod) { p.podDeleted(p.logger, pod) },
		"being deleted": func(p *play, pod *corev1.Pod) {
			p.see(pod, with(pod, func(pod *corev1.Pod) { pod.DeletionTimestamp = &now }))
		},
		"failed": func(p *play, pod *corev1.Pod) {
			p.see(pod, with(pod, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }))
		},
		"bound by somebody else": func(p *play, pod *corev1.Pod) {
			p.see(pod, with(pod, func(pod *corev1.Pod) { pod.Spec.NodeName = "n0" }))
		},
		"made again under its name": func(p *play, pod *corev1.Pod) {
			p.see(pod, with(pod, func(pod *corev1.Pod) { pod.UID = "another" }))
		},
		"no longer a member": func(p *play, pod *corev1.Pod) {
			p.see(pod, with(pod, func(pod *corev1.Pod) { delete(pod.Labels, v1alpha1.GroupLabel) }))
		},
	} {
		for member := range 3 {
			t.Run(fmt.Sprintf("member %d of a refused gang is %s", member, name), func(t *testing.T) {
				p := newPlay(t, stage.Nodes(1, 8)...)
				p.group(2)
				pods := p.wholeNodeMembers(3)
				if _, why := p.turn(pods[0]); why == "" {
					t.Fatal("two members on one node")
				}
				p.inLine()
				end(p, pods[member])
				line := p.inLine()
				if len(line) == 0 {
					t.Fatal("nobody tries again")
				}
				tries := p.activatedMember(line[0])
				if v := p.gangs.verdictFor(testKey, tries.UID); v.refused != nil {
					t.Errorf("%s is in line, and refused unheard", line[0])
				}
			})
		}
		t.Run("member of a commit is "+name, func(t *testing.T) {
			p := newPlay(t, stage.Nodes(3, 8)...)
			p.group(3)
			pods := p.wholeNodeMembers(3)
			p.follow(pods[0])
			end(p, pods[1])
			if held := p.gangs.held(types.NamespacedName{}, 0); len(held) != 0 {
				t.Errorf("%d seats are held", len(held))
			}
			if status := p.handle.WaitOnPermit(p.ctx, pods[0]); !status.IsRejected() {
				t.Errorf("a reserved member: %v", status)
			}
		})
	}
}

// activatedMember returns the pod of that name as the scheduler sees it.
func (p *play) activatedMember(key string) *corev1.Pod {
	p.t.Helper()
	obj, ok, err := p.handle.SharedInformerFactory().Core().V1().Pods().Informer().GetStore().GetByKey(key)
	if err != nil || !ok {
		p.t.Fatalf("no pod %s: %v", key, err)
	}
	return obj.(*corev1.Pod)
}

func TestPodGroupThatChangesDuringACommit(t *testing.T) {
	for name, change := range map[string]func(p *play, group *v1alpha1.PodGroup){
		"deleted": func(p *play, group *v1alpha1.PodGroup) {
			if err := p.groups.Delete(group); err != nil {
				p.t.Fatal(err)
			}
			p.groupDeleted(p.logger, group)
		},
		"asks for more": func(p *play, group *v1alpha1.PodGroup) {
			more := group.DeepCopy()
			more.Spec.MinMember++
			if err := p.groups.Update(more); err != nil {
				p.t.Fatal(err)
			}
			p.groupChanged(p.logger, group, more)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, stage.Nodes(3, 8)...)
			group := p.group(2)
			pods := p.wholeNodeMembers(2)
			p.follow(pods[0])
			change(p, group)
			if _, why := p.turn(pods[1]); why == "" {
				t.Error("the plan is still followed")
			}
			if status := p.handle.WaitOnPermit(p.ctx, pods[0]); !status.IsRejected() {
				t.Errorf("a reserved member: %v", status)
			}
		})
		t.Run(name+" while the gang is planned", func(t *testing.T) {
			p := newPlay(t, stage.Nodes(3, 8)...)
			group := p.group(2)
			pods := p.wholeNodeMembers(2)
			change(p, group) // its event comes before the commit
			p.begin(p.logger, testKey, testCommit(2))
			for i, s := range p.gangs.byKey[testKey].commit.inOrder() {
				s.pod = pods[i]
			}
			p.checkStillThere(p.ctx, testKey, group, p.gangs.byKey[testKey].commit.inOrder())
			if p.gangs.byKey[testKey].commit != nil {
				t.Error("the commit goes on")
			}
		})
	}
}

// The queue keeps events for the member whose turn it is; another one might never hear of them.
func TestWhoseTurnItIsTriesAgain(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(2)
	if _, why := p.turn(pods[1]); why == "" {
		t.Fatal("two members on one node")
	}
	for i, want := range []fwk.QueueingHint{fwk.QueueSkip, fwk.Queue} {
		if got, _ := p.nodeHelps(p.logger, pods[i], nil, stage.Node("n9", 8).Obj()); got != want {
			t.Errorf("member %d, after a node came: %v, want %v", i, got, want)
		}
	}
	// A member that tolerates more now knows better than the one before it.
	if hint, _ := p.memberChanged(p.logger, pods[0], nil, nil); hint != fwk.Queue || p.gangs.refusalOf(testKey).representative != pods[0].UID {
		t.Errorf("%v, %+v", hint, p.gangs.refusalOf(testKey))
	}
}

// A gang that held places for members that were not reserved yet leaves no pod event behind.
func TestGangsRefusedForAnother(t *testing.T) {
	p := newPlay(t, stage.Nodes(2, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(2)
	if _, why := p.turn(pods[0]); why != "" {
		t.Fatal(why)
	}
	other := types.NamespacedName{Namespace: "ns", Name: "other"}
	waiting := p.see(nil, stage.Pod(9, 8).Label(v1alpha1.GroupLabel, other.Name).SchedulerName("test").Obj())
	p.gangs.refuse(other, &refusal{representative: waiting.UID})
	p.inLine()
	p.podDeleted(p.logger, pods[1])
	p.mustBeInLine("ns/m-9")
}

func TestNominationsOfRefusedMembersAreCleared(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(2)
	if _, why := p.turn(pods[0]); why == "" {
		t.Fatal("two members on one node")
	}
	result, status := p.PostFilter(p.ctx, nil, pods[0], framework.NewDefaultNodeToStatus())
	if status.Code() != fwk.UnschedulableAndUnresolvable || result.Mode() != fwk.ModeOverride || result.NominatedNodeName != "" {
		t.Errorf("%+v, %v", result, status)
	}
}

func TestMemberThatIsPlannedAnewKeepsItsPlace(t *testing.T) {
	p := newPlay(t, stage.Nodes(3, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(2)
	if _, why := p.turn(pods[0]); why != "" {
		t.Fatal(why)
	}
	result, _ := p.PostFilter(p.ctx, nil, pods[0], framework.NewDefaultNodeToStatus())
	if node := p.gangs.verdictFor(testKey, pods[0].UID).node; node == "" || result.NominatedNodeName != node {
		t.Errorf("nominated on %q, planned on %q", result.NominatedNodeName, node)
	}
}

func TestRefusalIsTakenBackWhenTheGangHasItsPlaces(t *testing.T) {
	p := newPlay(t, stage.Nodes(2, 8)...)
	group := p.group(2)
	group.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionUnschedulable, Status: metav1.ConditionTrue}}
	for i, pod := range p.wholeNodeMembers(2) {
		if _, said := p.report.wanted[testKey][v1alpha1.ConditionUnschedulable]; said {
			t.Errorf("taken back with %d of 2 placed", i)
		}
		p.see(pod, with(pod, func(pod *corev1.Pod) { pod.Spec.NodeName = fmt.Sprintf("n%d", i) }))
	}
	if w := p.report.wanted[testKey][v1alpha1.ConditionUnschedulable]; w.reason != ReasonPlaced {
		t.Errorf("says %+v", w)
	}
}

func TestShareOf(t *testing.T) {
	for _, tc := range []struct {
		value       int64
		part, whole int
		want        int64
	}{
		{10, 1, 3, 3},
		{1<<63 - 1, 0, 7, 0},
		{1<<63 - 1, 7, 7, 1<<63 - 1},
		{1<<63 - 1, 1, 2, 1<<62 - 1},
	} {
		if got := shareOf(tc.value, tc.part, tc.whole); got != tc.want {
			t.Errorf("%d of %d of %d: got %d, want %d", tc.part, tc.whole, tc.value, got, tc.want)
		}
	}
}

// otherGang shows the members of a second gang of the play, which asks for whole nodes.
func (p *play) otherGang(n int) []*corev1.Pod {
	p.t.Helper()
	group := &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: testKey.Namespace, Name: "other"}}
	group.Spec.MinMember = int32(n)
	if err := p.groups.Add(group); err != nil {
		p.t.Fatal(err)
	}
	var pods []*corev1.Pod
	for i := range n {
		pods = append(pods, p.see(nil, stage.Pod(100+i, 8).Label(v1alpha1.GroupLabel, "other").SchedulerName("test").Obj()))
	}
	return pods
}

// A commit that is let go gives back places of which some were reserved and others were not. Only the
// first have events: the gangs that wait for the others must not wait for ever.
func TestGangsThatWaitForSeatsOfACommitHalfReserved(t *testing.T) {
	p := newPlay(t, stage.Nodes(3, 8)...)
	p.group(3)
	pods := p.wholeNodeMembers(3)
	p.follow(pods[0])
	waiting := p.otherGang(2)
	if _, why := p.turn(waiting[0]); why == "" {
		t.Fatal("placed where another gang holds its places")
	}
	p.inLine()
	p.podDeleted(p.logger, pods[2]) // the gang is incomplete now and will not be back
	p.mustBeInLine("ns/m-100")
}

// A gang that still has no room is not planned again because another one let go.
func TestSeatsThatAreOfNoHelp(t *testing.T) {
	p := newPlay(t, stage.Nodes(3, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(2)
	if _, why := p.turn(pods[0]); why != "" {
		t.Fatal(why)
	}
	waiting := p.otherGang(4)
	if _, why := p.turn(waiting[0]); why == "" {
		t.Fatal("four members on three nodes")
	}
	p.inLine()
	p.podDeleted(p.logger, pods[1])
	p.mustBeInLine()
}

// meanwhile is a clock that lets something happen while a gang is being planned, once.
type meanwhile struct {
	*handClock
	happen func()
}

func (c *meanwhile) Now() time.Time {
	if f := c.happen; f != nil {
		c.happen = nil
		f()
	}
	return c.handClock.Now()
}

// What another gang gives up between the plan of a gang and the verdict on it is not lost.
func TestSeatsGivenUpWhileAGangIsRefused(t *testing.T) {
	p := newPlay(t, stage.Nodes(2, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(2)
	if _, why := p.turn(pods[0]); why != "" {
		t.Fatal(why)
	}
	waiting := p.otherGang(2)
	p.inLine()
	c := &meanwhile{handClock: p.clock}
	p.Coscheduling.clock = c
	c.happen = func() { // the turn begins
		c.happen = func() { p.podDeleted(p.logger, pods[1]) } // it is refused
	}
	if _, why := p.turn(waiting[0]); why == "" {
		t.Fatal("placed where another gang holds its places")
	}
	p.mustBeInLine("ns/m-100")
}

// A member that came while others were being placed, and was told so, is not forgotten when those are gone.
func TestMemberBehindACommitThatIsLetGo(t *testing.T) {
	p := newPlay(t, stage.Nodes(3, 8)...)
	p.group(1)
	first := p.wholeNodeMembers(1)[0]
	if _, why := p.turn(first); why != "" {
		t.Fatal(why)
	}
	late := p.see(nil, stage.Pod(7, 8).Label(v1alpha1.GroupLabel, testKey.Name).SchedulerName("test").Obj())
	if _, why := p.turn(late); why == "" {
		t.Fatal("placed beside the commit")
	}
	p.podDeleted(p.logger, first)
	p.inLine()
	p.clock.Step(firstRetry)
	p.mustBeInLine("ns/m-7")
	if node, why := p.turn(late); node == "" {
		t.Error(why)
	}
}

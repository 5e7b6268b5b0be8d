// Package coscheduling is the kube-scheduler plugin that starts gangs whole: the pods that carry a
// PodGroup's label are planned together on one snapshot, follow the plan one by one, and bind only
// when the last of them has its place.
package coscheduling

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/preemption"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// Name is the name of the plugin in the registry and in configurations.
const Name = "Coscheduling"

// Coscheduling admits gangs all or nothing.
type Coscheduling struct {
	handle  framework.Framework
	args    *Args
	members *podgroup.Membership
	groups  cache.Indexer
	gangs   *gangs
	holds   *holds
	line    *line
	repairs *repairs
	// provisioning is which new nodes are held for gangs.
	provisioning *provisioning
	// reserving is the one reservation, and who waits for it.
	reserving reservations
	cluster   *gangplan.Cluster
	report    *reporter
	// What preemption needs to know of pods, and does to them.
	priorities *preemption.Priorities
	budgets    preemption.Budgets
	evictor    *preemption.Evictor
	clock      clock.WithDelayedExecution
	// background runs, at some time, what must not hold up the scheduling cycle.
	background func(func())
	freed      gangplan.LastFreed
	// queueing is set once a member came to the scheduler's queue. The framework has no activator
	// before that, and there is nothing to activate.
	queueing atomic.Bool
	// leads is set once a pod was scheduled: a scheduler that waits for its lease has the same queue.
	leads atomic.Bool
	// told are the members that were told their gang's verdict since the last turn; only scheduling cycles touch it.
	told []*corev1.Pod
	// sightings counts the pods that were seen to come to a node or change on it, and shown is how many that were before
	// the snapshot was made of the turn that is now.
	sightings atomic.Uint64
	shown     struct{ now, next uint64 }
}

var (
	_ fwk.QueueSortPlugin   = &Coscheduling{}
	_ fwk.PreEnqueuePlugin  = &Coscheduling{}
	_ fwk.EnqueueExtensions = &Coscheduling{}
	_ fwk.PreFilterPlugin   = &Coscheduling{}
	_ fwk.FilterPlugin      = &Coscheduling{}
	_ fwk.PostFilterPlugin  = &Coscheduling{}
	_ fwk.ReservePlugin     = &Coscheduling{}
	_ fwk.PermitPlugin      = &Coscheduling{}
	_ fwk.SignPlugin        = &Coscheduling{}
)

// Name returns the name of the plugin.
func (pl *Coscheduling) Name() string { return Name }

// PreEnqueue keeps members out of the active queue until their gang could start: its PodGroup
// exists and is valid, and enough members are there. It runs under the queue's lock and only looks
// things up; the handlers in watch.go activate the members when the answer changes.
func (pl *Coscheduling) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	key, ok := podgroup.Key(pod)
	if !ok {
		pl.line.enter(pod, pl.standingOf(pod, false))
		return nil
	}
	// Before the look at the index: a handler that misses the flag changed the index earlier.
	pl.queueing.Store(true)
	if why := pl.incomplete(key); why != "" {
		// A scheduler that died may have left a nomination, which would keep others out.
		pl.handle.DeleteNominatedPodIfExists(pod)
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
	}
	if pl.gangs.isAside(key, pod, pl.clock.Now()) {
		return unresolvable("the gang was refused, and nothing happened yet that could help it")
	}
	pl.line.enter(pod, pl.standingOf(pod, pl.inRepair(key)))
	return nil
}

func (pl *Coscheduling) group(key types.NamespacedName) *v1alpha1.PodGroup {
	obj, exists, err := pl.groups.GetByKey(key.String())
	if err != nil || !exists {
		return nil
	}
	return obj.(*v1alpha1.PodGroup)
}

// PreFilter gives a member the node that its gang's plan has for it, and plans the gang first if
// that is still to be done.
func (pl *Coscheduling) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	pl.leads.Store(true)
	if !gangplan.IsTrial(state) && !state.IsPodGroupSchedulingCycle() {
		pl.setAside(klog.FromContext(ctx))
		pl.shown.now, pl.shown.next = pl.shown.next, pl.sightings.Load()
		pl.rehouse(ctx, nodes)
	}
	key, ok := podgroup.Key(pod)
	if !ok && !gangplan.IsTrial(state) {
		pl.meetSeats(state, pod)
	}
	switch {
	case !ok && !pl.holds.empty():
		return nil, nil // Filter looks at what is held
	case !ok || gangplan.IsTrial(state):
		return nil, fwk.NewStatus(fwk.Skip)
	}
	switch v := pl.gangs.verdictFor(key, pod.UID); {
	case v.node != "":
		return only(v.node), nil
	case v.busy:
		return nil, turnedAway(ReasonBeingPlaced, "the rest of the gang is being placed; this member comes after it")
	case v.refused != nil && v.refused.holds(pod):
		pl.tell(key, pod)
		return nil, turnedAway(v.refused.podReason(), v.refused.message)
	}
	node, why, err := pl.admit(ctx, key, pod, nodes)
	switch {
	case err != nil:
		return nil, fwk.AsStatus(err)
	case why != "":
		pl.tell(key, pod)
		return nil, turnedAway(pl.podReason(key, why), why)
	}
	return only(node), nil
}

// PreFilterExtensions returns nil: adding or removing one pod changes nothing for a gang.
func (pl *Coscheduling) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func only(node string) *fwk.PreFilterResult {
	return &fwk.PreFilterResult{NodeNames: sets.New(node)}
}

// turnedAway refuses a member for a reason that its condition PodScheduled is to have.
func turnedAway(reason, why string) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(&refusedFor{reason, why})
}

// unresolvable is how every refusal of a gang is worded: evicting pods for one member of a gang
// that cannot start would be in vain, and this code keeps preemption away.
func unresolvable(why string) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
}

// Filter holds a member to its planned node. The scheduler tries a pod's nominated node first,
// before it looks at what PreFilter allows. Pods without a gang are kept out of room that is held for
// gangs.
func (pl *Coscheduling) Filter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	key, ok := podgroup.Key(pod)
	if !ok {
		if why := pl.keptByHold(pod, info); why != "" {
			return fwk.NewStatus(fwk.Unschedulable, why)
		}
		return nil
	}
	if v := pl.gangs.verdictFor(key, pod.UID); v.node != info.Node().Name {
		return unresolvable("not the node that the gang's plan has for this member")
	}
	return nil
}

// PostFilter runs when a member was refused its place. A gang that is being committed is planned
// anew around the members that are reserved already, or else let go as a whole. It always
// ends the chain, so that no pod is evicted for a single member.
func (pl *Coscheduling) PostFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	key, ok := podgroup.Key(pod)
	if !ok {
		pl.keptBySeats(klog.FromContext(ctx), state, pod, statuses)
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	node := ""
	if v := pl.gangs.verdictFor(key, pod.UID); v.node != "" {
		node = pl.recover(ctx, key, pod, v.node, statuses.Get(v.node))
	}
	if node == "" {
		node = pl.gangs.nominatedNode(key, pod.UID)
	}
	// The scheduler now sets the member's nomination to this. Without a plan there must be none, not
	// even one that an earlier scheduler wrote to the pod: it would keep others out.
	return framework.NewPostFilterResultWithNominatedNode(node), fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
}

// Reserve takes the member's seat in the commit. A pod without a gang is asked again for room that is held since it
// was filtered: a gang may have lost a member meanwhile.
func (pl *Coscheduling) Reserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	key, ok := podgroup.Key(pod)
	if !ok && !gangplan.IsTrial(state) && !pl.holds.empty() {
		if info, err := pl.handle.SnapshotSharedLister().NodeInfos().Get(node); err == nil {
			if why := pl.keptByHold(pod, info); why != "" {
				return fwk.NewStatus(fwk.Unschedulable, why)
			}
		}
		pl.backfilled(candidateFor(types.NamespacedName{}, nil, pod), node)
	}
	if !ok || gangplan.IsTrial(state) || pl.gangs.reserve(key, pod.UID, node) {
		return nil
	}
	return unresolvable("the gang was let go while this member was being placed")
}

// Unreserve gives the seat back, and with it those of the whole gang if it is still being
// committed. After the commit it is one member that comes back: the others stay, and the gang is
// planned again around them.
func (pl *Coscheduling) Unreserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) {
	key, ok := podgroup.Key(pod)
	if !ok || gangplan.IsTrial(state) {
		return
	}
	if pl.isGone(pod) && pl.goOnWithout(klog.FromContext(ctx), key, pod.UID) {
		pl.gangs.unplace(key, pod.UID, "")
		return
	}
	if pl.gangs.bindsAlone(key, pod.UID) {
		defer pl.couldNotBind(klog.FromContext(ctx), key, pod, node)
	}
	if r := pl.gangs.unplace(key, pod.UID, fmt.Sprintf("member %q could not keep its place, so the whole gang let go", pod.Name)); r != nil {
		pl.letGo(klog.FromContext(ctx), key, r)
	}
}

// Permit lets the gang bind when its last member is reserved; until then members wait, for no
// longer than their commit lasts.
func (pl *Coscheduling) Permit(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) (*fwk.Status, time.Duration) {
	key, ok := podgroup.Key(pod)
	if !ok {
		return nil, 0
	}
	if pl.gangs.allReserved(key, pod.UID) {
		if why := pl.tooFewPlaces(key); why != "" {
			pl.letCommitGo(klog.FromContext(ctx), key, why)
			return unresolvable(why), 0
		}
	}
	waiting, done, known := pl.gangs.complete(key, pod.UID, pl.waits)
	switch {
	case !known:
		return unresolvable("the gang was let go while this member was being placed"), 0
	case !done:
		return fwk.NewStatus(fwk.Wait), pl.commitWait(key) + permitGrace
	}
	pl.placedWhole(klog.FromContext(ctx), key, waiting, len(waiting)+1)
	return nil, 0
}

// waits reports whether a member waits at Permit.
func (pl *Coscheduling) waits(uid types.UID) bool { return pl.handle.GetWaitingPod(uid) != nil }

// tooFewPlaces says why a commit must not be carried out of which all members are reserved, or returns "": it was
// planned beside members that may have lost their places since.
func (pl *Coscheduling) tooFewPlaces(key types.NamespacedName) string {
	if group := pl.group(key); group != nil && pl.placed(key) >= quorumOf(group) {
		return ""
	}
	return "members that had their places lost them while the others took theirs, so the whole gang let go"
}

// placedWhole lets the members bind that wait for each other, once all of a commit are reserved.
func (pl *Coscheduling) placedWhole(logger klog.Logger, key types.NamespacedName, waiting []types.UID, members int) {
	for _, uid := range waiting {
		if w := pl.handle.GetWaitingPod(uid); w != nil {
			w.Allow(Name)
		}
	}
	logger.V(2).Info("Gang is placed whole", "podGroup", key, "members", members)
	pl.report.admitted(key)
	pl.endProvisioning(logger, key, nil, ReasonPlaced, "the gang has its place")
	pl.needsNoRoom(logger, key, ReasonPlaced, "the gang has its place")
	// Those that came too late for this commit.
	placed, paused := pl.gangs.placedNodes(key), pl.gangs.paused(key)
	pl.activate(logger, key, func(m *podgroup.Member) bool { return placed[m.UID] == "" && !paused.Has(m.UID) })
}

// commitWait is how long the members of a gang may wait for each other once it is planned: no
// longer than the framework lets them.
func (pl *Coscheduling) commitWait(key types.NamespacedName) time.Duration {
	wait := time.Duration(*pl.args.PermitWaitingTimeSeconds) * time.Second
	if group := pl.group(key); group != nil && group.Spec.ScheduleTimeoutSeconds != nil && *group.Spec.ScheduleTimeoutSeconds > 0 {
		wait = time.Duration(*group.Spec.ScheduleTimeoutSeconds) * time.Second
	}
	return min(wait, maxPermitWait-permitGrace)
}

// SignPod keeps opportunistic batching on for pods without a gang, and off for members: the place
// of a member depends on the others. While room is held for gangs, pods are alike if they must mind that alike.
func (pl *Coscheduling) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if _, ok := podgroup.Key(pod); ok {
		return nil, fwk.NewStatus(fwk.Unschedulable, "members of a PodGroup are planned together")
	}
	if !pl.holds.empty() {
		return []fwk.SignFragment{{Key: "muster.dev/holds", Value: fmt.Sprint(candidateFor(types.NamespacedName{}, nil, pod))}}, nil
	}
	return nil, nil
}

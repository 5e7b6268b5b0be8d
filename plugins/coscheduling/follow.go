package coscheduling

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// The wait before a gang that was let go is planned again doubles from the first to the last.
const (
	firstRetry = time.Second
	lastRetry  = 10 * time.Second
)

// permitGrace is how much longer than its commit the scheduler lets a member wait. The end of the
// commit must come first: a member that timed out by itself could miss a commit that succeeds.
const permitGrace = 5 * time.Second

// begin starts a commit and bounds it. It returns the seats that it has to begin with, in rank order: from now on
// they change under the lock alone.
func (pl *Coscheduling) begin(logger klog.Logger, key types.NamespacedName, c *commit) (seats []*seat) {
	seats = c.inOrder()
	pl.gangs.begin(key, c)
	pl.takeOver(logger, key, seats)
	wait := pl.commitWait(key)
	pl.clock.AfterFunc(wait, func() {
		if r := pl.gangs.expire(key, c, fmt.Sprintf("not all members could take their places within %v, so the whole gang let go", wait)); r != nil {
			pl.letGo(logger, key, r)
		}
	})
	return seats
}

// nominate makes the scheduler keep the members' places against pods of equal or lower priority,
// and puts the members in line.
func (pl *Coscheduling) nominate(ctx context.Context, seats []*seat) {
	logger := klog.FromContext(ctx)
	pods := make([]*corev1.Pod, len(seats))
	for i, s := range seats {
		pl.handle.AddNominatedPod(logger, s.info, &fwk.NominatingInfo{NominatedNodeName: s.Node, NominatingMode: fwk.ModeOverride})
		pods[i] = s.pod
	}
	pl.activatePods(logger, pods...)
}

// checkStillThere lets a new commit go if a member or the PodGroup changed while the gang was being
// planned: the event came before the commit it would have ended.
func (pl *Coscheduling) checkStillThere(ctx context.Context, key types.NamespacedName, planned *v1alpha1.PodGroup, seats []*seat) {
	logger := klog.FromContext(ctx)
	if now := pl.group(key); now == nil || asksForMore(planned, now) {
		pl.groupWithdrawn(logger, key, now)
		return
	} else if why := keptOut(now, pl.clock); why != "" {
		pl.letCommitGo(logger, key, why)
		return
	}
	waits := map[types.UID]bool{}
	for _, m := range pl.members.Members(key) {
		waits[m.UID] = m.State == podgroup.Waiting
	}
	for _, s := range seats {
		if !waits[s.pod.UID] {
			pl.waitsNoMore(logger, key, s.pod.UID, s.pod.Name)
		}
	}
}

// recover plans the open seats of a commit anew after one member was refused its node, or lets the
// whole gang go. It returns the member's new node, if any.
func (pl *Coscheduling) recover(ctx context.Context, key types.NamespacedName, pod *corev1.Pod, node string, status *fwk.Status) string {
	logger := klog.FromContext(ctx)
	message := fmt.Sprintf("member %q was refused node %q (%s), so the whole gang let go", pod.Name, node, gangplan.RefusedBy(status))
	open, reserved, ok := pl.gangs.replan(key, pod.UID)
	if ok {
		seats, why, err := pl.replan(ctx, key, open)
		if err != nil {
			message = fmt.Sprintf("%s: %v", message, err)
		} else if why != "" {
			message = fmt.Sprintf("member %q was refused node %q, and there is no other place: %s", pod.Name, node, why)
		} else if pl.gangs.reseat(key, seats) {
			logger.V(2).Info("Gang is planned anew", "podGroup", key, "reserved", reserved, "open", len(seats))
			pl.nominate(ctx, seats)
			pl.heldNoMore(logger, key, open)
			return pl.gangs.verdictFor(key, pod.UID).node
		}
	}
	if r := pl.gangs.release(key, pod.UID, message); r != nil {
		pl.letGo(logger, key, r)
	}
	return ""
}

// replan finds places for the open seats beside all members that have theirs, also from earlier commits.
func (pl *Coscheduling) replan(ctx context.Context, key types.NamespacedName, open []*seat) (seats []*seat, why string, err error) {
	nodes, err := pl.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, "", err
	}
	pl.cluster.Sync(nodes)
	pods := make([]*corev1.Pod, len(open))
	for i, s := range open {
		pods[i] = s.pod
	}
	group := pl.group(key)
	if group == nil {
		return nil, fmt.Sprintf("PodGroup %q was deleted", key.Name), nil
	}
	c := pl.take(key, pods[0])
	if why := pl.unshown(c); why != "" {
		return nil, why, nil
	}
	d, err := pl.demand(ctx, group, c, pods, len(pods))
	if err != nil {
		return nil, "", err
	}
	plan, explanation, err := pl.plan(ctx, key, d)
	if err != nil {
		return nil, "", err
	}
	switch {
	case explanation != nil:
		return nil, explanation.String(), nil
	case len(d.Allocations) > 0:
		return nil, fmt.Sprintf("resource claim %q has lost its devices", d.Allocations[0].Claim.Name), nil
	}
	for i, node := range plan.Nodes {
		seats = append(seats, pl.newSeat(d, i, node))
	}
	return seats, "", nil
}

// letGo gives everything back that a commit held, and tries the gang again after a while.
func (pl *Coscheduling) letGo(logger klog.Logger, key types.NamespacedName, r *released) {
	logger.V(2).Info("Gang is let go", "podGroup", key, "why", r.message, "failures", r.failures)
	for _, s := range r.seats {
		pl.handle.DeleteNominatedPodIfExists(s.pod)
		pl.reject(s.pod.UID, r.message)
	}
	commitsLetGo.Inc()
	if !r.surplus {
		pl.report.refused(key, ReasonLetGo, r.message)
	}
	pl.reviewRepair(logger, key) // before anybody is put in line for what the commit held
	pl.heldNoMore(logger, key, r.seats)
	pl.clock.AfterFunc(retryAfter(r.failures), func() {
		for _, uid := range pl.gangs.rested(key, r.failures) {
			pl.reject(uid, r.message) // came to wait at Permit after all others were rejected
		}
		pl.activateRepresentative(logger, key)
	})
}

func (pl *Coscheduling) reject(uid types.UID, message string) {
	if w := pl.handle.GetWaitingPod(uid); w != nil {
		w.Reject(Name, message)
	}
}

func retryAfter(failures int) time.Duration {
	wait := firstRetry
	for range failures - 1 {
		if wait *= 2; wait >= lastRetry {
			return lastRetry
		}
	}
	return wait
}

// waitsNoMore ends what a member was part of that was deleted, failed, or was bound by somebody else
// while it waited for its place: a commit cannot succeed without it unless it has enough others, and a refused gang may
// fit without it.
func (pl *Coscheduling) waitsNoMore(logger klog.Logger, key types.NamespacedName, uid types.UID, name string) {
	if pl.goOnWithout(logger, key, uid) {
		return
	}
	if r := pl.gangs.release(key, uid, fmt.Sprintf("member %q no longer waits for its place, so the whole gang let go", name)); r != nil {
		pl.letGo(logger, key, r)
	}
	pl.withdrawPreempting(logger, key, uid, fmt.Sprintf("member %q no longer waits for its place", name))
	pl.activatePods(logger, pl.gangs.takeEarly(key)...) // it may be the one that they were to wait for
	refused := pl.gangs.refusalOf(key)
	if refused == nil || !refused.passedOn(uid) {
		return
	}
	if refused.representative == uid {
		pl.gangs.elect(key, uid, pl.nextRepresentative(key, refused, uid))
	}
	pl.activateRepresentative(logger, key)
}

// nextRepresentative returns the member that tries again for a refused gang in place of another: one that the
// verdict was passed on, or else one that came later and was told to wait for the others.
func (pl *Coscheduling) nextRepresentative(key types.NamespacedName, r *refusal, except types.UID) types.UID {
	next := except
	for _, m := range pl.members.Members(key) {
		switch {
		case m.State != podgroup.Waiting || m.UID == except:
		case r.passedOn(m.UID):
			return m.UID
		case next == except && !m.Gated && m.SchedulerName == pl.handle.ProfileName():
			next = m.UID
		}
	}
	return next
}

// asksForMore reports whether a plan made for a PodGroup can be too little or wrong for what became of it.
func asksForMore(was, is *v1alpha1.PodGroup) bool {
	return is.Spec.MinMember > was.Spec.MinMember || !podgroup.SameTopology(was.Annotations, is.Annotations)
}

// groupWithdrawn lets a commit go that was made for a PodGroup that is gone or now asks for more.
func (pl *Coscheduling) groupWithdrawn(logger klog.Logger, key types.NamespacedName, now *v1alpha1.PodGroup) {
	why := fmt.Sprintf("PodGroup %q was deleted", key.Name)
	if now != nil {
		why = fmt.Sprintf("PodGroup %q needs other places or more members now, so the whole gang let go", key.Name)
	}
	pl.letCommitGo(logger, key, why)
}

// letCommitGo lets the commit of a gang go that is under way, if there is one.
func (pl *Coscheduling) letCommitGo(logger klog.Logger, key types.NamespacedName, why string) {
	if r := pl.gangs.releaseAny(key, why); r != nil {
		pl.letGo(logger, key, r)
	}
	pl.endPreempting(logger, key, nil, ReasonMembersChanged, why, time.Time{})
}

// activateRepresentative puts the member in line that tries again for a refused gang, unless the
// gang rests. The others follow when it finds a plan.
func (pl *Coscheduling) activateRepresentative(logger klog.Logger, key types.NamespacedName) {
	if refused := pl.gangs.refusalOf(key); refused != nil && !refused.resting {
		pl.activate(logger, key, func(m *podgroup.Member) bool { return m.UID == refused.representative })
	}
}

// heldNoMore puts refused gangs in line that may fit now that a gang holds these seats no more. For members
// that were reserved the scheduler has an event; of the other seats only this plugin knows.
func (pl *Coscheduling) heldNoMore(logger klog.Logger, by types.NamespacedName, seats []*seat) {
	var claims []gangplan.Claim
	for _, s := range seats {
		if !s.reserved {
			claims = append(claims, s.Claim)
		}
	}
	pl.claimsFreed(logger, by, claims)
}

// claimsFreed puts in line who may fit now that a gang claims these no more: refused gangs, and pods without a gang. It
// must not be called with a lock held.
func (pl *Coscheduling) claimsFreed(logger klog.Logger, by types.NamespacedName, claims []gangplan.Claim) {
	if len(claims) == 0 {
		return
	}
	pl.gangs.countRelease() // before the look at who was refused: others are being planned
	pl.claimsMayHouse(claims)
	for _, other := range pl.gangs.refusedBeside(by) {
		if r := pl.gangs.refusalOf(other); r != nil && r.helpedBy(claims) {
			pl.activateRepresentative(logger, other)
		}
	}
	pl.activatePods(logger, pl.holds.takeKept()...)
}

// activateMembers puts the gang's waiting members in line.
func (pl *Coscheduling) activateMembers(logger klog.Logger, key types.NamespacedName) {
	placed := pl.gangs.placedNodes(key)
	pl.activate(logger, key, func(m *podgroup.Member) bool { return placed[m.UID] == "" })
}

func (pl *Coscheduling) activate(logger klog.Logger, key types.NamespacedName, which func(*podgroup.Member) bool) {
	pl.activatePods(logger, pl.waitingPods(key, func(m *podgroup.Member) bool { return !m.Gated && which(m) })...)
}

// waitingPods returns some of the gang's waiting members, as far as the scheduler's own informer shows them.
func (pl *Coscheduling) waitingPods(key types.NamespacedName, which func(*podgroup.Member) bool) []*corev1.Pod {
	lister := pl.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(key.Namespace)
	var pods []*corev1.Pod
	for _, m := range pl.members.Members(key) {
		if m.State != podgroup.Waiting || !which(&m) {
			continue
		}
		if pod, err := lister.Get(m.Name); err == nil && pod.UID == m.UID {
			pods = append(pods, pod)
		}
	}
	return pods
}

// activatePods moves pods from wherever they wait in the scheduler's queue to the line of those
// that are tried next.
func (pl *Coscheduling) activatePods(logger klog.Logger, pods ...*corev1.Pod) {
	if len(pods) == 0 || !pl.queueing.Load() {
		return
	}
	byName := make(map[string]*corev1.Pod, len(pods))
	for _, pod := range pods {
		byName[pod.Namespace+"/"+pod.Name] = pod
		if key, ok := podgroup.Key(pod); ok {
			pl.gangs.call(key, pod.UID)
		}
	}
	pl.handle.Activate(logger, byName)
}

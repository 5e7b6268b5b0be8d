package coscheduling

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/preemption"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/podgroup/planner"
)

// Reasons of the PodGroup condition Preempting; that of the condition Unschedulable meanwhile is the first.
const (
	// ReasonPreempting means that pods end to make room for the gang.
	ReasonPreempting = "Preempting"
	// ReasonEvictionFailed means that the API server did not let a victim be evicted.
	ReasonEvictionFailed = "EvictionFailed"
	// ReasonGaveUp means that the room did not come, or was taken by somebody of higher priority.
	ReasonGaveUp = "GaveUp"
	// ReasonMembersChanged means that the gang is no longer the one that the room was made for.
	ReasonMembersChanged = "MembersChanged"
)

// overdue is how much longer than their grace periods allow the victims of a preemption are waited for.
const overdue = time.Minute

// Gang implements preemption.Gangs.
func (pl *Coscheduling) Gang(key types.NamespacedName) (preemption.Gang, bool) {
	group := pl.group(key)
	if group == nil {
		return preemption.Gang{}, false
	}
	settings, _ := podgroup.ParseSettings(group.Annotations) // the default for what cannot be read
	return preemption.Gang{
		MinMember: int(group.Spec.MinMember), Finished: pl.members.Get(key).Finished,
		Preemptible: settings.Preemptible, LastCheckpoint: settings.LastCheckpoint,
	}, true
}

// makeRoom looks for pods whose end lets a gang in that was just refused, and has them evicted if they do not end by
// themselves. While it waits for them its seats are kept. It reports whether the gang waits so now;
// otherwise the refusal says why not, where there is more to say.
func (pl *Coscheduling) makeRoom(ctx context.Context, key types.NamespacedName, group *v1alpha1.PodGroup, turn types.UID, c census, d *gangplan.Demand, r *refusal) (bool, error) {
	logger, now, priority := klog.FromContext(ctx), pl.clock.Now(), corev1helpers.PodPriority(d.Pods[0])
	if p := pl.gangs.preemptingOf(key); p != nil {
		if pl.awaited(p) > 0 && now.Before(p.until) {
			pl.await(ctx, key, group, turn, c, p, r)
			return true, nil
		}
		pl.endPreempting(logger, key, p, ReasonGaveUp, "the pods ended, and the gang still does not fit", now)
	}
	if !pl.priorities.Below(priority) {
		return false, nil
	}
	if preemption.Never(d.Pods[0]) {
		would, err := pl.wouldPreempt(ctx, key, priority, d, r)
		r.message += "; its members have preemptionPolicy Never, so that nobody of lower priority is preempted" + would
		return false, err
	}
	if from := pl.gangs.preemptsFrom(key); now.Before(from) {
		r.message += fmt.Sprintf("; preempts nobody before %s, because the last preemption did not help", from.UTC().Format(time.RFC3339))
		return false, nil
	}
	started := pl.clock.Now()
	room, err := pl.findRoom(ctx, key, priority, d)
	preemption.Observe(room, pl.clock.Since(started))
	if err != nil || room == nil {
		return false, err
	}
	p := pl.newPreempting(d, room)
	pl.gangs.preempt(key, p)
	pl.clock.AfterFunc(p.until.Sub(now), func() {
		if pl.endPreempting(logger, key, p, ReasonGaveUp, "not all pods ended in time", pl.clock.Now()) {
			pl.activateRepresentative(logger, key)
		}
	})
	logger.V(2).Info("Gang preempts", "podGroup", key, "victims", len(room.Victims), "pods", room.Pods(), "domain", room.Domain, "message", p.message)
	pl.await(ctx, key, group, turn, c, p, r)
	pl.activate(logger, key, func(m *podgroup.Member) bool { return m.UID != turn }) // they say so on their pods
	if p.evicts {
		pl.evict(logger, key, group, d.Pods[0], p, room)
	}
	return true, nil
}

// findRoom counts the candidates and chooses among them; nil if nothing would help.
func (pl *Coscheduling) findRoom(ctx context.Context, key types.NamespacedName, priority int32, d *gangplan.Demand) (*preemption.Room, error) {
	census := preemption.Census{Cluster: pl.cluster, Gangs: pl, Budgets: pl.budgets, Evicted: pl.evictor.Evicted, Now: pl.clock.Now()}
	return census.Room(ctx, pl.handle, d, pl.mustLeave(key, d.Pods...), priority, func(pod *corev1.Pod) bool {
		k, ok := podgroup.Key(pod)
		return ok && k == key
	})
}

// wouldPreempt says, in the words of a preemption, who would go for a gang that may preempt nobody. It looks for them no
// more often than for other advice.
func (pl *Coscheduling) wouldPreempt(ctx context.Context, key types.NamespacedName, priority int32, d *gangplan.Demand, r *refusal) (string, error) {
	if r.advice.wouldPreempt == nil {
		room, err := pl.findRoom(ctx, key, priority, d)
		if err != nil {
			return "", err
		}
		would := ""
		if room != nil && len(room.Victims) > 0 {
			would = fmt.Sprintf("; it would fit by preempting %s", room)
		}
		r.advice.wouldPreempt = &would
	}
	return *r.advice.wouldPreempt, nil
}

func (pl *Coscheduling) newPreempting(d *gangplan.Demand, room *preemption.Room) *preempting {
	p := &preempting{
		seats: map[types.UID]*seat{}, priority: corev1helpers.PodPriority(d.Pods[0]), awaited: map[types.UID]string{},
		evicts: len(room.Victims) > 0,
	}
	for i, node := range room.Nodes {
		if node != planner.NoNode {
			p.seats[d.Pods[i].UID] = pl.newSeat(d, i, node)
		}
	}
	now, wait := pl.clock.Now(), time.Duration(0)
	expect := func(info fwk.PodInfo) {
		pod := info.GetPod()
		p.awaited[pod.UID] = pod.Spec.NodeName
		wait = max(wait, graceOf(pod, now))
	}
	for _, u := range room.Victims {
		for _, info := range u.Members {
			expect(info)
		}
	}
	for _, info := range room.Awaited {
		expect(info)
	}
	p.until = now.Add(wait + overdue)
	verb := "waiting for "
	if p.evicts {
		verb = "preempting "
	}
	p.message = fmt.Sprintf("%s%s; %d pods are to end, until %s at the latest", verb, room, len(p.awaited), p.until.UTC().Format(time.RFC3339))
	return p
}

// graceOf is how long a pod may take to end.
func graceOf(pod *corev1.Pod, now time.Time) time.Duration {
	if pod.DeletionTimestamp != nil {
		return pod.DeletionTimestamp.Sub(now)
	}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// awaited counts the pods that the gang waits for and that the snapshot still has.
func (pl *Coscheduling) awaited(p *preempting) int {
	n := 0
	for uid, node := range pl.gangs.awaitedOf(p) {
		if pl.cluster.PodOn(node, uid) != nil {
			n++
		}
	}
	return n
}

// await refuses the gang for now, with its seats kept.
func (pl *Coscheduling) await(ctx context.Context, key types.NamespacedName, group *v1alpha1.PodGroup, turn types.UID, c census, p *preempting, r *refusal) {
	logger := klog.FromContext(ctx)
	r.message += "; " + p.message
	pl.refuse(ctx, key, group, turn, c, ReasonPreempting, r)
	pl.report.say(key, v1alpha1.ConditionPreempting, report{metav1.ConditionTrue, ReasonPreempting, p.message})
	for _, s := range p.inOrder() {
		pl.handle.AddNominatedPod(logger, s.info, &fwk.NominatingInfo{NominatedNodeName: s.Node, NominatingMode: fwk.ModeOverride})
	}
}

// evict evicts the victims. If that fails the gang lets go.
func (pl *Coscheduling) evict(logger klog.Logger, key types.NamespacedName, group *v1alpha1.PodGroup, member *corev1.Pod, p *preempting, room *preemption.Room) {
	by := preemption.Preemptor{
		Key: key, Object: withKind(group), Priority: p.priority, SchedulerName: member.Spec.SchedulerName, Plugin: Name,
	}
	pl.evictor.Evict(logger, by, room.Victims, func(err error) {
		if err != nil {
			if pl.endPreempting(logger, key, p, ReasonEvictionFailed, err.Error(), pl.clock.Now()) {
				pl.activateRepresentative(logger, key)
			}
			return
		}
		pl.tellVictims(logger, by, room)
	})
}

// tellVictims says on the PodGroups of the victims what became of their gangs.
func (pl *Coscheduling) tellVictims(logger klog.Logger, by preemption.Preemptor, room *preemption.Room) {
	for _, u := range room.Victims {
		if u.Group == (types.NamespacedName{}) || u.Native {
			continue
		}
		group := pl.group(u.Group)
		if group == nil {
			continue
		}
		what := fmt.Sprintf("all of its %d pods", len(u.Members))
		if u.Surplus {
			what = fmt.Sprintf("its member %q, which it can do without,", u.Members[0].GetPod().Name)
		}
		pl.handle.EventRecorder().WithLogger(logger).Eventf(withKind(group), by.Object, corev1.EventTypeNormal, "Preempted", "Preempting",
			"PodGroup %s of priority %d preempts %s to make room", by.Key, by.Priority, what)
	}
}

// endPreempting lets go what is kept for a gang that waits for pods to end, if it still is this wait. A zero
// time says that the wait was not in vain.
func (pl *Coscheduling) endPreempting(logger klog.Logger, key types.NamespacedName, p *preempting, reason, message string, vainAt time.Time) bool {
	ended := pl.gangs.stopPreempting(key, p, vainAt)
	if ended == nil {
		return false
	}
	logger.V(2).Info("Gang preempts no more", "podGroup", key, "reason", reason, "why", message)
	seats := ended.inOrder()
	for _, s := range seats {
		pl.handle.DeleteNominatedPodIfExists(s.pod)
	}
	pl.report.say(key, v1alpha1.ConditionPreempting, report{metav1.ConditionFalse, reason, message})
	pl.claimsFreed(logger, key, claimsOf(seats))
	if rest := pl.gangs.preemptsFrom(key).Sub(pl.clock.Now()); rest > 0 {
		pl.clock.AfterFunc(rest, func() { pl.activateRepresentative(logger, key) })
	}
	return true
}

// preemptedFor says, once a gang has a plan, that it waits for nobody any more, and puts those in line who may fit where
// it had seats kept and has none now.
func (pl *Coscheduling) preemptedFor(logger klog.Logger, key types.NamespacedName, group *v1alpha1.PodGroup, was *preempting, seats []*seat) {
	if was != nil || meta.IsStatusConditionTrue(group.Status.Conditions, v1alpha1.ConditionPreempting) {
		pl.report.say(key, v1alpha1.ConditionPreempting, report{metav1.ConditionFalse, ReasonPlaced, "the gang has a place"})
	}
	if was != nil {
		pl.claimsFreed(logger, key, claimsWithout(claimsOf(was.inOrder()), claimsOf(seats)))
	}
}

// correctPreempting takes back a condition of a scheduler that died.
func (pl *Coscheduling) correctPreempting(key types.NamespacedName, group *v1alpha1.PodGroup) {
	if meta.IsStatusConditionTrue(group.Status.Conditions, v1alpha1.ConditionPreempting) && !pl.report.saidOf(key, v1alpha1.ConditionPreempting) {
		pl.report.say(key, v1alpha1.ConditionPreempting, report{metav1.ConditionFalse, ReasonGaveUp, "the gang waits for nobody to end"})
	}
}

// withdrawPreempting ends a wait that has a seat for a member which waits for it no more. The pods that are on
// their way out are room for whoever is planned next.
func (pl *Coscheduling) withdrawPreempting(logger klog.Logger, key types.NamespacedName, uid types.UID, why string) {
	if pl.gangs.nominatedNode(key, uid) != "" {
		pl.endPreempting(logger, key, nil, ReasonMembersChanged, why, time.Time{})
	}
}

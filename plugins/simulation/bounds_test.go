package simulation

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// partial is a gang with members that have a place, and with fewer than it needs.
type partial struct {
	group types.UID
	// noticed is when the PodGroup controller first looked at the gang as it is now; zero if it has not yet.
	noticed time.Time
	// anew is set once a rendezvous began anew since: the last of the members that had met is lost, too, and those that
	// replace them have yet to meet.
	anew bool
}

// looked notes that the controller looked at a gang.
func (i *inspector) looked(key types.NamespacedName, at time.Time) {
	p := i.partial[key]
	if p == nil {
		return
	}
	if p.noticed.IsZero() {
		p.noticed = at
		i.count("gangs bound in part")
		return
	}
	ready := meta.FindStatusCondition(i.c.api.groups[key].Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionUnknown && ready.LastTransitionTime.After(p.noticed) && !p.anew {
		p.noticed, p.anew = ready.LastTransitionTime.Time, true
	}
}

// recount notes whether the gangs that a change is about have some places and too few of them.
func (i *inspector) recount(changed ...object) {
	for _, o := range changed {
		switch o := o.(type) {
		case *corev1.Pod:
			if o == nil {
				continue
			}
			if key, ok := podgroup.Key(o); ok {
				i.recountGang(key)
			}
		case *v1alpha1.PodGroup:
			if o != nil {
				i.recountGang(nameOf(o))
			}
		}
	}
}

func (i *inspector) recountGang(key types.NamespacedName) {
	group := i.c.api.groups[key]
	if group == nil || !i.isPartial(key, quorum(group)) {
		delete(i.partial, key)
	} else if p := i.partial[key]; p == nil || p.group != group.UID {
		i.partial[key] = &partial{group: group.UID}
	}
}

func (i *inspector) isPartial(key types.NamespacedName, min int) bool {
	taken, bound := sets.New[podgroup.Identity](), 0
	for _, pod := range i.c.api.podsOf(key) {
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
		case pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Spec.NodeName == "":
			continue
		default:
			bound++
		}
		taken.Insert(podgroup.IdentityOf(pod))
	}
	return bound > 0 && taken.Len() < min
}

// atRest checks what holds when all has followed from a step that follows at once.
func (i *inspector) atRest() {
	p := i.c.process
	if p == nil {
		return
	}
	now := i.c.clock.Now()
	if len(i.c.api.nodes) == 0 {
		i.withoutNodes = now
	}
	for _, uid := range sortedKeys(p.waiting) {
		if now.Sub(i.withoutNodes) <= permitLimit {
			break // the others had a turn of which no plugin was told
		}
		i.broken("I2", "pod %s waits at Permit, and nothing is under way that could end that", p.waiting[uid].pod.Name)
	}
	if _, n := i.reserved(); n > 1 {
		i.broken("I2", "room is reserved for %d gangs at a time", n)
	}
	for key, partial := range i.partial {
		if late := now.Sub(partial.noticed) - rendezvous.Timeout; !partial.noticed.IsZero() && late > i.releaseTime(key) {
			i.broken("I8", "gang %s has been bound in part for %v longer than its rendezvous may take", key.Name, late)
		}
	}
}

// releaseTime is how long the release of a gang may take: a budget is respected for a while.
func (i *inspector) releaseTime(key types.NamespacedName) time.Duration {
	if i.c.api.budgets[key] != nil {
		return 40 * time.Second
	}
	return 2 * time.Second
}

// commitsEnd reports whether every commit is over whose members had a turn while there was no node, of which no plugin was
// told: only its time ends it. All is undisturbed since a given time.
func (i *inspector) commitsEnd(now, since time.Time) bool {
	if len(i.c.api.nodes) > 0 {
		since = i.withoutNodes
	}
	return now.Sub(since) > permitLimit
}

// underWay reports whether a gang waits for pods to end or for nodes to come, with room kept for it, and checks that none
// does so for longer than it may.
func (i *inspector) underWay() bool {
	any := false
	if len(i.c.api.nodes) == 0 {
		return false // the scheduler asks no plugin, which says no more then
	}
	for _, o := range i.c.api.list((*v1alpha1.PodGroup)(nil)) {
		for kind, limit := range map[string]time.Duration{
			v1alpha1.ConditionPreempting:   preemptionLimit,
			v1alpha1.ConditionProvisioning: window + 2*time.Second,
		} {
			c := meta.FindStatusCondition(o.(*v1alpha1.PodGroup).Status.Conditions, kind)
			if c == nil || c.Status != metav1.ConditionTrue {
				continue
			}
			if s := i.state(nameOf(o)); !s.complete() || s.bound+s.finished >= quorum(s.group) {
				continue // the scheduler has nothing to say about it
			}
			any = true
			if lasts := i.c.clock.Now().Sub(c.LastTransitionTime.Time); lasts > limit {
				i.broken("I2", "room has been kept for gang %s for %v: %s", o.GetName(), lasts, c.Message)
				return false
			}
		}
	}
	return any
}

// preemptionLimit is the longest that a gang waits for pods to end.
const preemptionLimit = slowStop + time.Minute + 2*time.Second

// reserved lists the gangs that room is reserved for, and counts those for which this scheduler was the first to do so, in a
// later second than that of its start: the others may be what one that died has left.
func (i *inspector) reserved() (names []string, own int) {
	for _, o := range i.c.api.list((*v1alpha1.PodGroup)(nil)) {
		c := meta.FindStatusCondition(o.(*v1alpha1.PodGroup).Status.Conditions, v1alpha1.ConditionReserved)
		if c == nil || c.Status != metav1.ConditionTrue {
			continue
		}
		names = append(names, o.GetName())
		if c.LastTransitionTime.After(i.started) {
			own++
		}
	}
	return names, own
}

// keptOut reports whether a gang may have to leave room to another one for which it is reserved.
func (i *inspector) keptOut(s *gangState) bool {
	names, _ := i.reserved()
	for _, name := range names {
		if j := i.c.jobs[name]; j != nil && name != s.group.Name && j.Priority >= *s.waiting[0].Spec.Priority {
			i.count("gangs kept out by a reservation")
			return true
		}
	}
	return false
}

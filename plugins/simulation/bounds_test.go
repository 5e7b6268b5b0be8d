package simulation

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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
	if group == nil || !i.isPartial(key, int(group.Spec.MinMember)) {
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
	for _, uid := range sortedKeys(p.waiting) {
		i.broken("I2", "pod %s waits at Permit, and nothing is under way that could end that", p.waiting[uid].pod.Name)
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

// preempting reports whether a gang waits for pods to end, and checks that none does so for longer than they may take.
func (i *inspector) preempting() bool {
	any := false
	for _, o := range i.c.api.list((*v1alpha1.PodGroup)(nil)) {
		c := meta.FindStatusCondition(o.(*v1alpha1.PodGroup).Status.Conditions, v1alpha1.ConditionPreempting)
		if c == nil || c.Status != "True" {
			continue
		}
		if s := i.state(nameOf(o)); !s.complete() || s.bound+s.finished >= int(s.group.Spec.MinMember) {
			continue // the scheduler has nothing to say about it
		}
		any = true
		if waits := i.c.clock.Now().Sub(c.LastTransitionTime.Time); waits > preemptionLimit {
			i.broken("I2", "gang %s has waited for pods to end for %v: %s", o.GetName(), waits, c.Message)
			return false
		}
	}
	return any
}

// preemptionLimit is the longest that a gang waits for pods to end.
const preemptionLimit = slowStop + time.Minute + 2*time.Second

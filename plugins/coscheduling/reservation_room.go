package coscheduling

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/preemption"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/planner"
)

// soonest computes a reservation beside what others hold, nil if nobody's end would help.
func (pl *Coscheduling) soonest(d *gangplan.Demand, e *planner.Explanation, made, until time.Time) *reservation {
	key, _ := podgroup.Key(d.Pods[0])
	defer pl.cluster.Hold(pl.mustLeave(key, d.Pods...))() // as the gang was refused
	others := pl.occupantsBeside(key)
	found := pl.cluster.Soonest(&d.Demand, e, others, others.end)
	if found == nil {
		return nil
	}
	r := &reservation{
		gang: key, priority: corev1helpers.PodPriority(d.Pods[0]),
		preempts: !slices.ContainsFunc(d.Pods, preemption.Never),
		where:    found.Domain, wait: found.Wait, made: made, until: until, on: sets.New[string](),
	}
	for i, node := range found.Nodes {
		r.members = append(r.members, d.Pods[i].UID)
		name := ""
		if node != planner.NoNode {
			name = pl.cluster.NodeName(node)
			r.claims = append(r.claims, pl.cluster.ClaimFor(d, i, node))
			r.on.Insert(name)
		}
		r.seats = append(r.seats, name)
	}
	r.basis, _ = pl.cluster.WaitFor(&d.Demand, found.Nodes, others, others.end)
	return r
}

// revise looks whether the seats that are reserved for a gang still become free when they were expected to. If not,
// the gang gets others, provided that those are free sooner.
func (pl *Coscheduling) revise(logger klog.Logger, r *reservation, d *gangplan.Demand, e *planner.Explanation) {
	wait, possible := pl.waitFor(r, d)
	if possible && !r.basis.Sooner(wait) {
		if !sameWait(wait, r.wait) && !r.wait.Sooner(wait) {
			now := *r
			now.wait = wait
			pl.renew(logger, r, &now)
		}
		return
	}
	switch other := pl.soonest(d, e, r.made, r.until); {
	case other != nil && (!possible || other.wait.Sooner(wait)):
		pl.renew(logger, r, other)
	case possible:
		now := *r
		now.wait, now.basis = wait, wait
		pl.renew(logger, r, &now)
	default:
		pl.endReservation(logger, r, ReasonNoRoom, "the places are lost, and there are no others that would become free", false)
		pl.noHope(logger, r.gang)
	}
}

// waitFor computes what has to end before the seats of a reservation are free. Whoever is just taking its place there
// was let in by the reservation, or comes to be seen when it has it. It reports false if they cannot be
// had any more, or if the gang has other members now.
func (pl *Coscheduling) waitFor(r *reservation, d *gangplan.Demand) (planner.Wait, bool) {
	if len(d.Pods) != len(r.members) {
		return planner.Wait{}, false
	}
	nodes := make([]planner.NodeID, len(r.seats))
	for i, name := range r.seats {
		if d.Pods[i].UID != r.members[i] {
			return planner.Wait{}, false
		}
		nodes[i] = planner.NoNode
		if name == "" {
			continue
		}
		id, ok := pl.cluster.Node(name)
		if !ok {
			return planner.Wait{}, false
		}
		nodes[i] = id
	}
	others := pl.occupantsBeside(r.gang)
	return pl.cluster.WaitFor(&d.Demand, nodes, others, others.end)
}

func sameWait(a, b planner.Wait) bool {
	return a.At == b.At && a.Unknown == b.Unknown && slices.Equal(a.Waiting, b.Waiting)
}

// renew puts a reservation in the place of an earlier one of the same gang.
func (pl *Coscheduling) renew(logger klog.Logger, was, is *reservation) {
	if pl.reserving.replace(was, is) {
		pl.keepReserved(logger, is)
	}
}

package coscheduling

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/planner"
)

// Why a candidate may use reserved room.
const (
	backfillNever       = ""
	backfillPreemptible = "preemptible"
	backfillRunTime     = "run-time"
	backfillRepair      = "repair"
)

// backfill says who may use the room of a reservation all the same.
func (pl *Coscheduling) backfill(r *reservation) func(candidate) bool {
	return func(c candidate) bool { return pl.backfills(r, c) != backfillNever }
}

// backfills says why a candidate may use the room of a reservation:
//   - the owner may preempt it;
//   - its run time is over when the owner is expected to start, if that is known;
//   - it is a gang that runs and lost members: what it needs is not what waits for the reservation, and both could
//     wait for each other otherwise.
func (pl *Coscheduling) backfills(r *reservation, c candidate) string {
	if at, known := r.expected(); known && c.runTime > 0 && !pl.clock.Now().Add(c.runTime).After(at) {
		return backfillRunTime
	}
	if r.preempts && c.preemptible && c.priority < r.priority {
		return backfillPreemptible
	}
	if group := pl.group(c.gang); group != nil {
		counts := pl.members.Get(c.gang)
		if has := counts.Bound + counts.Finished; counts.Bound > 0 && has < int(group.Spec.MinMember) {
			return backfillRepair
		}
	}
	return backfillNever
}

// backfilled counts a gang, or a pod without one, that was let onto nodes of a reservation.
func (pl *Coscheduling) backfilled(c candidate, nodes ...string) {
	r := pl.reserving.now()
	if r == nil || r.gang == c.gang || c.priority > r.priority {
		return
	}
	for _, node := range nodes {
		if r.on.Has(node) {
			if why := pl.backfills(r, c); why != backfillNever {
				backfills.WithLabelValues(why).Inc()
			}
			return
		}
	}
}

// occupants tells who uses the nodes besides a gang, and when they end, from what is declared: a run time, a deadline,
// or a deletion under way. What should have ended by its run time and has not may run for any time. It looks only at the
// pods of nodes that it is asked about.
type occupants struct {
	planner.Tenants
	pl       *Coscheduling
	now      time.Time
	seen     sets.Set[planner.NodeID]
	runTimes map[types.NamespacedName]time.Duration
	ends     map[planner.Tenant]time.Time // zero if not known
}

func (pl *Coscheduling) occupantsBeside(key types.NamespacedName) *occupants {
	return &occupants{
		Tenants: pl.cluster.Others(key), pl: pl, now: pl.clock.Now(), seen: sets.New[planner.NodeID](),
		runTimes: map[types.NamespacedName]time.Duration{}, ends: map[planner.Tenant]time.Time{},
	}
}

// On implements planner.Tenants.
func (o *occupants) On(node planner.NodeID) []planner.Tenancy {
	if !o.seen.Has(node) {
		o.seen.Insert(node)
		for _, info := range o.pl.cluster.Info(node).GetPods() {
			o.note(info.GetPod())
		}
	}
	return o.Tenants.On(node)
}

// note notes when a pod ends: its tenant ends with the last of its pods.
func (o *occupants) note(pod *corev1.Pod) {
	tenant, at := gangplan.TenantOf(pod), endOf(pod, o.runTime(pod), o.now)
	switch last, met := o.ends[tenant]; {
	case !met:
		o.ends[tenant] = at
	case at.IsZero() || last.IsZero():
		o.ends[tenant] = time.Time{}
	case at.After(last):
		o.ends[tenant] = at
	}
}

// runTime returns what is declared for the pod's gang, or for a pod without one, 0 if nothing is.
func (o *occupants) runTime(pod *corev1.Pod) time.Duration {
	key, ok := podgroup.Key(pod)
	if !ok {
		return candidateFor(key, nil, pod).runTime
	}
	runTime, known := o.runTimes[key]
	if !known {
		runTime = o.pl.runTimeOf(key)
		o.runTimes[key] = runTime
	}
	return runTime
}

// end implements planner.Ends, in nanoseconds since 1970.
func (o *occupants) end(t planner.Tenant) (at int64, known bool) {
	end, ok := o.ends[t]
	return end.UnixNano(), ok && !end.IsZero()
}

// runTimeOf returns the run time that a PodGroup declares, 0 if none.
func (pl *Coscheduling) runTimeOf(key types.NamespacedName) time.Duration {
	group := pl.group(key)
	if group == nil {
		return 0
	}
	s, _ := podgroup.ParseSettings(group.Annotations)
	return s.RunTime
}

// endOf returns when a pod with a place ends at the latest, or the zero time if that is not known. runTime is what is
// declared for its gang or itself, 0 if nothing is.
func endOf(pod *corev1.Pod, runTime time.Duration, now time.Time) time.Time {
	started := now // it does not run yet
	if pod.Status.StartTime != nil {
		started = pod.Status.StartTime.Time
	}
	var at time.Time
	earlier := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if runTime > 0 && now.Before(started.Add(runTime)) {
		earlier(started.Add(runTime))
	}
	if s := pod.Spec.ActiveDeadlineSeconds; s != nil {
		earlier(later(started.Add(time.Duration(*s)*time.Second), now))
	}
	if pod.DeletionTimestamp != nil {
		earlier(later(pod.DeletionTimestamp.Time, now))
	}
	return at
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

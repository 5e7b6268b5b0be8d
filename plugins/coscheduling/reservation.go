package coscheduling

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/podgroup/planner"
)

// Reasons of the PodGroup condition Reserved, besides Placed, Incomplete and those of a refusal.
const (
	// ReasonWaitingForRoom means that room is kept for the gang until it fits.
	ReasonWaitingForRoom = "WaitingForRoom"
	// ReasonDisplaced means that a gang of higher priority has the reservation now.
	ReasonDisplaced = "Displaced"
	// ReasonTimeOver means that the gang did not fit in the longest time for which room is kept.
	ReasonTimeOver = "TimeOver"
	// ReasonNoRoom means that the places are lost, and no others would become free.
	ReasonNoRoom = "NoRoom"
)

// hopelessFor is how long it is not looked again for room that becomes free for a gang that nobody's end would help.
const hopelessFor = 30 * time.Second

// reservations is the one reservation that there is, and who waits for the next. It is safe for concurrent use and
// calls nobody with its lock held.
type reservations struct {
	mu      sync.Mutex
	current *reservation
	waiting map[types.NamespacedName]*waiting
}

// waiting is a gang that is complete and has no place.
type waiting struct {
	// since is when it became complete, and back when its last turn was over without a place; zero if it had none.
	since, back time.Time
	// hopeless is when nobody's end would have helped it; zero if that was not found.
	hopeless time.Time
	// timed is set while it is to be looked at again when it has waited for long enough.
	timed bool
}

// reservation is room that is kept for a gang until it fits. It does not change once it is made.
type reservation struct {
	gang     types.NamespacedName
	priority int32
	// preempts is set if the gang may preempt.
	preempts bool
	// members are those that have seats, and seats the nodes of these, "" for those that need none yet.
	members []types.UID
	seats   []string
	claims  []gangplan.Claim
	// on has the nodes of the seats.
	on sets.Set[string]
	// where is the domain of the seats, in words.
	where string
	wait  planner.Wait
	// basis is what has to end before these very seats are free, as it was computed first.
	basis planner.Wait
	// made is when the gang got its first reservation of this turn, and until when the turn is over.
	made, until time.Time
}

// expected is when the seats are free, as far as that is known.
func (r *reservation) expected() (time.Time, bool) {
	return time.Unix(0, r.wait.At).UTC(), r.wait.Unknown == 0 && r.wait.At > 0
}

// maxWaitedFor bounds how many tenants a message names.
const maxWaitedFor = 8

// String says where room is reserved, what has to end before it is free, and until when it is kept.
func (r *reservation) String() string {
	text := fmt.Sprintf("room for %d members is reserved in %s", len(r.claims), r.where)
	if n := len(r.wait.Waiting); n > 0 {
		var names []string
		for _, t := range r.wait.Waiting[:min(n, maxWaitedFor)] {
			names = append(names, t.String())
		}
		if more := n - len(names); more > 0 {
			names = append(names, fmt.Sprintf("%d more", more))
		}
		text += "; free when these have ended: " + strings.Join(names, ", ")
	}
	if at, known := r.expected(); known {
		text += "; expected by " + at.Format(time.RFC3339)
	}
	return text + "; kept until " + r.until.UTC().Format(time.RFC3339) + " at most"
}

// whose says for whom the room is, to those who would have liked it.
func (r *reservation) whose() string {
	if at, known := r.expected(); known {
		return fmt.Sprintf("%s until about %s", r.gang, at.Format(time.RFC3339))
	}
	return fmt.Sprintf("%s until %s at most", r.gang, r.until.UTC().Format(time.RFC3339))
}

func (r *reservation) owner() holdOwner { return holdOwner{r.gang, reservationHold} }

// enter notes that a gang waits since some time, unless that is known.
func (rs *reservations) enter(key types.NamespacedName, since time.Time) *waiting {
	w, ok := rs.waiting[key]
	if !ok {
		if rs.waiting == nil {
			rs.waiting = map[types.NamespacedName]*waiting{}
		}
		w = &waiting{since: since}
		rs.waiting[key] = w
	}
	return w
}

// leave forgets a gang that waits no more.
func (rs *reservations) leave(key types.NamespacedName) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.waiting, key)
}

// now returns the reservation that there is, or nil.
func (rs *reservations) now() *reservation {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.current
}

// replace makes one reservation the present one if another still is. It reports whether that was so.
func (rs *reservations) replace(was, is *reservation) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.current != was {
		return false
	}
	rs.current = is
	return true
}

// inLine is a refused gang as it stands in the line for the reservation.
type inLine struct {
	gang     types.NamespacedName
	priority int32
	since    time.Time
}

// compare orders the line by priority, then by age: that of the PodGroup, as in the queue, or the time since the last
// turn, for a gang that had one. A gang that had its turn is behind all that are there.
func (a inLine) compare(b inLine) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), a.since.Compare(b.since), strings.Compare(a.gang.String(), b.gang.String()))
}

// due selects from refused gangs those that have waited for long enough and that somebody's end may help, apart from
// the given one, for which that is just to be found out.
func (pl *Coscheduling) due(refused []inLine, asks types.NamespacedName) []inLine {
	pl.reserving.mu.Lock()
	defer pl.reserving.mu.Unlock()
	now := pl.clock.Now()
	return slices.DeleteFunc(refused, func(x inLine) bool {
		w, ok := pl.reserving.waiting[x.gang]
		return !ok || now.Before(w.since.Add(pl.args.Reservation.after())) || !w.hopeless.IsZero() && x.gang != asks
	})
}

// first returns the gang whose turn it is to get the reservation. The gang that asks, if any, is refused right now.
func (pl *Coscheduling) first(asks *inLine) (inLine, bool) {
	refused := pl.gangs.refusedForRoom()
	for i := range refused {
		refused[i] = pl.standInLine(refused[i].gang, refused[i].priority)
	}
	var asking types.NamespacedName
	if asks != nil {
		asking = asks.gang
		refused = append(slices.DeleteFunc(refused, func(x inLine) bool { return x.gang == asking }), *asks)
	}
	line := pl.due(refused, asking)
	if len(line) == 0 {
		return inLine{}, false
	}
	return slices.MinFunc(line, inLine.compare), true
}

// standInLine says where a gang stands in the line.
func (pl *Coscheduling) standInLine(key types.NamespacedName, priority int32) inLine {
	x := inLine{gang: key, priority: priority}
	if group := pl.group(key); group != nil {
		x.since = group.CreationTimestamp.Time
	}
	pl.reserving.mu.Lock()
	defer pl.reserving.mu.Unlock()
	if w, ok := pl.reserving.waiting[key]; ok && !w.back.IsZero() {
		x.since = w.back
	}
	return x
}

// reserveRoom is asked about a gang that was just found not to fit. It makes the reservation if that is the gang's
// turn, or looks whether the one that the gang has is still the best.
func (pl *Coscheduling) reserveRoom(logger klog.Logger, key types.NamespacedName, d *gangplan.Demand, e *planner.Explanation) {
	if pl.args.Reservation.after() == 0 {
		return
	}
	current := pl.reserving.now()
	if current != nil && current.gang == key {
		pl.revise(logger, current, d, e)
		return
	}
	if !pl.waitedLong(logger, key) {
		return
	}
	asks := pl.standInLine(key, corev1helpers.PodPriority(d.Pods[0]))
	if current != nil && asks.priority <= current.priority {
		return
	}
	if first, ok := pl.first(&asks); ok && first.gang != key {
		pl.activateRepresentative(logger, first.gang)
		return
	}
	made := pl.clock.Now()
	r := pl.soonest(d, e, made, made.Add(pl.args.Reservation.longest()))
	if r == nil {
		pl.noHope(logger, key)
		return
	}
	if current != nil {
		pl.endReservation(logger, current, ReasonDisplaced, fmt.Sprintf("PodGroup %s, which has a higher priority, needs the reservation", key), false)
	}
	if pl.reserving.replace(nil, r) {
		reservationsActive.Set(1)
		pl.keepReserved(logger, r)
	}
}

// waitedLong reports whether a refused gang has waited for long enough. If not, it is looked at again when it has.
func (pl *Coscheduling) waitedLong(logger klog.Logger, key types.NamespacedName) bool {
	rs := &pl.reserving
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := pl.clock.Now()
	w := rs.enter(key, now)
	due := w.since.Add(pl.args.Reservation.after())
	if !now.Before(due) {
		if now.Sub(w.hopeless) < hopelessFor {
			return false
		}
		w.hopeless = time.Time{}
		return true
	}
	if !w.timed {
		w.timed = true
		pl.clock.AfterFunc(due.Sub(now), func() {
			rs.mu.Lock()
			w.timed = false
			rs.mu.Unlock()
			pl.callFirst(logger)
		})
	}
	return false
}

// noHope notes that nobody's end would help a gang, and gives the next one its turn.
func (pl *Coscheduling) noHope(logger klog.Logger, key types.NamespacedName) {
	pl.reserving.mu.Lock()
	pl.reserving.enter(key, pl.clock.Now()).hopeless = pl.clock.Now()
	pl.reserving.mu.Unlock()
	pl.callFirst(logger)
}

// callFirst puts the gang in line whose turn it is to get the reservation, if it is free or held for a gang of lower
// priority: the reservation is made when the gang is refused again.
func (pl *Coscheduling) callFirst(logger klog.Logger) {
	first, ok := pl.first(nil)
	if current := pl.reserving.now(); ok && (current == nil || first.priority > current.priority) {
		pl.activateRepresentative(logger, first.gang)
	}
}

// keepReserved holds the room of a reservation, says so, and sees to its end.
func (pl *Coscheduling) keepReserved(logger klog.Logger, r *reservation) {
	pl.hold(logger, r.owner(), &hold{claims: r.claims, priority: r.priority, until: r.until, admits: pl.backfill(r)})
	logger.V(2).Info("Room is reserved for a gang", "podGroup", r.gang, "where", r.where, "members", len(r.claims), "waitsFor", len(r.wait.Waiting), "until", r.until)
	pl.report.say(r.gang, v1alpha1.ConditionReserved, report{metav1.ConditionTrue, ReasonWaitingForRoom, r.String()})
	now := pl.clock.Now()
	pl.clock.AfterFunc(r.until.Sub(now), func() {
		if current := pl.reserving.now(); current != nil && current.gang == r.gang && current.until.Equal(r.until) {
			pl.endReservation(logger, current, ReasonTimeOver, fmt.Sprintf(
				"room was reserved for %v, the longest time possible; the next gang that waits has its turn", pl.args.Reservation.longest()), true)
		}
	})
	if at, known := r.expected(); known && at.After(now) {
		pl.clock.AfterFunc(at.Sub(now)+time.Second, func() {
			if pl.reserving.now() == r {
				pl.activateRepresentative(logger, r.gang) // something did not end when it should have
			}
		})
	}
}

// endReservation ends a reservation if it is the present one, and says why. The next gang has its turn; back puts
// this one behind all others that wait.
func (pl *Coscheduling) endReservation(logger klog.Logger, r *reservation, reason, why string, back bool) {
	if !pl.reserving.replace(r, nil) {
		return
	}
	now := pl.clock.Now()
	if back {
		pl.reserving.mu.Lock()
		pl.reserving.enter(r.gang, r.made).back = now
		pl.reserving.mu.Unlock()
	}
	reservationsActive.Set(0)
	reservationDuration.WithLabelValues(reason).Observe(now.Sub(r.made).Seconds())
	logger.V(2).Info("Room is reserved no more", "podGroup", r.gang, "reason", reason, "why", why)
	pl.report.say(r.gang, v1alpha1.ConditionReserved, report{metav1.ConditionFalse, reason, why})
	pl.unhold(logger, r.owner())
	if reason != ReasonDisplaced {
		pl.callFirst(logger)
	}
}

// needsNoRoom takes a gang out of the line that has its place, or that cannot have one as it is now, and ends what
// is reserved for it.
func (pl *Coscheduling) needsNoRoom(logger klog.Logger, key types.NamespacedName, reason, why string) {
	pl.reserving.leave(key)
	if current := pl.reserving.now(); current != nil && current.gang == key {
		pl.endReservation(logger, current, reason, why, false)
	}
}

// waitsForRoom notes since when a gang waits for room: since it became complete, or since it was refused first, which
// a scheduler that died may have seen.
func (pl *Coscheduling) waitsForRoom(key types.NamespacedName) {
	if pl.args.Reservation.after() == 0 {
		return
	}
	since := pl.clock.Now()
	if group := pl.group(key); group != nil {
		refused := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionUnschedulable)
		if refused != nil && refused.Status == metav1.ConditionTrue && refused.LastTransitionTime.Time.Before(since) {
			since = refused.LastTransitionTime.Time
		}
	}
	pl.reserving.mu.Lock()
	defer pl.reserving.mu.Unlock()
	pl.reserving.enter(key, since)
}

// correctReservation takes back a condition of a scheduler that died.
func (pl *Coscheduling) correctReservation(key types.NamespacedName, group *v1alpha1.PodGroup) {
	if meta.IsStatusConditionTrue(group.Status.Conditions, v1alpha1.ConditionReserved) && !pl.report.saidOf(key, v1alpha1.ConditionReserved) {
		pl.report.say(key, v1alpha1.ConditionReserved, report{metav1.ConditionFalse, ReasonNoRoom, "no room is reserved for the gang"})
	}
}

// addKept adds to the explanation of a refusal what is reserved for another gang, if that is what keeps this one from
// its place. What others hold is out of the model.
func (pl *Coscheduling) addKept(key types.NamespacedName, d *gangplan.Demand, e *planner.Explanation) {
	r := pl.reserving.now()
	if r == nil || r.gang == key || !pl.holds.bind(r.owner(), pl.candidate(key, d.Pods...), pl.clock.Now()) {
		return
	}
	release := pl.cluster.Unhold(r.claims)
	plan, _, err := pl.cluster.Plan(&d.Demand, nil)
	release()
	if err != nil || plan == nil {
		return
	}
	e.Kept = append(e.Kept, planner.Kept{ResourceAmount: gangplan.MostWanted(r.claims), Where: r.where, For: r.whose()})
}

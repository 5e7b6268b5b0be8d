package podgroup

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// RendezvousState is how far the members of a gang have come in meeting each other.
type RendezvousState int

const (
	// Assembling is a gang of which no member has a node. It holds nothing, and no deadline runs.
	Assembling RendezvousState = iota

	// Meeting is a gang with members that have a node, of which not enough have ever been ready together. It may
	// be bound in part only. The deadline runs from its first bound member.
	Meeting

	// Met is a gang with enough ready members.
	Met

	// Repairing is a gang that met and then lost members, or some of them are not ready any more. The deadline runs
	// only while fewer members than needed have a place.
	Repairing

	// Resting is a gang that was released and is not planned before a certain time.
	Resting

	// GivenUp is a gang of which too many rendezvous timed out.
	GivenUp
)

// String returns the state's name.
func (s RendezvousState) String() string {
	names := []string{"Assembling", "Meeting", "Met", "Repairing", "Resting", "GivenUp"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("RendezvousState(%d)", int(s))
}

// RendezvousPolicy says when gangs are released whose members do not meet.
type RendezvousPolicy struct {
	// Timeout is how long a gang may hold places without enough ready members, 0 for ever. The PodGroup's
	// annotation wins.
	Timeout time.Duration

	// Limit is how many rendezvous in a row may time out before the gang is given up, 0 for any number.
	Limit int

	// Backoff is how long a gang rests after the first release. It doubles with each release, up to MaxBackoff.
	Backoff, MaxBackoff time.Duration
}

// DefaultRendezvousPolicy returns the policy of a scheduler that was told nothing: see
// docs/decisions/0008-rendezvous-deadline.md.
func DefaultRendezvousPolicy() RendezvousPolicy {
	return RendezvousPolicy{Timeout: 30 * time.Minute, Limit: 5, Backoff: time.Minute, MaxBackoff: 30 * time.Minute}
}

// Validate returns an error that names the field that cannot be followed.
func (p RendezvousPolicy) Validate() error {
	for _, field := range []struct {
		name  string
		value time.Duration
	}{{"Timeout", p.Timeout}, {"Backoff", p.Backoff}, {"MaxBackoff", p.MaxBackoff}} {
		if field.value < 0 {
			return fmt.Errorf("%s: must not be negative, is %s", field.name, field.value)
		}
	}
	if p.Limit < 0 {
		return fmt.Errorf("%s: must not be negative, is %d", "Limit", p.Limit)
	}
	if p.MaxBackoff < p.Backoff {
		return fmt.Errorf("MaxBackoff: must not be less than Backoff, which is %s, is %s", p.Backoff, p.MaxBackoff)
	}
	return nil
}

// rest is how long a gang rests after so many rendezvous timed out.
func (p RendezvousPolicy) rest(attempts int) time.Duration {
	rest := p.Backoff
	for range attempts - 1 {
		if rest >= p.MaxBackoff {
			break
		}
		rest *= 2
	}
	return max(min(rest, p.MaxBackoff), 0)
}

// Record is what the podgroup controller keeps about a gang's rendezvous, in annotations of the PodGroup. The zero
// Record is that of a gang that was never released since it last met.
type Record struct {
	// Attempts is how many rendezvous in a row timed out.
	Attempts int

	// ReleasedAt is when the gang was released last. Members bound no later are to be evicted.
	ReleasedAt time.Time

	// NotBefore is when the gang may be planned again.
	NotBefore time.Time

	// GivenUp is whether it is not planned any more.
	GivenUp bool

	// AdmittedAt is when a gang with the match policy OnceSatisfied had its quorum first.
	AdmittedAt time.Time
}

// Annotations returns the annotations that make the record.
func (r Record) Annotations() map[string]string {
	annotations := map[string]string{}
	for key, at := range map[string]time.Time{ReleasedAtAnnotation: r.ReleasedAt, NotBeforeAnnotation: r.NotBefore, AdmittedAtAnnotation: r.AdmittedAt} {
		if !at.IsZero() {
			annotations[key] = at.UTC().Format(time.RFC3339)
		}
	}
	if r.Attempts > 0 {
		annotations[RendezvousAttemptsAnnotation] = strconv.Itoa(r.Attempts)
	}
	if r.GivenUp {
		annotations[GivenUpAnnotation] = "true"
	}
	return annotations
}

// Equal reports whether two records say the same.
func (r Record) Equal(other Record) bool {
	return r.Attempts == other.Attempts && r.GivenUp == other.GivenUp && r.ReleasedAt.Equal(other.ReleasedAt) &&
		r.NotBefore.Equal(other.NotBefore) && r.AdmittedAt.Equal(other.AdmittedAt)
}

// Rendezvous is how things stand with the meeting of a gang's members.
type Rendezvous struct {
	State RendezvousState

	// Since is when the time began to run that the deadline is for; zero if none runs.
	Since time.Time

	// Ready is how many members are ready or have succeeded, of Needed.
	Ready, Needed int

	// placed is how many members have a node or have succeeded.
	placed int

	// lastBound is when the last member that has a node got it.
	lastBound time.Time
}

// Verdict is what is to be done about a gang's rendezvous.
type Verdict struct {
	// Record is what the PodGroup's record should be. A release is due when it has a new ReleasedAt.
	Record Record

	// Again is when to look again though nothing happens; zero if never.
	Again time.Time

	// Release is whether the record is that of a release that the PodGroup does not show yet.
	Release bool

	// Reason is why the gang is released: ReasonMembersMissing or ReasonMembersNotReady.
	Reason string
}

// Judge says what is to be done about the gang's rendezvous. It is a pure function; the members are all pods of the
// gang, in any order.
//
// A gang is released whole if it holds places without having met for as long as the timeout, or if it met once and
// then has fewer members with a place than it needs for as long. Members of a gang that met and has its places are
// waited for, however long they take to be ready. A gang is the one that met as long as a member is left that was
// there then.
func (p RendezvousPolicy) Judge(group *v1alpha1.PodGroup, members []Member, now time.Time) Verdict {
	settings, _ := ParseSettings(group.Annotations)
	if problem := Problem(group); problem != "" {
		// Nobody knows what was meant. Places that such a gang holds, it was given when it was valid.
		return Verdict{Record: settings.Record}
	}
	r := rendezvousOf(group, settings, speakers(members), now)
	verdict := Verdict{Record: settings.Record}
	switch {
	case r.State == GivenUp:
	case atRest(group.Status.Phase):
		verdict.Record = Record{}
	case r.State == Met:
		verdict.Record = Record{AdmittedAt: settings.Record.AdmittedAt}
	case r.State == Resting:
		verdict.Again = settings.Record.NotBefore
	case r.Since.IsZero():
	default:
		timeout := p.Timeout
		if settings.RendezvousTimeout != nil {
			timeout = *settings.RendezvousTimeout
		}
		deadline := r.Since.Add(timeout)
		switch {
		case timeout == 0:
		case now.Before(deadline):
			verdict.Again = deadline
		default:
			verdict.Record, verdict.Release, verdict.Reason = p.release(settings.Record, now), true, r.lacks()
			return verdict
		}
	}
	if settings.MatchPolicy == OnceSatisfied && verdict.Record.AdmittedAt.IsZero() && r.admitted() && !atRest(group.Status.Phase) {
		verdict.Record.AdmittedAt = inSeconds(now)
	}
	return verdict
}

// release returns the record of a gang that is released now.
func (p RendezvousPolicy) release(before Record, now time.Time) Record {
	r := Record{Attempts: min(before.Attempts, math.MaxInt-1) + 1, ReleasedAt: inSeconds(now)}
	if p.Limit > 0 && r.Attempts >= p.Limit {
		r.GivenUp = true
	} else {
		r.NotBefore = inSeconds(now.Add(p.rest(r.Attempts) + time.Second - 1))
	}
	return r
}

// inSeconds cuts a time to what annotations and conditions can say.
func inSeconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// ToEvict returns the members that the gang's release has yet to evict: all that have a node while the gang rests or
// was given up, and later those that had it before the release. Members that wait hold nothing and stay.
func ToEvict(group *v1alpha1.PodGroup, members []Member, now time.Time) []Member {
	settings, _ := ParseSettings(group.Annotations)
	record := settings.Record
	if record.ReleasedAt.IsZero() || rendezvousOf(group, settings, speakers(members), now).State == Met {
		return nil
	}
	var held []Member
	for _, m := range members {
		if m.holdsPlace() && (record.rests(now) || record.leftover(&m)) {
			held = append(held, m)
		}
	}
	return held
}

// rests is whether no member may have a place now.
func (r Record) rests(now time.Time) bool {
	return r.GivenUp || !r.ReleasedAt.IsZero() && now.Before(r.NotBefore)
}

// leftover is whether the member has had its place since before the gang was released.
func (r Record) leftover(m *Member) bool {
	return !r.ReleasedAt.IsZero() && m.BoundSince <= r.ReleasedAt.Unix()
}

// lacks is the reason of a release: what a gang did not have that has not met.
func (r Rendezvous) lacks() string {
	if r.placed < r.Needed {
		return v1alpha1.ReasonMembersMissing
	}
	return v1alpha1.ReasonMembersNotReady
}

// admitted is whether the gang has its quorum of places.
func (r Rendezvous) admitted() bool {
	return r.placed >= r.Needed && r.State != Resting && r.State != GivenUp
}

func (m *Member) holdsPlace() bool { return m.State == Bound || m.State == Running }

// rendezvousOf finds out how things stand. members holds one member for each place. A gang that has met in spite of
// its release, before its members were evicted, has met.
func rendezvousOf(group *v1alpha1.PodGroup, settings Settings, members []Member, now time.Time) Rendezvous {
	r := meetingOf(group, settings, members, now)
	switch {
	case r.State == Met:
	case settings.Record.GivenUp:
		r.State, r.Since = GivenUp, time.Time{}
	case settings.Record.rests(now):
		r.State, r.Since = Resting, time.Time{}
	}
	return r
}

// meetingOf finds out how things stand, or stood when the gang was released, if that was not told yet.
func meetingOf(group *v1alpha1.PodGroup, settings Settings, members []Member, now time.Time) Rendezvous {
	r := Rendezvous{Needed: max(int(group.Spec.MinMember), 1)}
	bound, first := 0, now.Unix()
	for i := range members {
		switch m := &members[i]; {
		case m.State == Succeeded:
			r.Ready++
			r.placed++
		case m.holdsPlace():
			bound++
			r.placed++
			if at := time.Unix(m.BoundSince, 0); at.After(r.lastBound) {
				r.lastBound = at
			}
			if !settings.Record.leftover(m) {
				first = min(first, m.BoundSince)
			}
			if m.Ready {
				r.Ready++
			}
		}
	}
	ready := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case r.Ready >= r.Needed:
		r.State = Met
	case bound == 0:
		r.State = Assembling
	case metBefore(group.Status.Phase, ready, members):
		r.State = Repairing
		if r.placed < r.Needed && settings.MatchPolicy != OnceSatisfied {
			r.Since = lostSince(group, ready, now)
		}
	default:
		r.State, r.Since = Meeting, meetingSince(group, settings.Record, ready, time.Unix(first, 0), now)
	}
	return r
}

// meetingSince is when a gang that has not met began to hold places: when its first member was bound, unless that
// member is of another time, and then when that was found out.
func meetingSince(group *v1alpha1.PodGroup, record Record, ready *metav1.Condition, first, now time.Time) time.Time {
	since := now
	switch {
	case ready != nil && ready.Status == metav1.ConditionUnknown && (record.rests(now) || !ready.LastTransitionTime.Time.Before(record.ReleasedAt)):
		since = ready.LastTransitionTime.Time
	case ready == nil || ready.Status == metav1.ConditionUnknown || ready.Status == metav1.ConditionFalse && ready.Reason != v1alpha1.ReasonRepairing:
		since = first
	}
	if created := group.CreationTimestamp.Time; since.Before(created) {
		since = created
	}
	if since.After(now) {
		since = now
	}
	return inSeconds(since)
}

// metBefore is whether the members at hand are those of a gang that met: its condition Ready says so, and somebody
// is left who was there then. A group that has no such condition though it was seen with bound members is from
// before an upgrade, or conditions cannot be stored: it is taken for one that met, so as not to release what may
// work.
func metBefore(phase upstream.PodGroupPhase, ready *metav1.Condition, members []Member) bool {
	switch {
	case ready == nil:
		return phase == upstream.PodGroupScheduling || phase == upstream.PodGroupRunning || phase == upstream.PodGroupUnknown
	case ready.Status == metav1.ConditionUnknown:
		return false
	case ready.Status == metav1.ConditionFalse && ready.Reason != v1alpha1.ReasonRepairing:
		return false
	}
	for i := range members {
		if m := &members[i]; m.holdsPlace() && m.BoundSince <= ready.LastTransitionTime.Unix() {
			return true
		}
	}
	return false
}

// lostSince is since when a gang that met has fewer members with a place than it needs: since neither of the
// conditions that would say otherwise holds.
func lostSince(group *v1alpha1.PodGroup, ready *metav1.Condition, now time.Time) time.Time {
	since := time.Time{}
	for _, condition := range []*metav1.Condition{meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionScheduled), ready} {
		if condition == nil || condition.Status == metav1.ConditionTrue {
			return inSeconds(now)
		}
		if at := condition.LastTransitionTime.Time; at.After(since) {
			since = at
		}
	}
	return since
}

package podgroup

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// maxNamed is how many members a message names of those that are not ready.
const maxNamed = 5

// readyCondition says whether the gang has met. Beside telling users, it is the controller's memory: whether the gang
// met before, and since when it tries to. members holds one member for each place.
func readyCondition(group *v1alpha1.PodGroup, settings Settings, r Rendezvous, members []Member, phase upstream.PodGroupPhase, now time.Time) metav1.Condition {
	existing := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionReady)
	if resting(existing, group, phase) && r.State == Assembling {
		return *existing
	}
	condition := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(now)}
	if (r.State == Met || r.State == Repairing) && r.lastBound.After(now) {
		// The clocks differ, and members that are there must not seem to have come later.
		condition.LastTransitionTime = metav1.NewTime(r.lastBound)
	}
	ready := of(r.Ready, r.Needed) + " ready"
	switch r.State {
	case Assembling:
		condition.Reason, condition.Message = v1alpha1.ReasonAssembling, "no member has a node"
	case Meeting:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, v1alpha1.ReasonMeeting, ready+troubles(members)
		condition.LastTransitionTime = metav1.NewTime(r.Since)
	case Met:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, v1alpha1.ReasonMet, ready
	case Repairing:
		condition.Reason, condition.Message = v1alpha1.ReasonRepairing, ready+troubles(members)
	case Resting:
		condition.Reason, condition.Message = v1alpha1.ReasonResting, rests(settings.Record)
	case GivenUp:
		condition.Reason, condition.Message = v1alpha1.ReasonRendezvousLimit, gaveUp(settings.Record)
	}
	return condition
}

// timedOutCondition says why the gang was released last. Its type is empty for a gang that never was. Once the
// condition Ready says that the gang was released, its members are being evicted and tell nothing any more.
func timedOutCondition(group *v1alpha1.PodGroup, settings Settings, r Rendezvous, members []Member, now time.Time) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionRendezvousTimedOut}
	existing := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionRendezvousTimedOut)
	released := r.State == Resting || r.State == GivenUp
	switch {
	case released && (existing == nil || !told(group)):
		condition.Status = metav1.ConditionTrue
		condition.Reason, condition.Message = notMet(meetingOf(group, settings, members, now), settings.Record, members)
	case existing == nil:
		return metav1.Condition{}
	case r.State == Met:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonMet, of(r.Ready, r.Needed)+" ready"
		if existing.Status == metav1.ConditionFalse {
			condition.Message = existing.Message
		}
	default:
		return *existing
	}
	return condition
}

// told is whether the group's status tells of the release that its record has.
func told(group *v1alpha1.PodGroup) bool {
	ready := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && (ready.Reason == v1alpha1.ReasonResting || ready.Reason == v1alpha1.ReasonRendezvousLimit)
}

// notMet says why a gang was released, given how things stood.
func notMet(r Rendezvous, record Record, members []Member) (reason, message string) {
	after := ""
	if !r.Since.IsZero() && r.Since.Before(record.ReleasedAt) {
		after = fmt.Sprintf(" after %s", record.ReleasedAt.Sub(r.Since))
	}
	if reason = r.lacks(); reason == v1alpha1.ReasonMembersMissing {
		return reason, shortened(fmt.Sprintf("%d of %d %s without a place%s: %s",
			r.Needed-r.placed, r.Needed, plural(r.Needed), after, late(members, r.Needed, func(m *Member) bool { return !m.holdsPlace() })))
	}
	return reason, shortened(fmt.Sprintf("%d of %d %s not ready%s: %s",
		max(r.Needed-r.Ready, 0), r.Needed, plural(r.Needed), after, late(members, 0, func(m *Member) bool { return m.holdsPlace() && !m.Ready })))
}

// late names members that are not as they should be, those with known trouble first, and how many do not exist.
func late(members []Member, needed int, chosen func(*Member) bool) string {
	var named []Member
	for i := range members {
		if members[i].State != Succeeded && chosen(&members[i]) {
			named = append(named, members[i])
		}
	}
	slices.SortStableFunc(named, func(a, b Member) int {
		switch {
		case (a.Trouble == "") == (b.Trouble == ""):
			return 0
		case a.Trouble != "":
			return -1
		default:
			return 1
		}
	})
	var said []string
	for i := range named[:min(len(named), maxNamed)] {
		said = append(said, named[i].Name+" "+why(&named[i]))
	}
	if more := len(named) - maxNamed; more > 0 {
		said = append(said, fmt.Sprintf("%d more", more))
	}
	if missing := needed - len(members); missing > 0 {
		said = append(said, fmt.Sprintf("%d not created", missing))
	}
	return strings.Join(said, ", ")
}

// troubles names the members with known trouble, with a colon before them; "" if there are none.
func troubles(members []Member) string {
	inTrouble := func(m *Member) bool { return m.Trouble != "" }
	if !slices.ContainsFunc(members, func(m Member) bool { return inTrouble(&m) }) {
		return ""
	}
	return shortened(": " + late(members, 0, inTrouble))
}

// why says why a member is not ready.
func why(m *Member) string {
	switch {
	case m.Trouble != "":
		return m.Trouble
	case m.State == Gone:
		return "being deleted"
	case m.State == Failed:
		return "failed"
	case m.Gated:
		return "held by scheduling gates"
	case m.State == Waiting:
		return "not scheduled"
	case m.State == Bound:
		return "starting"
	default:
		return "not ready"
	}
}

// rests says until when a released gang rests.
func rests(record Record) string {
	return fmt.Sprintf("released after %s; planned again from %s on", timeouts(record), record.NotBefore.UTC().Format(time.RFC3339))
}

// gaveUp says that a gang was given up.
func gaveUp(record Record) string { return "given up after " + timeouts(record) }

func timeouts(record Record) string {
	if record.Attempts == 1 {
		return "1 rendezvous that timed out"
	}
	return fmt.Sprintf("%d rendezvous that timed out", record.Attempts)
}

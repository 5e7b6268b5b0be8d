package podgroup

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// maxMessage is the longest message, in bytes, that the schema of metav1.Condition accepts.
const maxMessage = 32768

// RefusesConditions reports whether an API server refused to apply the status of a PodGroup because the
// installed CustomResourceDefinition has no status.conditions, as scheduler-plugins ships it. The error has no
// reason of its own: all there is to go by is the wording of server-side apply.
func RefusesConditions(err error) bool {
	return err != nil && strings.Contains(err.Error(), ".status.conditions: field not declared in schema")
}

// scheduledCondition says whether the gang is scheduled and if not, what it waits for: the first thing in the
// order in which a user would have to put them right. members holds one member for each place.
func scheduledCondition(group *v1alpha1.PodGroup, settings Settings, r Rendezvous, members []Member, counts Counts, phase upstream.PodGroupPhase) metav1.Condition {
	if problem := Problem(group); problem != "" {
		return notScheduled(v1alpha1.ReasonInvalidSpec, problem)
	}
	switch r.State {
	case GivenUp:
		return notScheduled(v1alpha1.ReasonRendezvousLimit, gaveUp(settings.Record))
	case Resting:
		return notScheduled(v1alpha1.ReasonResting, rests(settings.Record))
	}
	minMember := int(group.Spec.MinMember)
	scheduled := counts.Bound + counts.Finished
	existing := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionScheduled)
	refusal := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionUnschedulable)
	switch {
	case resting(existing, group, phase) && (existing.Reason == v1alpha1.ReasonScheduled || existing.Reason == v1alpha1.ReasonMembersFailed):
		return *existing
	case phase == upstream.PodGroupFailed:
		return notScheduled(v1alpha1.ReasonMembersFailed, failure(counts, minMember))
	case phase == upstream.PodGroupFinished || scheduled >= minMember:
		return metav1.Condition{
			Type:    v1alpha1.ConditionScheduled,
			Status:  metav1.ConditionTrue,
			Reason:  v1alpha1.ReasonScheduled,
			Message: of(scheduled, minMember) + " scheduled",
		}
	case counts.Present < minMember:
		return notScheduled(v1alpha1.ReasonWaitingForMembers, missing(counts, minMember))
	case counts.Present-counts.Gated < minMember:
		first := members[slices.IndexFunc(members, func(m Member) bool { return m.State == Waiting && m.Gated })]
		return notScheduled(v1alpha1.ReasonSchedulingGated, fmt.Sprintf(
			"%s created, %d held by scheduling gates, the first of them pod %s", of(counts.Present, minMember), counts.Gated, first.Name))
	case refusal != nil && refusal.Status == metav1.ConditionTrue:
		return notScheduled(v1alpha1.ReasonUnschedulable, refusal.Message)
	}
	if names := schedulers(members); len(names) > 1 {
		return notScheduled(v1alpha1.ReasonMixedSchedulers,
			"spec.schedulerName differs between the members that wait: "+strings.Join(names, ", "))
	}
	return notScheduled(v1alpha1.ReasonScheduling,
		fmt.Sprintf("%s created, %d scheduled", of(counts.Present, minMember), scheduled))
}

// finishedCondition says whether the gang came to rest. Its type is empty for one that never did.
func finishedCondition(group *v1alpha1.PodGroup, r Rendezvous, timedOut metav1.Condition, counts Counts, phase upstream.PodGroupPhase) metav1.Condition {
	minMember := max(int(group.Spec.MinMember), 1)
	existing := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionFinished)
	switch {
	case r.State == GivenUp:
		settings, _ := ParseSettings(group.Annotations)
		return metav1.Condition{
			Type:   v1alpha1.ConditionFinished,
			Status: metav1.ConditionTrue,
			Reason: v1alpha1.ReasonRendezvousLimit,
			Message: shortened(fmt.Sprintf("%s, the last with %s; to try once more, remove the annotation %s",
				gaveUp(settings.Record), timedOut.Message, GivenUpAnnotation)),
		}
	case resting(existing, group, phase) && existing.Status == metav1.ConditionTrue:
		return *existing
	case phase == upstream.PodGroupFinished:
		return metav1.Condition{
			Type:    v1alpha1.ConditionFinished,
			Status:  metav1.ConditionTrue,
			Reason:  v1alpha1.ReasonSucceeded,
			Message: of(counts.Finished, minMember) + " succeeded",
		}
	case phase == upstream.PodGroupFailed:
		return metav1.Condition{
			Type:    v1alpha1.ConditionFinished,
			Status:  metav1.ConditionTrue,
			Reason:  v1alpha1.ReasonFailed,
			Message: failure(counts, minMember),
		}
	case existing != nil:
		return metav1.Condition{
			Type:    v1alpha1.ConditionFinished,
			Status:  metav1.ConditionFalse,
			Reason:  v1alpha1.ReasonInProgress,
			Message: "members appeared after the group had finished",
		}
	default:
		return metav1.Condition{}
	}
}

// resting is whether the group was at rest in this phase before. The pods of such a group are cleaned up one
// after another, which tells nothing new about it: the existing condition stays.
func resting(existing *metav1.Condition, group *v1alpha1.PodGroup, phase upstream.PodGroupPhase) bool {
	return existing != nil && atRest(phase) && group.Status.Phase == phase
}

func notScheduled(reason, message string) metav1.Condition {
	return metav1.Condition{
		Type:    v1alpha1.ConditionScheduled,
		Status:  metav1.ConditionFalse,
		Reason:  reason,
		Message: shortened(message),
	}
}

// shortened cuts a message to what a condition can hold.
func shortened(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "")
}

// of says "3 of 8 members", or "9 members (8 needed)" where there are more than needed.
func of(n, minMember int) string {
	if n > minMember {
		return fmt.Sprintf("%d members (%d needed)", n, minMember)
	}
	return fmt.Sprintf("%d of %d %s", n, minMember, plural(minMember))
}

func plural(n int) string {
	if n == 1 {
		return "member"
	}
	return "members"
}

// missing says how many members there are, and why some that exist do not count.
func missing(counts Counts, minMember int) string {
	message := of(counts.Present, minMember) + " created"
	if counts.Failed > 0 {
		message += fmt.Sprintf(", %d failed", counts.Failed)
	}
	if counts.Gone > 0 {
		message += fmt.Sprintf(", %d being deleted", counts.Gone)
	}
	return message
}

// failure says how a gang ended that did not succeed.
func failure(counts Counts, minMember int) string {
	return fmt.Sprintf("%d %s failed, %d of %d succeeded, none is left to run",
		counts.Failed, plural(counts.Failed), counts.Finished, minMember)
}

// schedulers returns the names of the schedulers that the waiting members ask for, with how many ask.
func schedulers(members []Member) []string {
	asked := map[string]int{}
	for _, m := range members {
		if m.State == Waiting {
			asked[m.SchedulerName]++
		}
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		names = append(names, fmt.Sprintf("%s (%d)", name, asked[name]))
	}
	return names
}

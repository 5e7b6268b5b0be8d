package podgroup

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// ComputeStatus returns the status that the group has with these members, given in any order, all pods of the
// gang included. It is a pure function and counts anew each time. Of the group's present status it reads only
// what pods cannot tell: the Unschedulable condition that the scheduler wrote, that the group finished before
// its pods were cleaned up, that its members once met, and since when things are as they are. Conditions of other owners are returned
// unchanged. The rules are on the page docs/podgroup.md.
func ComputeStatus(group *v1alpha1.PodGroup, members []Member, now time.Time) v1alpha1.PodGroupStatus {
	members = speakers(members)
	settings, _ := ParseSettings(group.Annotations)
	r := rendezvousOf(group, settings, members, now)
	var counts Counts
	for _, m := range members {
		counts.add(m, 1)
	}
	minMember := max(int(group.Spec.MinMember), 1)

	status := v1alpha1.PodGroupStatus{Conditions: slices.Clone(group.Status.Conditions)}
	status.Phase = phase(group, r, counts, minMember)
	status.Running = int32(counts.Running)
	status.Succeeded = int32(counts.Finished)
	status.Failed = int32(counts.Failed)
	status.OccupiedBy = occupiedBy(group, members)
	status.ScheduleStartTime = scheduleStartTime(group, status.Phase, counts, minMember, now)

	timedOut := timedOutCondition(group, settings, r, members, now)
	setCondition(&status, group, now, scheduledCondition(group, settings, r, members, counts, status.Phase))
	setCondition(&status, group, now, readyCondition(group, settings, r, members, status.Phase, now))
	if r.State == Meeting {
		// Also if another rendezvous begins before the one that was released was seen to end.
		meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady).LastTransitionTime = metav1.NewTime(r.Since)
	}
	setCondition(&status, group, now, timedOut)
	setCondition(&status, group, now, finishedCondition(group, r, timedOut, counts, status.Phase))
	return status
}

// phase decides the phase; the first rule that holds wins.
func phase(group *v1alpha1.PodGroup, r Rendezvous, counts Counts, minMember int) upstream.PodGroupPhase {
	before := group.Status.Phase
	refused := meta.IsStatusConditionTrue(group.Status.Conditions, v1alpha1.ConditionUnschedulable)
	switch {
	case r.State == GivenUp:
		return upstream.PodGroupFailed
	case counts.Live == 0 && (counts.Finished >= minMember || before == upstream.PodGroupFinished):
		return upstream.PodGroupFinished
	case counts.Live == 0 && r.State != Resting && (counts.Failed > 0 || before == upstream.PodGroupFailed):
		return upstream.PodGroupFailed
	case counts.Running+counts.Finished >= minMember:
		return upstream.PodGroupRunning
	case counts.Bound+counts.Finished >= minMember:
		return upstream.PodGroupScheduling
	case counts.Bound > 0 && (counts.Present < minMember || refused):
		return upstream.PodGroupUnknown
	case counts.Bound > 0:
		return upstream.PodGroupScheduling
	default:
		return upstream.PodGroupPending
	}
}

// atRest is whether a group in this phase has nothing left to do.
func atRest(phase upstream.PodGroupPhase) bool {
	return phase == upstream.PodGroupFinished || phase == upstream.PodGroupFailed
}

// occupiedBy names the controller of the first member that has one, as namespace/name. With no such member
// it stays what it was.
func occupiedBy(group *v1alpha1.PodGroup, members []Member) string {
	for _, m := range members {
		if m.State != Gone && m.Owner.Name != "" {
			return m.Namespace + "/" + m.Owner.Name
		}
	}
	return group.Status.OccupiedBy
}

// scheduleStartTime is when the gang became complete, so that scheduling could start. A gang that falls back
// to waiting for members starts anew.
func scheduleStartTime(group *v1alpha1.PodGroup, phase upstream.PodGroupPhase, counts Counts, minMember int, now time.Time) metav1.Time {
	complete := counts.Present >= minMember
	switch before := group.Status.ScheduleStartTime; {
	case !complete && phase == upstream.PodGroupPending:
		return metav1.Time{}
	case complete && before.IsZero():
		return metav1.NewTime(now).Rfc3339Copy()
	default:
		return before
	}
}

// setCondition sets a condition of the status unless its type is empty.
func setCondition(status *v1alpha1.PodGroupStatus, group *v1alpha1.PodGroup, now time.Time, condition metav1.Condition) {
	if condition.Type == "" {
		return
	}
	condition.ObservedGeneration = group.Generation
	if condition.LastTransitionTime.IsZero() {
		condition.LastTransitionTime = metav1.NewTime(now)
	}
	condition.LastTransitionTime = condition.LastTransitionTime.Rfc3339Copy()
	meta.SetStatusCondition(&status.Conditions, condition)
}

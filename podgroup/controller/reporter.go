package controller

import (
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// incompleteGrace is how long a gang may wait for members before an event says so: most are complete within
// seconds, and nobody wants to read that they were not at first.
const incompleteGrace = 30 * time.Second

// maxNote is the longest note of an event, in bytes, that the API server accepts.
const maxNote = 1024

// action is what the events say the controller did.
const action = "UpdateStatus"

// reporter records an event when a group's state changes in kind, and none when only its numbers change or
// when the same state is found again.
type reporter struct {
	recorder events.EventRecorder

	lock sync.Mutex
	// last is what each group's state was when it was last looked at.
	last map[types.NamespacedName]observation
}

// observation is a state that a group was found in.
type observation struct {
	uid       types.UID
	condition string // type and reason
	since     time.Time
	told      bool // whether an event was recorded, or need not be
}

func newReporter(recorder events.EventRecorder) *reporter {
	return &reporter{recorder: recorder, last: map[types.NamespacedName]observation{}}
}

// report records an event if one is due for a group that now has this status. It returns after which time
// one may be due though nothing happens; 0 for never.
func (r *reporter) report(group *v1alpha1.PodGroup, status v1alpha1.PodGroupStatus, now time.Time) time.Duration {
	condition := headline(status.Conditions)
	if condition == nil {
		return 0
	}
	key := types.NamespacedName{Namespace: group.Namespace, Name: group.Name}

	r.lock.Lock()
	defer r.lock.Unlock()

	seen, ok := r.last[key]
	if !ok || seen.uid != group.UID {
		seen = recall(group, now)
	}
	if kind := kindOf(condition); seen.condition != kind {
		seen = observation{uid: group.UID, condition: kind, since: now, told: reportedElsewhere(condition.Reason)}
	}
	var wait time.Duration
	if !seen.told {
		if condition.Reason == v1alpha1.ReasonWaitingForMembers {
			wait = max(0, seen.since.Add(incompleteGrace).Sub(now))
		}
		if wait == 0 {
			r.recorder.Eventf(group, nil, eventType(condition.Reason), eventReason(condition), action, "%s", note(condition.Message))
			seen.told = true
		}
	}
	r.last[key] = seen
	return wait
}

// forget drops what is known of a group that no longer exists.
func (r *reporter) forget(key types.NamespacedName) {
	r.lock.Lock()
	defer r.lock.Unlock()
	delete(r.last, key)
}

// recall returns what a predecessor of this process, if any, wrote into the group's status and so reported.
func recall(group *v1alpha1.PodGroup, now time.Time) observation {
	condition := headline(group.Status.Conditions)
	if condition == nil {
		return observation{uid: group.UID}
	}
	seen := observation{uid: group.UID, condition: kindOf(condition), since: condition.LastTransitionTime.Time, told: true}
	if condition.Reason == v1alpha1.ReasonWaitingForMembers {
		seen.told = now.Sub(seen.since) >= incompleteGrace
	}
	return seen
}

// headline returns the condition that matters most: that the group finished, else why it was released if it rests for
// that, else whether it is scheduled.
func headline(conditions []metav1.Condition) *metav1.Condition {
	if meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionFinished) {
		return meta.FindStatusCondition(conditions, v1alpha1.ConditionFinished)
	}
	scheduled := meta.FindStatusCondition(conditions, v1alpha1.ConditionScheduled)
	if scheduled != nil && scheduled.Reason == v1alpha1.ReasonResting && meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionRendezvousTimedOut) {
		return meta.FindStatusCondition(conditions, v1alpha1.ConditionRendezvousTimedOut)
	}
	return scheduled
}

func kindOf(condition *metav1.Condition) string {
	return condition.Type + "/" + condition.Reason
}

// reportedElsewhere is whether a state needs no event of this controller: the scheduler records its refusals
// itself, and that it has not decided yet is no news.
func reportedElsewhere(reason string) bool {
	return reason == v1alpha1.ReasonUnschedulable || reason == v1alpha1.ReasonScheduling
}

func eventType(reason string) string {
	switch reason {
	case v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonMixedSchedulers, v1alpha1.ReasonMembersFailed, v1alpha1.ReasonFailed,
		v1alpha1.ReasonMembersNotReady, v1alpha1.ReasonMembersMissing, v1alpha1.ReasonRendezvousLimit:
		return corev1.EventTypeWarning
	default:
		return corev1.EventTypeNormal
	}
}

// note shortens a message to what an event can hold.
func note(message string) string {
	if len(message) <= maxNote {
		return message
	}
	const more = "..."
	return strings.ToValidUTF8(message[:maxNote-len(more)], "") + more
}

func eventReason(condition *metav1.Condition) string {
	if condition.Type == v1alpha1.ConditionRendezvousTimedOut {
		return condition.Type
	}
	if condition.Type == v1alpha1.ConditionFinished && condition.Reason == v1alpha1.ReasonSucceeded {
		return "Finished"
	}
	return condition.Reason
}

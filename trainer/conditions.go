package trainer

import (
	"cmp"
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/framework"
)

// Messages of conditions: the ones that Kubeflow Trainer's users match on.
const (
	messageSuspended        = "TrainJob is suspended"
	messageResumed          = "TrainJob is resumed"
	messageDeadlineExceeded = "TrainJob exceeded its active deadline"
)

func setSuspended(trainJob *v1alpha1.TrainJob) {
	switch {
	case ptr.Deref(trainJob.Spec.Suspend, false):
		meta.SetStatusCondition(&trainJob.Status.Conditions, metav1.Condition{
			Type: v1alpha1.TrainJobSuspended, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSuspended, Message: messageSuspended,
		})
	case meta.IsStatusConditionTrue(trainJob.Status.Conditions, v1alpha1.TrainJobSuspended):
		meta.SetStatusCondition(&trainJob.Status.Conditions, metav1.Condition{
			Type: v1alpha1.TrainJobSuspended, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonResumed, Message: messageResumed,
		})
	}
}

// maxMessageBytes is well below what the API server takes as a condition's message. What others refuse is told in their
// words, of whatever length, and a status that cannot be written would be tried for ever.
const maxMessageBytes = 16 << 10

func setFailed(trainJob *v1alpha1.TrainJob, reason, message string) {
	meta.SetStatusCondition(&trainJob.Status.Conditions, metav1.Condition{
		Type: v1alpha1.TrainJobFailed, Status: metav1.ConditionTrue, Reason: reason, Message: framework.Cut(message, maxMessageBytes),
	})
}

// setBlocked tells, for as long as it is so, why the children of a TrainJob cannot be made. What passes with the
// next try is not worth a write.
func setBlocked(trainJob *v1alpha1.TrainJob, err error) {
	switch {
	case err == nil:
		meta.RemoveStatusCondition(&trainJob.Status.Conditions, v1alpha1.TrainJobBlocked)
	case passing(err):
	default:
		meta.SetStatusCondition(&trainJob.Status.Conditions, metav1.Condition{
			Type: v1alpha1.TrainJobBlocked, Status: metav1.ConditionTrue, Reason: reasonSyncFailed, Message: note(err.Error()),
		})
	}
}

// passing tells whether an error comes of reading an old object, or of a busy API server.
func passing(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || errors.Is(err, context.Canceled)
}

// tidyConditions brings the conditions of a finished TrainJob into the order that kubectl needs, which shows the
// first one that holds: its end comes before that it is suspended. Nothing blocks it any more.
func tidyConditions(trainJob *v1alpha1.TrainJob) {
	if !trainJob.Finished() {
		return
	}
	meta.RemoveStatusCondition(&trainJob.Status.Conditions, v1alpha1.TrainJobBlocked)
	if !meta.IsStatusConditionTrue(trainJob.Status.Conditions, v1alpha1.TrainJobSuspended) {
		return
	}
	slices.SortStableFunc(trainJob.Status.Conditions, func(a, b metav1.Condition) int {
		return cmp.Compare(rank(a), rank(b))
	})
}

func rank(condition metav1.Condition) int {
	if condition.Type == v1alpha1.TrainJobSuspended {
		return 1
	}
	return 0
}

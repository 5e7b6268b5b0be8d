package trainer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/framework"
)

// Messages of conditions: the ones that Kubeflow Trainer's users match on.
const (
	messageSuspended        = "TrainJob is suspended"
	messageResumed          = "TrainJob is resumed"
	messageDeadlineExceeded = "TrainJob exceeded its active deadline"
)

// Reason and action of the event that tells of an error which is tried again.
const (
	reasonSyncFailed = "TrainJobResourcesCreationFailed"
	actionReconcile  = "Reconciling"
)

// The API server refuses event notes above 1024 bytes, and no reader needs every error of a list.
const (
	maxNoteBytes   = 1000
	maxErrorsShown = 8
)

type reconciler struct {
	client    client.Client
	framework *framework.Framework
	recorder  events.EventRecorder
	clock     clock.PassiveClock
}

// Reconcile brings the children of a TrainJob to what it asks for, and its status to what they report.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	trainJob := &v1alpha1.TrainJob{}
	if err := r.client.Get(ctx, req.NamespacedName, trainJob); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// The children of a TrainJob that is being deleted go with it.
	if trainJob.DeletionTimestamp != nil || !trainJob.ManagedByTrainer() {
		return ctrl.Result{}, nil
	}
	before := trainJob.DeepCopy()
	wait, err := r.reconcile(ctx, trainJob)
	if !equality.Semantic.DeepEqual(before.Status, trainJob.Status) {
		// The lock keeps a reconcile that read an old TrainJob from reviving a finished one.
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if patchErr := r.client.Status().Patch(ctx, trainJob, patch); patchErr != nil {
			return ctrl.Result{}, errors.Join(err, fmt.Errorf("updating the status: %w", patchErr))
		}
		r.recordFailure(before, trainJob)
	}
	if trainJob.Finished() {
		return ctrl.Result{}, errors.Join(err, r.framework.Finish(ctx, trainJob))
	}
	return ctrl.Result{RequeueAfter: wait}, err
}

// reconcile changes the cluster, and the status of trainJob in memory. It returns the time until the
// TrainJob's deadline, zero if there is none to wait for.
func (r *reconciler) reconcile(ctx context.Context, trainJob *v1alpha1.TrainJob) (time.Duration, error) {
	if trainJob.Finished() {
		return 0, r.framework.Status(ctx, trainJob)
	}
	setSuspended(trainJob)
	if err := r.framework.Status(ctx, trainJob); err != nil {
		return 0, err
	}
	if trainJob.Finished() {
		return 0, nil
	}
	// Before the children are made: else a TrainJob past its deadline could get a JobSet again.
	wait, exceeded := r.deadline(trainJob)
	if exceeded {
		setFailed(trainJob, v1alpha1.ReasonDeadlineExceeded, messageDeadlineExceeded)
		return 0, nil
	}
	if err := r.syncChildren(ctx, trainJob); err != nil {
		r.recorder.Eventf(trainJob, nil, corev1.EventTypeWarning, reasonSyncFailed, actionReconcile, "%s", note(err.Error()))
		if errors.Is(err, errRuntimeMissing) {
			// There is nothing to try again before the runtime's creation, which is watched.
			return wait, nil
		}
		return wait, err
	}
	return wait, nil
}

// errRuntimeMissing says that the runtime of a TrainJob does not exist.
var errRuntimeMissing = errors.New("the runtime does not exist")

// syncChildren makes the children of an unfinished TrainJob. Where its spec, or its runtime's, cannot be
// carried out it sets the Failed condition and returns no error.
func (r *reconciler) syncChildren(ctx context.Context, trainJob *v1alpha1.TrainJob) error {
	if ref := trainJob.Spec.RuntimeRef; !supported(ref) {
		setFailed(trainJob, v1alpha1.ReasonRuntimeNotSupported, fmt.Sprintf(
			"spec.runtimeRef: unsupported runtime: %s.%s", kindOf(ref), ptr.Deref(ref.APIGroup, v1alpha1.GroupVersion.Group)))
		return nil
	}
	spec, err := r.runtimeSpec(ctx, trainJob)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("spec.runtimeRef: %w: %w", errRuntimeMissing, err)
	}
	if err != nil {
		return err
	}
	info, err := runtime.New(trainJob, spec)
	if err != nil {
		setFailed(trainJob, v1alpha1.ReasonInvalid, err.Error())
		return nil
	}
	if errs := r.framework.Validate(info, trainJob); len(errs) > 0 {
		setFailed(trainJob, v1alpha1.ReasonInvalid, describe(trainJob, errs))
		return nil
	}
	components, err := r.framework.Build(ctx, info, trainJob)
	if err != nil {
		return err
	}
	err = r.framework.Sync(ctx, trainJob, components)
	if apierrors.IsInvalid(err) {
		// The API server will not think otherwise of the same object later.
		setFailed(trainJob, v1alpha1.ReasonInvalid, err.Error())
		return nil
	}
	return err
}

// deadline returns the time that is left until the TrainJob's deadline, and whether it has passed. A
// TrainJob that is suspended, or has no deadline, has no time to wait for.
func (r *reconciler) deadline(trainJob *v1alpha1.TrainJob) (time.Duration, bool) {
	if trainJob.Spec.ActiveDeadlineSeconds == 0 || ptr.Deref(trainJob.Spec.Suspend, false) {
		return 0, false
	}
	start := trainJob.CreationTimestamp.Time
	if suspended := meta.FindStatusCondition(trainJob.Status.Conditions, v1alpha1.TrainJobSuspended); suspended != nil && suspended.Status == metav1.ConditionFalse {
		start = suspended.LastTransitionTime.Time
	}
	left := start.Add(time.Duration(trainJob.Spec.ActiveDeadlineSeconds) * time.Second).Sub(r.clock.Now())
	return left, left <= 0
}

// recordFailure makes an event of a failure that this reconcile found.
func (r *reconciler) recordFailure(before, after *v1alpha1.TrainJob) {
	failed := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.TrainJobFailed)
	if failed == nil || failed.Status != metav1.ConditionTrue || before.Finished() {
		return
	}
	r.recorder.Eventf(after, nil, corev1.EventTypeWarning, failed.Reason, actionReconcile, "%s", note(failed.Message))
}

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

func setFailed(trainJob *v1alpha1.TrainJob, reason, message string) {
	meta.SetStatusCondition(&trainJob.Status.Conditions, metav1.Condition{
		Type: v1alpha1.TrainJobFailed, Status: metav1.ConditionTrue, Reason: reason, Message: message,
	})
}

// describe returns errors in one line, and names the runtime where one of its fields is meant.
func describe(trainJob *v1alpha1.TrainJob, errs field.ErrorList) string {
	lines := make([]string, 0, maxErrorsShown+1)
	for i, err := range errs {
		if i == maxErrorsShown {
			lines = append(lines, fmt.Sprintf("and %d more", len(errs)-i))
			break
		}
		line := err.Error()
		if strings.HasPrefix(err.Field, "runtime.") {
			line = fmt.Sprintf("%s %s: %s", kindOf(trainJob.Spec.RuntimeRef), trainJob.Spec.RuntimeRef.Name, strings.TrimPrefix(line, "runtime."))
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// note cuts a text to the length of an event's note.
func note(text string) string {
	if len(text) <= maxNoteBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxNoteBytes], "") + "..."
}

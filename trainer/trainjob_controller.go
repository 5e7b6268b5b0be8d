package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/apply"
	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/snapshot"
)

type reconciler struct {
	client    client.Client
	framework *framework.Framework
	snapshots *snapshot.Store
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
	tidyConditions(trainJob)
	if !equality.Semantic.DeepEqual(before.Status, trainJob.Status) {
		// The lock keeps a reconcile that read an old TrainJob from reviving a finished one.
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if patchErr := r.client.Status().Patch(ctx, trainJob, patch); patchErr != nil {
			return ctrl.Result{}, errors.Join(err, fmt.Errorf("updating the status: %w", patchErr))
		}
		r.recordTransitions(before, trainJob)
	}
	if trainJob.Finished() {
		return ctrl.Result{}, errors.Join(err, r.framework.Finish(ctx, trainJob))
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: wait}, nil
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
	err := r.syncChildren(ctx, trainJob)
	setBlocked(trainJob, err)
	if err != nil {
		r.record(trainJob, corev1.EventTypeWarning, reasonSyncFailed, err.Error())
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
	if refusal := framework.CheckRuntimeRef(trainJob); refusal != nil {
		setFailed(trainJob, refusal.Reason, refusal.Message())
		return nil
	}
	source, first, err := r.runtimeOf(ctx, trainJob)
	if unusable := (*snapshot.Unusable)(nil); errors.As(err, &unusable) {
		setFailed(trainJob, v1alpha1.ReasonInvalid, unusable.Error())
		return nil
	}
	if err != nil {
		return err
	}
	info, refusal := r.framework.Check(trainJob, source.Spec)
	if refusal != nil {
		setFailed(trainJob, refusal.Reason, refusal.Message())
		return nil
	}
	if first {
		err = r.snapshots.Take(ctx, trainJob, source)
	}
	if err == nil {
		err = r.build(ctx, trainJob, info)
	}
	switch {
	case apply.Refused(err):
		setFailed(trainJob, v1alpha1.ReasonInvalid, fmt.Sprintf(
			"spec.runtimeRef: what %s %s makes of the TrainJob is refused: %v", source.Kind, source.Name, err))
		return nil
	case err == nil && first:
		r.recordCreation(trainJob, source, info)
	}
	return err
}

// runtimeOf returns the runtime to use: the snapshot, or, and then first is true, the runtime as it is now.
func (r *reconciler) runtimeOf(ctx context.Context, trainJob *v1alpha1.TrainJob) (source *snapshot.Runtime, first bool, err error) {
	source, err = r.snapshots.Get(ctx, trainJob)
	if err != nil || source != nil {
		return source, false, err
	}
	source, err = r.snapshots.Current(ctx, trainJob)
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("spec.runtimeRef: %w: %w", errRuntimeMissing, err)
	}
	return source, true, err
}

func (r *reconciler) build(ctx context.Context, trainJob *v1alpha1.TrainJob, info *runtime.Info) error {
	components, err := r.framework.Build(ctx, info, trainJob)
	if err != nil {
		return err
	}
	return r.framework.Sync(ctx, trainJob, components)
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
	// More than 292 years are no time.Duration; a negative one would be a deadline of the past.
	seconds := min(trainJob.Spec.ActiveDeadlineSeconds, int64(math.MaxInt64/time.Second))
	left := start.Add(time.Duration(seconds) * time.Second).Sub(r.clock.Now())
	return left, left <= 0
}

package jobset

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/apply"
)

// Sync implements framework.ComponentPlugin. A running JobSet is left as it is, whatever has become of its
// runtime; it can only be suspended. While suspended it follows the TrainJob and the runtime: by an update
// where JobSet allows it, else by a new JobSet.
func (j *JobSet) Sync(ctx context.Context, trainJob *v1alpha1.TrainJob, objects []client.Object) error {
	for _, object := range objects {
		if err := j.sync(ctx, trainJob, object); err != nil {
			return err
		}
	}
	return nil
}

func (j *JobSet) sync(ctx context.Context, trainJob *v1alpha1.TrainJob, object client.Object) error {
	logger := klog.FromContext(ctx)
	wanted, err := apply.Configuration(object)
	if err != nil {
		return err
	}
	live, err := j.live(ctx, trainJob)
	if err != nil {
		return err
	}
	switch {
	case live == nil:
		logger.V(2).Info("Creating the JobSet")
		return apply.Create(ctx, j.client, j.reader, wanted)
	case !metav1.IsControlledBy(live, trainJob):
		return fmt.Errorf("JobSet %s exists and does not belong to this TrainJob", klog.KObj(live))
	case live.DeletionTimestamp != nil:
		// Its last event brings the TrainJob back here.
		return nil
	}

	suspended, suspend := ptr.Deref(live.Spec.Suspend, false), ptr.Deref(trainJob.Spec.Suspend, false)
	if !suspended && !suspend {
		return nil
	}
	if !suspended {
		// Only this field: the rest may have changed with the runtime, and a JobSet with pods refuses it.
		logger.V(2).Info("Suspending the JobSet")
		return j.client.Patch(ctx, live, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`)), client.FieldOwner(apply.FieldOwner))
	}

	same, err := apply.Same(live, wanted)
	if err != nil || same {
		return err
	}
	logger.V(2).Info("Updating the JobSet", "suspend", suspend)
	err = apply.Apply(ctx, j.client, wanted)
	if !apply.Refused(err) {
		return err
	}
	if active(live) {
		return fmt.Errorf("waiting for the pods of suspended JobSet %s to end, to replace it: %v", klog.KObj(live), err)
	}
	// Most of a JobSet cannot change, not even while it is suspended and without pods.
	logger.V(2).Info("Replacing the suspended JobSet", "reason", err.Error())
	return j.remove(ctx, live, metav1.DeletePropagationForeground)
}

// Finish implements framework.ComponentPlugin: it deletes a JobSet that could still run pods. A JobSet that
// is finished itself stays, for its record, as long as its TTL wants.
func (j *JobSet) Finish(ctx context.Context, trainJob *v1alpha1.TrainJob) error {
	live, err := j.live(ctx, trainJob)
	if err != nil || live == nil {
		return err
	}
	if live.DeletionTimestamp != nil || !metav1.IsControlledBy(live, trainJob) {
		return nil
	}
	if meta.IsStatusConditionTrue(live.Status.Conditions, string(jobsetv1alpha2.JobSetCompleted)) ||
		meta.IsStatusConditionTrue(live.Status.Conditions, string(jobsetv1alpha2.JobSetFailed)) {
		return j.startTTL(ctx, live)
	}
	klog.FromContext(ctx).V(2).Info("Deleting the JobSet of a finished TrainJob")
	return j.remove(ctx, live, metav1.DeletePropagationBackground)
}

// remove deletes a JobSet, and its Jobs before it or after it. Before it, a JobSet of the same name finds none of them
// in its way.
func (j *JobSet) remove(ctx context.Context, jobSet *jobsetv1alpha2.JobSet, jobs metav1.DeletionPropagation) error {
	err := j.client.Delete(ctx, jobSet, client.Preconditions{UID: &jobSet.UID}, client.PropagationPolicy(jobs))
	return client.IgnoreNotFound(err)
}

func active(jobSet *jobsetv1alpha2.JobSet) bool {
	for _, job := range jobSet.Status.ReplicatedJobsStatus {
		if job.Active > 0 {
			return true
		}
	}
	return false
}

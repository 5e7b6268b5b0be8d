package trainer

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/snapshot"
)

// Reasons and action of events of the trainer's own. Kubeflow Trainer's clients know three types of conditions,
// and kubectl shows one of them as the state; so what goes well between is told by events only.
const (
	reasonSyncFailed = "TrainJobResourcesCreationFailed"
	reasonCreated    = "TrainJobResourcesCreated"
	reasonRunning    = "Running"
	reasonDeprecated = "TrainingRuntimeDeprecated"
	actionReconcile  = "Reconciling"
)

// maxNoteBytes is below the 1024 bytes above which the API server refuses an event's note.
const maxNoteBytes = 1000

// recordCreation makes the event of the children's creation, and of what is doubtful about them.
func (r *reconciler) recordCreation(trainJob *v1alpha1.TrainJob, source *snapshot.Runtime, info *runtime.Info) {
	r.record(trainJob, corev1.EventTypeNormal, reasonCreated, fmt.Sprintf("Made the JobSet from %s %s", source.Kind, source.Name))
	if warning := v1alpha1.DeprecationWarning(source.Kind, source.Name, source.Labels); warning != "" {
		r.record(trainJob, corev1.EventTypeWarning, reasonDeprecated, warning)
	}
	for _, warning := range info.Warnings(trainJob) {
		r.record(trainJob, corev1.EventTypeWarning, warning.Reason, warning.Text)
	}
}

// recordTransitions makes an event of each change of state that a reconcile found.
func (r *reconciler) recordTransitions(before, after *v1alpha1.TrainJob) {
	for _, condition := range after.Status.Conditions {
		if condition.Type == v1alpha1.TrainJobBlocked {
			// Every try has an event.
			continue
		}
		old := meta.FindStatusCondition(before.Status.Conditions, condition.Type)
		if old != nil && old.Status == condition.Status {
			continue
		}
		severity := corev1.EventTypeNormal
		if condition.Type == v1alpha1.TrainJobFailed && condition.Status == metav1.ConditionTrue {
			severity = corev1.EventTypeWarning
		}
		r.record(after, severity, condition.Reason, condition.Message)
	}
	if running(after) && !running(before) {
		r.record(after, corev1.EventTypeNormal, reasonRunning, "All pods are ready")
	}
}

// running tells whether all pods of a TrainJob that is not finished are ready, apart from those that
// succeeded.
func running(trainJob *v1alpha1.TrainJob) bool {
	if trainJob.Finished() || len(trainJob.Status.JobsStatus) == 0 {
		return false
	}
	for _, job := range trainJob.Status.JobsStatus {
		if *job.Ready+*job.Succeeded == 0 || *job.Active > *job.Ready {
			return false
		}
	}
	return true
}

func (r *reconciler) record(trainJob *v1alpha1.TrainJob, severity, reason, text string) {
	r.recorder.Eventf(trainJob, nil, severity, reason, actionReconcile, "%s", note(text))
}

// note cuts a text to the length of an event's note.
func note(text string) string {
	return framework.Cut(text, maxNoteBytes)
}

package coscheduling

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/podgroup"
	group "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// limitRunTime says on a PodGroup how long its gang runs at most, so that the scheduler can tell when its room is
// free: as long as the TrainJob may be active. That counts from the TrainJob's start, so the gang ends earlier if it
// had to wait. A run time in the runtime's template stays if it is the shorter one, or cannot be read: then the
// scheduler says so. A deadline of more than the annotation can say is as good as none.
func limitRunTime(to *group.PodGroup, trainJob *v1alpha1.TrainJob) {
	const year = 365 * 24 * 60 * 60
	seconds := trainJob.Spec.ActiveDeadlineSeconds
	if seconds <= 0 || seconds > year {
		return
	}
	deadline := time.Duration(seconds) * time.Second
	if stated, ok := to.Annotations[podgroup.RunTimeAnnotation]; ok {
		if d, err := time.ParseDuration(stated); err != nil || d <= deadline {
			return
		}
	}
	metav1.SetMetaDataAnnotation(&to.ObjectMeta, podgroup.RunTimeAnnotation, deadline.String())
}

package runtime

import (
	"slices"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

const (
	// queueLabel, on a TrainJob, names the queue of Kueue's that it waits in.
	queueLabel = "kueue.x-k8s.io/queue-name"

	// queueManager is the manager of the patch that Kueue starts TrainJobs with.
	queueManager = "kueue.x-k8s.io/manager"
)

// Queued tells whether Kueue decides when a TrainJob may start. It then has counted, against somebody's quota, what
// Kubeflow Trainer would give the pods, and they must not take more.
func Queued(trainJob *v1alpha1.TrainJob) bool {
	return trainJob.Labels[queueLabel] != "" ||
		slices.ContainsFunc(trainJob.Spec.RuntimePatches, func(p v1alpha1.RuntimePatch) bool { return p.Manager == queueManager })
}

// counts tells whether Kueue counts resourcesPerNode for pods that train. It does for those that the ancestor marks,
// and for workers beside a launcher that is a node too.
func (i *Info) counts(podSet *PodSet) bool {
	return podSet == i.Configured(v1alpha1.AncestorTrainer) || i.LauncherTrains()
}

package runtime

import (
	"fmt"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// Warnings returns what a TrainJob may be meant to say but works all the same: processes that are fewer than the
// accelerators of their node. Only frameworks that start one process for each are looked at.
func (i *Info) Warnings(trainJob *v1alpha1.TrainJob) []string {
	policy, trainer := i.MLPolicy, i.Trainer()
	if policy == nil || trainer == nil || policy.Torch == nil && policy.MPI == nil && policy.Flux == nil {
		return nil
	}
	node := trainer.Container(v1alpha1.NodeContainer)
	if node == nil {
		return nil
	}
	accelerators, asked := AcceleratorsOf(&node.Resources), numProcPerNode(trainJob)
	switch {
	case asked != nil && *asked == 1 && accelerators.Count > 1:
		return []string{fmt.Sprintf("spec.trainer.numProcPerNode: there will be one process on each node, which has %d %s; "+
			"leave the field out to have one process for each", accelerators.Count, accelerators.Resource)}
	case asked == nil && policy.Torch != nil && accelerators.Count == 0 && len(node.Resources.Claims) > 0:
		return []string{"spec.trainer.numProcPerNode: the devices come of resource claims, which do not say how many there are; " +
			"without the field there will be one process for each CPU"}
	default:
		return nil
	}
}

func numProcPerNode(trainJob *v1alpha1.TrainJob) *int32 {
	if trainJob.Spec.Trainer == nil {
		return nil
	}
	return trainJob.Spec.Trainer.NumProcPerNode
}

package runtime

import "github.com/muster-sched/muster/trainer/api/v1alpha1"

// Configured returns the pods of which one container is configured by the part of the TrainJob that an ancestor
// stands for, nil if there are none. They are those with the ancestor, or else those of a replicated job without any
// that has the name of the container: Kubeflow Trainer accepts TrainJobs for these too, but forgets what they say.
//
// By name alone, pods are neither counted nor given resources: Kueue, which goes by the label, would not see it. Nor
// does a framework meet in them.
func (i *Info) Configured(ancestor string) *PodSet {
	if podSet := i.ByAncestor(ancestor); podSet != nil {
		return podSet
	}
	name := ancestor
	if ancestor == v1alpha1.AncestorTrainer {
		if i.MLPolicy != nil && i.MLPolicy.MLPolicySource != (v1alpha1.MLPolicySource{}) {
			return nil
		}
		name = v1alpha1.NodeContainer
	}
	podSet := i.ByName(name)
	if podSet == nil || podSet.Ancestor != "" || podSet.Container(name) == nil {
		return nil
	}
	return podSet
}

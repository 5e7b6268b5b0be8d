package runtime

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// Warning is about a part of a TrainJob that works, but may not be meant so.
type Warning struct {
	// Reason is that of the event.
	Reason string

	// Text names the field.
	Text string
}

// Reasons of warnings.
const (
	ReasonAcceleratorsIdle       = "AcceleratorsIdle"
	ReasonInitializerHasNoVolume = "InitializerHasNoVolume"
	ReasonResourcesNotForWorkers = "ResourcesNotForWorkers"
)

// InitializerVolume is the volume through which initializers hand over what they fetched.
const InitializerVolume = "initializer"

// cacheScheme begins the URI of a data set that its initializer serves to the nodes over the network.
const cacheScheme = "cache://"

// Warnings returns what a TrainJob may not be meant to say.
func (i *Info) Warnings(trainJob *v1alpha1.TrainJob) []Warning {
	var warnings []Warning
	if text := i.idleAccelerators(trainJob); text != "" {
		warnings = append(warnings, Warning{ReasonAcceleratorsIdle, text})
	}
	if i.leavesOutWorkers(trainJob) {
		warnings = append(warnings, Warning{ReasonResourcesNotForWorkers, "spec.trainer.resourcesPerNode: is for the launcher alone, " +
			"because Kueue counts it for no other pod; give the workers their resources in the runtime, which Kueue counts"})
	}
	initializer := trainJob.Spec.Initializer
	if initializer == nil {
		return warnings
	}
	path := field.NewPath("spec", "initializer")
	if dataset := initializer.Dataset; dataset != nil && (dataset.StorageURI == nil || !strings.HasPrefix(*dataset.StorageURI, cacheScheme)) {
		warnings = append(warnings, i.lostData(path.Child("dataset"), v1alpha1.AncestorDatasetInitializer)...)
	}
	if initializer.Model != nil {
		warnings = append(warnings, i.lostData(path.Child("model"), v1alpha1.AncestorModelInitializer)...)
	}
	return warnings
}

// idleAccelerators tells of processes that are fewer than the accelerators of their node. Only frameworks that start
// one process for each are looked at.
func (i *Info) idleAccelerators(trainJob *v1alpha1.TrainJob) string {
	policy, trainer := i.MLPolicy, i.Trainer()
	if policy == nil || trainer == nil || policy.Torch == nil && policy.MPI == nil && policy.Flux == nil {
		return ""
	}
	node := trainer.Container(v1alpha1.NodeContainer)
	if node == nil {
		return ""
	}
	accelerators, asked := AcceleratorsOf(&node.Resources), numProcPerNode(trainJob)
	switch {
	case asked != nil && *asked == 1 && accelerators.Count > 1:
		return fmt.Sprintf("spec.trainer.numProcPerNode: there will be one process on each node, which has %d %s; "+
			"leave the field out to have one process for each", accelerators.Count, accelerators.Resource)
	case asked == nil && policy.Torch != nil && accelerators.Count == 0 && len(node.Resources.Claims) > 0:
		return "spec.trainer.numProcPerNode: the devices come of resource claims, which do not say how many there are; " +
			"without the field there will be one process for each CPU"
	default:
		return ""
	}
}

// leavesOutWorkers tells whether workers of MPI get no part of resourcesPerNode.
func (i *Info) leavesOutWorkers(trainJob *v1alpha1.TrainJob) bool {
	trainer := trainJob.Spec.Trainer
	return trainer != nil && trainer.ResourcesPerNode != nil && Queued(trainJob) &&
		slices.ContainsFunc(i.TrainingPods(), func(p *PodSet) bool { return !i.counts(p) })
}

// lostData warns of an initializer that shares no volume with the nodes.
func (i *Info) lostData(path *field.Path, ancestor string) []Warning {
	podSet := i.Configured(ancestor)
	if podSet == nil || podSet.Container(ancestor) == nil {
		return nil
	}
	mounts := func(m corev1.VolumeMount) bool { return m.Name == InitializerVolume }
	if slices.ContainsFunc(podSet.Container(ancestor).VolumeMounts, mounts) {
		return nil
	}
	return []Warning{{ReasonInitializerHasNoVolume, fmt.Sprintf("%s: the runtime's container %s has no volumeMount named %s: "+
		"what it fetches stays in its own pod, where the nodes do not see it", path, ancestor, InitializerVolume)}}
}

func numProcPerNode(trainJob *v1alpha1.TrainJob) *int32 {
	if trainJob.Spec.Trainer == nil {
		return nil
	}
	return trainJob.Spec.Trainer.NumProcPerNode
}

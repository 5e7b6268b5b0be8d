package runtime

import (
	"slices"

	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// Names of the replicated jobs of an MPI runtime.
const (
	// LauncherJob runs mpirun.
	LauncherJob = "launcher"

	// WorkersJob runs what mpirun reaches by SSH.
	WorkersJob = "node"
)

// MPI returns the runtime's MPI policy, nil if it has another one or none.
func (i *Info) MPI() *v1alpha1.MPIMLPolicySource {
	if i.MLPolicy == nil {
		return nil
	}
	return i.MLPolicy.MPI
}

// LauncherTrains tells whether the launcher of an MPI runtime is one of the nodes.
func (i *Info) LauncherTrains() bool {
	mpi := i.MPI()
	return mpi != nil && ptr.Deref(mpi.RunLauncherAsNode, false) && i.ByName(LauncherJob) != nil
}

// TrainingPods returns the pods whose container "node" spec.trainer configures: the trainer's and, with MPI,
// all that train, because mpirun starts the same program in each of them.
func (i *Info) TrainingPods() []*PodSet {
	var training []*PodSet
	for p := range i.PodSets {
		podSet := &i.PodSets[p]
		switch {
		case podSet == i.Configured(v1alpha1.AncestorTrainer),
			i.MPI() != nil && podSet.Job.Name == WorkersJob,
			i.LauncherTrains() && podSet.Job.Name == LauncherJob:
			training = append(training, podSet)
		}
	}
	return training
}

// applyTrainer gives the training containers what spec.trainer says of them. The environment is not among it:
// the plugins decide where it stands among theirs.
func (i *Info) applyTrainer(trainJob *v1alpha1.TrainJob) {
	trainer, queued := trainJob.Spec.Trainer, Queued(trainJob)
	for _, podSet := range i.TrainingPods() {
		node := podSet.Container(v1alpha1.NodeContainer)
		if node == nil {
			continue
		}
		if trainer.Image != nil {
			node.Image = *trainer.Image
		}
		if trainer.ResourcesPerNode != nil && (!queued || i.counts(podSet)) {
			mergeResources(&node.Resources, trainer.ResourcesPerNode)
		}
		// The workers of MPI keep theirs: it is the SSH server.
		if podSet == i.Configured(v1alpha1.AncestorTrainer) {
			if trainer.Command != nil {
				node.Command = slices.Clone(trainer.Command)
			}
			if trainer.Args != nil {
				node.Args = slices.Clone(trainer.Args)
			}
		}
	}
}

// countNodes counts the training pods: as the TrainJob says, else as the runtime's policy, else as its
// template.
func (i *Info) countNodes(trainer *v1alpha1.Trainer) {
	var numNodes *int32
	if trainer != nil {
		numNodes = trainer.NumNodes
	}
	if i.MPI() != nil {
		i.countMPINodes(numNodes)
		return
	}
	if podSet := i.Trainer(); podSet != nil && numNodes != nil {
		podSet.Count = *numNodes
	}
}

// countMPINodes counts the workers, of which there is one less if the launcher trains too, down to none.
func (i *Info) countMPINodes(numNodes *int32) {
	if launcher := i.ByName(LauncherJob); launcher != nil {
		// Never numNodes, although the launcher is often what spec.trainer configures: mpirun runs once.
		launcher.Count = max(ptr.Deref(launcher.Job.Template.Spec.Parallelism, 1), 1)
	}
	workers := i.ByName(WorkersJob)
	if workers == nil {
		return
	}
	if numNodes == nil {
		if workers.Ancestor != v1alpha1.AncestorTrainer && workers.Job.Template.Spec.Parallelism != nil {
			// The runtime counts them itself.
			return
		}
		numNodes = i.MLPolicy.NumNodes
	}
	workers.Count = ptr.Deref(numNodes, 1)
	if i.LauncherTrains() {
		workers.Count = max(workers.Count-1, 0)
	}
}

// Package runtime turns a TrainJob and the runtime it names into an Info: the JobSet that is to be made,
// in a form that the framework's plugins refine step by step.
package runtime

import (
	"fmt"
	"iter"
	"maps"

	corev1 "k8s.io/api/core/v1"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// Info is what the plugins of the pipeline share about one TrainJob. It belongs to one run of the
// pipeline: nothing in it aliases the TrainJob or the runtime.
type Info struct {
	// Labels and Annotations go onto the JobSet.
	Labels      map[string]string
	Annotations map[string]string

	// MLPolicy and PodGroupPolicy are the runtime's; nil if it has none.
	MLPolicy       *v1alpha1.MLPolicy
	PodGroupPolicy *v1alpha1.PodGroupPolicy

	// Template is the JobSet's spec as the runtime has it, before anything was merged. Read only.
	Template *jobsetv1alpha2.JobSetSpec

	// JobSet is the spec of the JobSet, with the TrainJob's patches and resources merged in.
	JobSet *jobsetv1alpha2.JobSetSpec

	// PodSets has one entry for each replicated job of JobSet, in the same order.
	PodSets []PodSet
}

// PodSet is the pods of one replicated job.
type PodSet struct {
	// Job is the replicated job inside Info.JobSet.
	Job *jobsetv1alpha2.ReplicatedJob

	// Ancestor is the part of the TrainJob that configures the pods: one of v1alpha1's Ancestor
	// constants, or empty.
	Ancestor string

	// Replicas is the number of Jobs, and Count the number of pods of each of them, which is zero for the
	// workers of an MPI job whose launcher is its only node.
	Replicas int32
	Count    int32

	// Endpoints yields the DNS names of all pods, by replica and then by pod. The pod network phase sets it.
	Endpoints iter.Seq[string]
}

// New makes the Info of a TrainJob from the spec of its runtime: it merges the TrainJob's patches into the
// template and spec.trainer, its environment aside, into the training containers, and counts the pods. The
// error is a field.Error: the patch that cannot be merged.
func New(trainJob *v1alpha1.TrainJob, spec *v1alpha1.TrainingRuntimeSpec) (*Info, error) {
	spec = spec.DeepCopy()
	jobSet, err := mergePatches(spec.Template.Spec.DeepCopy(), trainJob.Spec.RuntimePatches)
	if err != nil {
		return nil, err
	}
	info := &Info{
		Labels:         maps.Clone(spec.Template.Labels),
		Annotations:    maps.Clone(spec.Template.Annotations),
		MLPolicy:       spec.MLPolicy,
		PodGroupPolicy: spec.PodGroupPolicy,
		Template:       &spec.Template.Spec,
		JobSet:         jobSet,
		PodSets:        make([]PodSet, len(jobSet.ReplicatedJobs)),
	}
	for _, patch := range trainJob.Spec.RuntimePatches {
		if template := templatePatch(&patch); template != nil && template.Metadata != nil {
			info.Labels = overlay(info.Labels, template.Metadata.Labels)
			info.Annotations = overlay(info.Annotations, template.Metadata.Annotations)
		}
	}
	for i := range jobSet.ReplicatedJobs {
		info.PodSets[i] = newPodSet(&jobSet.ReplicatedJobs[i], spec.MLPolicy)
	}
	info.countNodes(trainJob.Spec.Trainer)
	if trainJob.Spec.Trainer != nil {
		info.applyTrainer(trainJob)
	}
	return info, nil
}

func newPodSet(job *jobsetv1alpha2.ReplicatedJob, policy *v1alpha1.MLPolicy) PodSet {
	podSet := PodSet{Job: job, Ancestor: job.Template.Labels[v1alpha1.AncestorLabel], Replicas: 1, Count: 1}
	switch podSet.Ancestor {
	case v1alpha1.AncestorTrainer, v1alpha1.AncestorDatasetInitializer, v1alpha1.AncestorModelInitializer:
		// The TrainJob speaks of one trainer and one initializer of each kind, so each is one Job.
		job.Replicas = 1
	default:
		podSet.Replicas = max(job.Replicas, 1)
	}
	if job.Template.Spec.Parallelism != nil {
		podSet.Count = *job.Template.Spec.Parallelism
	}
	if podSet.Ancestor == v1alpha1.AncestorTrainer && policy != nil {
		podSet.Count = 1
		if policy.NumNodes != nil {
			podSet.Count = *policy.NumNodes
		}
	}
	podSet.Count = max(podSet.Count, 1)
	return podSet
}

// Trainer returns the pods that spec.trainer configures, nil if the runtime has none.
func (i *Info) Trainer() *PodSet {
	return i.ByAncestor(v1alpha1.AncestorTrainer)
}

// ByAncestor returns the first pods with an ancestor, nil if there are none.
func (i *Info) ByAncestor(ancestor string) *PodSet {
	for p := range i.PodSets {
		if i.PodSets[p].Ancestor == ancestor {
			return &i.PodSets[p]
		}
	}
	return nil
}

// ByName returns the pods of the replicated job of a name, nil if there is none.
func (i *Info) ByName(name string) *PodSet {
	for p := range i.PodSets {
		if i.PodSets[p].Job.Name == name {
			return &i.PodSets[p]
		}
	}
	return nil
}

// Endpoint returns the DNS name, within the namespace, of one pod of a PodSet: the name that the JobSet
// controller gives it.
func (i *Info) Endpoint(trainJob *v1alpha1.TrainJob, podSet *PodSet, replica, index int32) string {
	subdomain := trainJob.Name
	if network := i.JobSet.Network; network != nil && network.Subdomain != "" {
		subdomain = network.Subdomain
	}
	return fmt.Sprintf("%s-%s-%d-%d.%s", trainJob.Name, podSet.Job.Name, replica, index, subdomain)
}

// PodSpec returns the spec of the pods, inside Info.JobSet.
func (p *PodSet) PodSpec() *corev1.PodSpec {
	return &p.Job.Template.Spec.Template.Spec
}

// Container returns the container of a name, nil if there is none.
func (p *PodSet) Container(name string) *corev1.Container {
	return find(p.PodSpec().Containers, name)
}

// ContainerOrInit returns the container or init container of a name, nil if there is neither.
func (p *PodSet) ContainerOrInit(name string) *corev1.Container {
	if container := p.Container(name); container != nil {
		return container
	}
	return find(p.PodSpec().InitContainers, name)
}

func find(containers []corev1.Container, name string) *corev1.Container {
	for c := range containers {
		if containers[c].Name == name {
			return &containers[c]
		}
	}
	return nil
}

func overlay(base, top map[string]string) map[string]string {
	if len(top) == 0 {
		return base
	}
	if base == nil {
		base = make(map[string]string, len(top))
	}
	maps.Copy(base, top)
	return base
}

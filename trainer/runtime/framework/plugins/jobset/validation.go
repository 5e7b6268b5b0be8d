package jobset

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
)

var jobsPath = field.NewPath("runtime", "spec", "template", "spec", "replicatedJobs")

// Validate implements framework.ValidationPlugin: every part of the TrainJob must have a place in the
// runtime, so that nothing of it is lost.
func (*JobSet) Validate(info *runtime.Info, trainJob *v1alpha1.TrainJob) field.ErrorList {
	errs := validateTemplate(info)
	errs = append(errs, validateName(info, trainJob)...)
	errs = append(errs, validateSize(info)...)
	spec := field.NewPath("spec")
	if trainer := trainJob.Spec.Trainer; trainer != nil && info.Trainer() == nil {
		errs = append(errs, validateUnlabelled(info, spec.Child("trainer"), trainer)...)
	}
	if initializer := trainJob.Spec.Initializer; initializer != nil {
		if initializer.Dataset != nil {
			errs = append(errs, validateInitializer(info, spec.Child("initializer", "dataset"), v1alpha1.AncestorDatasetInitializer)...)
		}
		if initializer.Model != nil {
			errs = append(errs, validateInitializer(info, spec.Child("initializer", "model"), v1alpha1.AncestorModelInitializer)...)
		}
	}
	for i := range trainJob.Spec.RuntimePatches {
		errs = append(errs, validatePatch(info, spec.Child("runtimePatches").Index(i), &trainJob.Spec.RuntimePatches[i])...)
	}
	return errs
}

// validateName checks that every pod can have its name, which is made of the TrainJob's: JobSet would refuse
// it with an error that speaks of names the user never wrote.
func validateName(info *runtime.Info, trainJob *v1alpha1.TrainJob) field.ErrorList {
	for p := range info.PodSets {
		podSet := &info.PodSets[p]
		// Kubernetes appends five characters to the name of an indexed Job's pod.
		longest := fmt.Sprintf("%s-%s-%d-%d-xxxxx", trainJob.Name, podSet.Job.Name, podSet.Replicas-1, max(podSet.Count-1, 0))
		if excess := len(longest) - validation.DNS1035LabelMaxLength; excess > 0 {
			return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), trainJob.Name,
				fmt.Sprintf("is %d characters too long: the pod %s would have a name of more than %d characters", excess, longest, validation.DNS1035LabelMaxLength))}
		}
	}
	return nil
}

// maxJobs is how many replicated jobs a TrainJob's status has room for.
const maxJobs = 100

// validateSize checks that the jobs have room in the status, and that the pods can be counted: JobSet and PodGroup do so
// in 32 bits.
func validateSize(info *runtime.Info) field.ErrorList {
	if jobs := len(info.PodSets); jobs > maxJobs {
		return field.ErrorList{field.TooMany(jobsPath, jobs, maxJobs)}
	}
	pods := int64(0)
	for p := range info.PodSets {
		// No overflow: of two factors of 31 bits, and at most one more term before this returns.
		pods += int64(info.PodSets[p].Replicas) * int64(max(info.PodSets[p].Count, 0))
		if pods > math.MaxInt32 {
			return field.ErrorList{field.TooMany(jobsPath, int(pods), math.MaxInt32)}
		}
	}
	return nil
}

func noPlace(path *field.Path, ancestor string) *field.Error {
	return field.Forbidden(path, "the runtime has no replicated job with the label "+v1alpha1.AncestorLabel+": "+ancestor)
}

// validateUnlabelled checks what a TrainJob says of pods that no label marks as the trainer's.
func validateUnlabelled(info *runtime.Info, path *field.Path, trainer *v1alpha1.Trainer) field.ErrorList {
	if info.Configured(v1alpha1.AncestorTrainer) == nil {
		return field.ErrorList{noPlace(path, v1alpha1.AncestorTrainer)}
	}
	var errs field.ErrorList
	for _, needsLabel := range []struct {
		name string
		set  bool
	}{
		{"numNodes", trainer.NumNodes != nil},
		{"numProcPerNode", trainer.NumProcPerNode != nil},
		{"resourcesPerNode", trainer.ResourcesPerNode != nil},
	} {
		if needsLabel.set {
			errs = append(errs, noPlace(path.Child(needsLabel.name), v1alpha1.AncestorTrainer))
		}
	}
	return errs
}

// validateTemplate checks the replicated jobs that a TrainJob configures.
func validateTemplate(info *runtime.Info) field.ErrorList {
	if len(info.Template.ReplicatedJobs) == 0 {
		return field.ErrorList{field.Required(jobsPath, "a TrainJob needs at least one")}
	}
	var errs field.ErrorList
	first := map[string]string{}
	for i := range info.Template.ReplicatedJobs {
		job := &info.Template.ReplicatedJobs[i]
		path := jobsPath.Index(i)
		ancestor := job.Template.Labels[v1alpha1.AncestorLabel]
		container := ancestor
		switch ancestor {
		case v1alpha1.AncestorTrainer:
			container = v1alpha1.NodeContainer
		case v1alpha1.AncestorDatasetInitializer, v1alpha1.AncestorModelInitializer:
		default:
			continue
		}
		if other, ok := first[ancestor]; ok {
			errs = append(errs, field.Duplicate(path.Child("template", "metadata", "labels").Key(v1alpha1.AncestorLabel),
				ancestor+": the replicated job "+other+" has it too"))
			continue
		}
		first[ancestor] = job.Name
		if job.Replicas > 1 {
			errs = append(errs, field.Invalid(path.Child("replicas"), job.Replicas,
				"must be 1 for a replicated job that a TrainJob configures"))
		}
		if !slices.Contains(containerNames(job), container) {
			errs = append(errs, field.Required(path.Child("template", "spec", "template", "spec", "containers"),
				"must have a container named "+container))
		}
	}
	return errs
}

func validateInitializer(info *runtime.Info, path *field.Path, ancestor string) field.ErrorList {
	if info.Configured(ancestor) == nil {
		return field.ErrorList{noPlace(path, ancestor)}
	}
	// validateTemplate has said so if its container is missing.
	return nil
}

// validatePatch checks a patch against the template: the strategic merge would turn a misspelt name into a
// new replicated job or container.
func validatePatch(info *runtime.Info, path *field.Path, patch *v1alpha1.RuntimePatch) field.ErrorList {
	errs := validation.IsDomainPrefixedPath(path.Child("manager"), patch.Manager)
	if patch.TrainingRuntimeSpec == nil || patch.TrainingRuntimeSpec.Template == nil || patch.TrainingRuntimeSpec.Template.Spec == nil {
		return errs
	}
	jobs := path.Child("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
	for i, job := range patch.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs {
		named := func(j jobsetv1alpha2.ReplicatedJob) bool { return j.Name == job.Name }
		t := slices.IndexFunc(info.Template.ReplicatedJobs, named)
		if t < 0 {
			errs = append(errs, field.Invalid(jobs.Index(i).Child("name"), job.Name, "the runtime has no replicated job of this name"))
			continue
		}
		if job.Template == nil || job.Template.Spec == nil || job.Template.Spec.Template == nil || job.Template.Spec.Template.Spec == nil {
			continue
		}
		pod := job.Template.Spec.Template.Spec
		podPath := jobs.Index(i).Child("template", "spec", "template", "spec")
		target := &info.Template.ReplicatedJobs[t]
		errs = append(errs, validateContainers(podPath.Child("initContainers"), pod.InitContainers, initContainerNames(target))...)
		errs = append(errs, validateContainers(podPath.Child("containers"), pod.Containers, containerNames(target))...)
	}
	return errs
}

func validateContainers(path *field.Path, patches []v1alpha1.ContainerPatch, known []string) field.ErrorList {
	var errs field.ErrorList
	for i, container := range patches {
		if !slices.Contains(known, container.Name) {
			errs = append(errs, field.Invalid(path.Index(i).Child("name"), container.Name, "the runtime's replicated job has no container of this name"))
			continue
		}
		if len(container.Env) == 0 {
			continue
		}
		switch container.Name {
		case v1alpha1.NodeContainer, v1alpha1.AncestorDatasetInitializer, v1alpha1.AncestorModelInitializer:
			errs = append(errs, field.Forbidden(path.Index(i).Child("env"),
				"the container "+container.Name+" takes its environment from spec.trainer or spec.initializer"))
		}
	}
	return errs
}

func containerNames(job *jobsetv1alpha2.ReplicatedJob) []string {
	return names(job.Template.Spec.Template.Spec.Containers)
}

func initContainerNames(job *jobsetv1alpha2.ReplicatedJob) []string {
	return names(job.Template.Spec.Template.Spec.InitContainers)
}

func names(containers []corev1.Container) []string {
	result := make([]string, len(containers))
	for i := range containers {
		result[i] = containers[i].Name
	}
	return result
}

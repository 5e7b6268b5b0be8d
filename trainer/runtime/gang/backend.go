package gang

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
)

// Backend is the API of the group objects that a runtime asks for.
type Backend string

// The backends. A runtime asks for the first two in its podGroupPolicy, and for the native one by
// APIAnnotation, because Kubeflow Trainer's API has no field for it yet.
const (
	None         Backend = ""
	Coscheduling Backend = "scheduling.x-k8s.io/v1alpha1"
	Volcano      Backend = "scheduling.volcano.sh/v1beta1"
	Native       Backend = "scheduling.k8s.io/v1beta1"
)

// APIAnnotation, on the metadata of a runtime's template, asks for Kubernetes' own PodGroups. Its only value
// is their API version: scheduling.k8s.io/v1beta1.
const APIAnnotation = "trainer.muster.dev/pod-group-api"

// VolcanoGroupAnnotation, on a pod, names its PodGroup of Volcano.
const VolcanoGroupAnnotation = "scheduling.k8s.io/group-name"

var (
	policyPath   = field.NewPath("runtime", "spec", "podGroupPolicy")
	templatePath = field.NewPath("runtime", "spec", "template")

	// VolcanoPath and NativePath are the fields that ask for these backends.
	VolcanoPath = policyPath.Child("volcano")
	NativePath  = templatePath.Child("metadata", "annotations").Key(APIAnnotation)
)

// BackendOf returns the backend that a runtime asks for. The error names the field if it asks for one that
// does not exist, or for several: their schedulers would wait for each other.
func BackendOf(info *runtime.Info) (Backend, *field.Error) {
	backend := None
	if policy := info.PodGroupPolicy; policy != nil {
		if policy.Coscheduling != nil {
			backend = Coscheduling
		}
		if policy.Volcano != nil {
			if backend != None {
				return None, field.Forbidden(VolcanoPath, "only one of coscheduling and volcano may be set")
			}
			backend = Volcano
		}
	}
	api, ok := info.Annotations[APIAnnotation]
	switch {
	case !ok:
		return backend, nil
	case api != string(Native):
		return None, field.NotSupported(NativePath, api, []string{string(Native)})
	case backend != None:
		return None, field.Forbidden(NativePath, "the runtime has a podGroupPolicy already")
	}
	return Native, nil
}

// ValidateMembership refuses pod templates that put pods into a group of another scheduler's than the
// backend's: such pods would wait for two groups, and either scheduler for the other one.
func ValidateMembership(info *runtime.Info, backend Backend) field.ErrorList {
	var errs field.ErrorList
	for p := range info.PodSets {
		job := info.PodSets[p].Job
		jobPath := templatePath.Child("spec", "replicatedJobs").Index(p).Child("template", "spec")
		podPath := jobPath.Child("template")
		template := &job.Template.Spec.Template
		refuse := func(path *field.Path, set bool, other Backend) {
			if set && backend != other {
				errs = append(errs, field.Forbidden(path, fmt.Sprintf("the pods are in PodGroups of %s already", backend)))
			}
		}
		_, labelled := template.Labels[podgroup.GroupLabel]
		refuse(podPath.Child("metadata", "labels").Key(podgroup.GroupLabel), labelled, Coscheduling)
		_, annotated := template.Annotations[VolcanoGroupAnnotation]
		refuse(podPath.Child("metadata", "annotations").Key(VolcanoGroupAnnotation), annotated, Volcano)
		refuse(podPath.Child("spec", "schedulingGroup"), template.Spec.SchedulingGroup != nil, None)
		// The Job controller would make a group for each Job.
		refuse(jobPath.Child("scheduling"), job.Template.Spec.Scheduling != nil, None)
	}
	return errs
}

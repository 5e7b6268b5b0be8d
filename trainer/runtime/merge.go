package runtime

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// mergePatches applies the patches to a JobSet's spec, in list order, each as a strategic merge patch. The
// merge may reorder lists: the replicated jobs come out in the template's order, because JobSet reads
// meaning from it.
func mergePatches(spec *jobsetv1alpha2.JobSetSpec, patches []v1alpha1.RuntimePatch) (*jobsetv1alpha2.JobSetSpec, error) {
	order := make(map[string]int, len(spec.ReplicatedJobs))
	for i, job := range spec.ReplicatedJobs {
		order[job.Name] = i
	}
	for i := range patches {
		template := templatePatch(&patches[i])
		if template == nil || template.Spec == nil {
			continue
		}
		merged, err := strategicMerge(spec, template.Spec)
		if err != nil {
			return nil, field.Invalid(field.NewPath("spec", "runtimePatches").Index(i), patches[i].Manager, "cannot be merged: "+err.Error())
		}
		spec = merged
	}
	// A job that the template lacks can only come from a patch; it sorts last, and validation refuses it.
	position := func(name string) int {
		if p, ok := order[name]; ok {
			return p
		}
		return len(order)
	}
	slices.SortStableFunc(spec.ReplicatedJobs, func(a, b jobsetv1alpha2.ReplicatedJob) int {
		return position(a.Name) - position(b.Name)
	})
	return spec, nil
}

func templatePatch(patch *v1alpha1.RuntimePatch) *v1alpha1.JobSetTemplatePatch {
	if patch.TrainingRuntimeSpec == nil {
		return nil
	}
	return patch.TrainingRuntimeSpec.Template
}

func strategicMerge(spec *jobsetv1alpha2.JobSetSpec, patch *v1alpha1.JobSetSpecPatch) (*jobsetv1alpha2.JobSetSpec, error) {
	base, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	change, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	merged, err := strategicpatch.StrategicMergePatch(base, change, jobsetv1alpha2.JobSetSpec{})
	if err != nil {
		return nil, err
	}
	result := &jobsetv1alpha2.JobSetSpec{}
	if err := json.Unmarshal(merged, result); err != nil {
		return nil, err
	}
	return result, nil
}

// mergeResources lays resources over others: limits and requests by resource, claims by name.
func mergeResources(base *corev1.ResourceRequirements, top *corev1.ResourceRequirements) {
	base.Limits = mergeList(base.Limits, top.Limits)
	base.Requests = mergeList(base.Requests, top.Requests)
	for _, claim := range top.Claims {
		same := func(c corev1.ResourceClaim) bool { return c.Name == claim.Name }
		if i := slices.IndexFunc(base.Claims, same); i >= 0 {
			base.Claims[i] = claim
		} else {
			base.Claims = append(base.Claims, claim)
		}
	}
}

func mergeList(base, top corev1.ResourceList) corev1.ResourceList {
	if len(top) == 0 {
		return base
	}
	merged := make(corev1.ResourceList, len(base)+len(top))
	for name, quantity := range base {
		merged[name] = quantity.DeepCopy()
	}
	for name, quantity := range top {
		merged[name] = quantity.DeepCopy()
	}
	return merged
}

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
)

// Finished tells whether the TrainJob is complete or failed. It stays so.
func (t *TrainJob) Finished() bool {
	return meta.IsStatusConditionTrue(t.Status.Conditions, TrainJobComplete) ||
		meta.IsStatusConditionTrue(t.Status.Conditions, TrainJobFailed)
}

// ManagedByTrainer tells whether a trainer controller reconciles the TrainJob.
func (t *TrainJob) ManagedByTrainer() bool {
	return t.Spec.ManagedBy == nil || *t.Spec.ManagedBy == ControllerName
}

// RuntimeKind returns the kind of runtime that is meant, with the API's default.
func (r RuntimeRef) RuntimeKind() string {
	return ptr.Deref(r.Kind, ClusterTrainingRuntimeKind)
}

// RuntimeGroup returns the API group of the runtime, with the API's default.
func (r RuntimeRef) RuntimeGroup() string {
	return ptr.Deref(r.APIGroup, GroupVersion.Group)
}

// Supported tells whether the reference is to a kind of runtime that is known.
func (r RuntimeRef) Supported() bool {
	kind := r.RuntimeKind()
	return r.RuntimeGroup() == GroupVersion.Group && (kind == ClusterTrainingRuntimeKind || kind == TrainingRuntimeKind)
}

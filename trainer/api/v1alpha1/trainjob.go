package v1alpha1

import "k8s.io/apimachinery/pkg/api/meta"

// Finished tells whether the TrainJob is complete or failed. It stays so.
func (t *TrainJob) Finished() bool {
	return meta.IsStatusConditionTrue(t.Status.Conditions, TrainJobComplete) ||
		meta.IsStatusConditionTrue(t.Status.Conditions, TrainJobFailed)
}

// ManagedByTrainer tells whether a trainer controller reconciles the TrainJob.
func (t *TrainJob) ManagedByTrainer() bool {
	return t.Spec.ManagedBy == nil || *t.Spec.ManagedBy == ControllerName
}

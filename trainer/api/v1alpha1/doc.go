// Package v1alpha1 holds the TrainJob and training runtime types that Muster serves: the JSON of
// trainer.kubeflow.org/v1alpha1 as of Kubeflow Trainer 2.3.0, so that existing manifests, SDKs and Kueue
// work unchanged.
//
// +kubebuilder:object:generate=true
// +groupName=trainer.kubeflow.org
package v1alpha1

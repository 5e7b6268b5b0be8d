package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// ClusterTrainingRuntime is a blueprint that TrainJobs of every namespace may use.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster
type ClusterTrainingRuntime struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The blueprint.
	// +optional
	Spec TrainingRuntimeSpec `json:"spec,omitzero"`
}

// ClusterTrainingRuntimeList is a list of ClusterTrainingRuntimes.
//
// +kubebuilder:object:root=true
type ClusterTrainingRuntimeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterTrainingRuntime `json:"items"`
}

// TrainingRuntime is a blueprint that TrainJobs of its own namespace may use.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
type TrainingRuntime struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The blueprint.
	// +optional
	Spec TrainingRuntimeSpec `json:"spec,omitempty,omitzero"`
}

// TrainingRuntimeList is a list of TrainingRuntimes.
//
// +kubebuilder:object:root=true
type TrainingRuntimeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TrainingRuntime `json:"items"`
}

// TrainingRuntimeSpec is a blueprint for training runs.
//
// +kubebuilder:validation:MinProperties=1
type TrainingRuntimeSpec struct {
	// How the training framework is told about its nodes.
	// +optional
	MLPolicy *MLPolicy `json:"mlPolicy,omitempty"`

	// Whether, and through which scheduler, the pods start together. Unset means that they do not.
	// +optional
	PodGroupPolicy *PodGroupPolicy `json:"podGroupPolicy,omitempty"`

	// The JobSet to make.
	// +optional
	Template JobSetTemplateSpec `json:"template,omitzero"`
}

// JobSetTemplateSpec is the JobSet to make.
//
// +kubebuilder:validation:MinProperties=1
type JobSetTemplateSpec struct {
	// Labels and annotations of the JobSet; its name and namespace are the TrainJob's.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec of the JobSet.
	// +optional
	Spec jobsetv1alpha2.JobSetSpec `json:"spec,omitempty"`
}

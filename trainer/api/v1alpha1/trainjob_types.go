package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TrainJob is one training run, described by what differs from the runtime that it names.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.status=="True")].type`
// +kubebuilder:printcolumn:name="Progress",type=integer,JSONPath=`.status.trainerStatus.progressPercentage`,description="Percentage done, as the training code reported it."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must match RFC 1035 DNS label format"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must be no more than 63 characters"
type TrainJob struct {
	metav1.TypeMeta `json:",inline"`
	// Labels and annotations stay on the TrainJob: they are not copied to its JobSet or pods.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What to train, and on how many nodes.
	// +optional
	Spec TrainJobSpec `json:"spec,omitzero"`

	// What is known of the run.
	// +optional
	Status TrainJobStatus `json:"status,omitzero"`
}

// TrainJobList is a list of TrainJobs.
//
// +kubebuilder:object:root=true
type TrainJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TrainJob `json:"items"`
}

// TrainJobSpec is what the user asks for.
//
// The rules on whole fields say that they cannot be set later, or be unset, either: a rule of the field
// itself is asked only where the field is there before and after.
//
// +kubebuilder:validation:XValidation:rule="has(self.initializer) == has(oldSelf.initializer)",fieldPath=".initializer",message="field is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.trainer) == has(oldSelf.trainer)",fieldPath=".trainer",message="field is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.activeDeadlineSeconds) == has(oldSelf.activeDeadlineSeconds)",fieldPath=".activeDeadlineSeconds",message="field is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.suspend) && self.suspend || has(oldSelf.suspend) && oldSelf.suspend || has(self.runtimePatches) == has(oldSelf.runtimePatches) && (!has(self.runtimePatches) || self.runtimePatches == oldSelf.runtimePatches)",fieldPath=".runtimePatches",message="may change only while the TrainJob is suspended, or together with suspend"
type TrainJobSpec struct {
	// The runtime that supplies everything the TrainJob does not set.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +required
	RuntimeRef RuntimeRef `json:"runtimeRef,omitzero"`

	// Jobs that fetch the dataset and the model before the training starts.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +optional
	Initializer *Initializer `json:"initializer,omitempty"`

	// The training container and the number of nodes.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +optional
	Trainer *Trainer `json:"trainer,omitempty"`

	// Changes to the runtime's template, one entry per manager, applied in list order.
	// +listType=map
	// +listMapKey=manager
	// +kubebuilder:validation:MaxItems=16
	// +optional
	RuntimePatches []RuntimePatch `json:"runtimePatches,omitempty"`

	// While true, no pod of the TrainJob runs.
	// +kubebuilder:default=false
	// +optional
	Suspend *bool `json:"suspend,omitempty"`

	// Seconds, from creation or from the last resume, after which an unfinished TrainJob fails with reason
	// DeadlineExceeded. Zero means no deadline. Time spent waiting in a queue counts.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	ActiveDeadlineSeconds int64 `json:"activeDeadlineSeconds,omitempty"`

	// The controller that runs this TrainJob. A trainer controller leaves alone every TrainJob whose value
	// is neither unset nor trainer.kubeflow.org/trainjob-controller.
	// +kubebuilder:default="trainer.kubeflow.org/trainjob-controller"
	// +kubebuilder:validation:XValidation:rule="self in ['trainer.kubeflow.org/trainjob-controller', 'kueue.x-k8s.io/multikueue']",message="ManagedBy must be trainer.kubeflow.org/trainjob-controller or kueue.x-k8s.io/multikueue if set"
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +optional
	ManagedBy *string `json:"managedBy,omitempty"`
}

// RuntimeRef names a runtime.
type RuntimeRef struct {
	// Name of the runtime. A TrainingRuntime is looked up in the TrainJob's namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name,omitempty"`

	// API group of the runtime.
	// +kubebuilder:default="trainer.kubeflow.org"
	// +kubebuilder:validation:MaxLength=253
	// +optional
	APIGroup *string `json:"apiGroup,omitempty"`

	// Kind of the runtime: ClusterTrainingRuntime or TrainingRuntime.
	// +kubebuilder:default="ClusterTrainingRuntime"
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Kind *string `json:"kind,omitempty"`
}

// Initializer configures the jobs that run before the training.
type Initializer struct {
	// The job that fetches the dataset.
	// +optional
	Dataset *DatasetInitializer `json:"dataset,omitempty"`

	// The job that fetches the model.
	// +optional
	Model *ModelInitializer `json:"model,omitempty"`
}

// Trainer configures the training nodes.
type Trainer struct {
	// Image of the training container.
	// +kubebuilder:validation:MaxLength=500
	// +optional
	Image *string `json:"image,omitempty"`

	// Entrypoint of the training container; replaces the runtime's.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=1048576
	// +optional
	Command []string `json:"command,omitempty"`

	// Arguments of the entrypoint; replace the runtime's.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=1048576
	// +optional
	Args []string `json:"args,omitempty"`

	// Environment of the training container, merged by name over the runtime's.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`

	// Number of training nodes, that is, of pods.
	// +optional
	NumNodes *int32 `json:"numNodes,omitempty"`

	// Resources of the training container, merged by resource name over the runtime's.
	// +optional
	ResourcesPerNode *corev1.ResourceRequirements `json:"resourcesPerNode,omitempty"`

	// Number of worker processes on each node. Torch runtimes derive it from the resources if it is unset.
	// +optional
	NumProcPerNode *int32 `json:"numProcPerNode,omitempty"`
}

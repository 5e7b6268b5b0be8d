package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RuntimePatch is one manager's changes to the runtime's template.
type RuntimePatch struct {
	// Who owns the entry, as a domain-prefixed path such as kueue.x-k8s.io/manager.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +required
	Manager string `json:"manager,omitempty"`

	// When the entry was last written. For people to read; nothing depends on it.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`

	// The changes.
	// +optional
	TrainingRuntimeSpec *TrainingRuntimeSpecPatch `json:"trainingRuntimeSpec,omitempty"`
}

// TrainingRuntimeSpecPatch holds the part of a runtime's spec that may be patched.
type TrainingRuntimeSpecPatch struct {
	// Changes to the JobSet template.
	// +optional
	Template *JobSetTemplatePatch `json:"template,omitempty"`
}

// JobSetTemplatePatch holds the part of a JobSet template that may be patched.
type JobSetTemplatePatch struct {
	// Labels and annotations for the JobSet; other metadata is ignored.
	// +optional
	Metadata *metav1.ObjectMeta `json:"metadata,omitempty"`

	// Changes to the JobSet's spec.
	// +optional
	Spec *JobSetSpecPatch `json:"spec,omitempty"`
}

// JobSetSpecPatch holds the part of a JobSet's spec that may be patched.
type JobSetSpecPatch struct {
	// Changes to replicated jobs, matched by name.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	// +optional
	ReplicatedJobs []ReplicatedJobPatch `json:"replicatedJobs,omitempty"`
}

// ReplicatedJobPatch changes one replicated job.
type ReplicatedJobPatch struct {
	// Name of the replicated job. The runtime must have it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name,omitempty"`

	// Changes to the Job template.
	// +optional
	Template *JobTemplatePatch `json:"template,omitempty"`
}

// JobTemplatePatch holds the part of a Job template that may be patched.
type JobTemplatePatch struct {
	// Labels and annotations for the Job.
	// +optional
	Metadata *metav1.ObjectMeta `json:"metadata,omitempty"`

	// Changes to the Job's spec.
	// +optional
	Spec *JobSpecPatch `json:"spec,omitempty"`
}

// JobSpecPatch holds the part of a Job's spec that may be patched.
type JobSpecPatch struct {
	// Changes to the pod template.
	// +optional
	Template *PodTemplatePatch `json:"template,omitempty"`
}

// PodTemplatePatch holds the part of a pod template that may be patched.
type PodTemplatePatch struct {
	// Labels and annotations for the pods.
	// +optional
	Metadata *metav1.ObjectMeta `json:"metadata,omitempty"`

	// Changes to the pods' spec.
	// +optional
	Spec *PodSpecPatch `json:"spec,omitempty"`
}

// PodSpecPatch holds the part of a pod's spec that may be patched. While the TrainJob is suspended its manager
// may change nodeSelector, affinity, tolerations and schedulingGates.
//
// +kubebuilder:validation:XValidation:rule="has(self.serviceAccountName) == has(oldSelf.serviceAccountName)",fieldPath=".serviceAccountName",message="field is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.volumes) == has(oldSelf.volumes)",fieldPath=".volumes",message="field is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.initContainers) == has(oldSelf.initContainers)",fieldPath=".initContainers",message="field is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.containers) == has(oldSelf.containers)",fieldPath=".containers",message="field is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.imagePullSecrets) == has(oldSelf.imagePullSecrets)",fieldPath=".imagePullSecrets",message="field is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.securityContext) == has(oldSelf.securityContext)",fieldPath=".securityContext",message="field is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.terminationGracePeriodSeconds) == has(oldSelf.terminationGracePeriodSeconds)",fieldPath=".terminationGracePeriodSeconds",message="field is immutable"
type PodSpecPatch struct {
	// Service account of the pods.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +optional
	ServiceAccountName *string `json:"serviceAccountName,omitempty"`

	// Volumes, merged by name.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +optional
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// Changes to init containers, matched by name.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +optional
	InitContainers []ContainerPatch `json:"initContainers,omitempty"`

	// Changes to containers, matched by name.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +optional
	Containers []ContainerPatch `json:"containers,omitempty"`

	// Image pull secrets, merged by name.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// Security context of the pods.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +optional
	SecurityContext *corev1.PodSecurityContext `json:"securityContext,omitempty"`

	// Node selector, merged by key.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Affinity.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// Tolerations; replace the runtime's.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Scheduling gates, merged by name.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	SchedulingGates []corev1.PodSchedulingGate `json:"schedulingGates,omitempty"`

	// Seconds that a deleted pod gets to stop by itself.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	// +optional
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
}

// ContainerPatch changes one container.
type ContainerPatch struct {
	// Name of the container. The runtime must have it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name,omitempty"`

	// Environment, merged by name. Refused for the containers node, dataset-initializer and
	// model-initializer, which take theirs from spec.trainer and spec.initializer.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`

	// Volume mounts.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	// +optional
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`

	// Security context of the container.
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`
}

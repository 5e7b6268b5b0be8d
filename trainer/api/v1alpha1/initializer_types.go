package v1alpha1

import corev1 "k8s.io/api/core/v1"

// DatasetInitializer configures the replicated job whose ancestor is dataset-initializer.
type DatasetInitializer struct {
	// Where the dataset comes from; becomes the container's STORAGE_URI.
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[A-Za-z][A-Za-z0-9+.-]*://.+$')",message="storageUri may be empty, or it must be a valid URI (scheme://...)"
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	StorageURI *string `json:"storageUri,omitempty"`

	// Environment of the initializer's container, merged by name over the runtime's.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`

	// Secret in the TrainJob's namespace whose keys become environment variables, for the download's
	// credentials.
	// +optional
	SecretRef *corev1.LocalObjectReference `json:"secretRef,omitempty"`
}

// ModelInitializer configures the replicated job whose ancestor is model-initializer.
type ModelInitializer struct {
	// Where the model comes from; becomes the container's STORAGE_URI.
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[A-Za-z][A-Za-z0-9+.-]*://.+$')",message="storageUri may be empty, or it must be a valid URI (scheme://...)"
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	StorageURI *string `json:"storageUri,omitempty"`

	// Environment of the initializer's container, merged by name over the runtime's.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`

	// Secret in the TrainJob's namespace whose keys become environment variables, for the download's
	// credentials.
	// +optional
	SecretRef *corev1.LocalObjectReference `json:"secretRef,omitempty"`
}

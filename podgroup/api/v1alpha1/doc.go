// Package v1alpha1 holds the PodGroup that Muster reads and writes: the object that
// scheduler-plugins defines as scheduling.x-k8s.io/v1alpha1, with status conditions added.
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.x-k8s.io
package v1alpha1

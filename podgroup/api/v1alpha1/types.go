package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

const (
	// GroupLabel names, on a pod, the PodGroup of the pod's namespace that the pod is a member of.
	GroupLabel = upstream.PodGroupLabel

	// ConditionScheduled is True while at least minMember members are bound to nodes or have
	// succeeded. The podgroup controller owns it.
	ConditionScheduled = "Scheduled"

	// ConditionUnschedulable is True while the scheduler refuses the gang; its message is the
	// planner's explanation. The scheduler plugin owns it and sets it False when it admits the gang.
	ConditionUnschedulable = "Unschedulable"

	// ConditionReserved is True while room is reserved for the gang until it fits; its message says where, for
	// whom it waits and until when. The scheduler plugin owns it.
	ConditionReserved = "Reserved"

	// ConditionPreempting is True while pods of lower priority end to make room for the gang; its message names
	// them. The scheduler plugin owns it.
	ConditionPreempting = "Preempting"

	// ConditionProvisioning is True while nodes that join the cluster are held for the gang; its message says
	// which and until when. The scheduler plugin owns it.
	ConditionProvisioning = "Provisioning"

	// ConditionReady is True while at least minMember members are ready or have succeeded: the gang has met. It is
	// Unknown while members have nodes and have not met yet, since the rendezvous began, and False otherwise. The
	// podgroup controller owns it.
	ConditionReady = "Ready"

	// ConditionRendezvousTimedOut is True from the moment a gang is released, because its members did not meet in
	// time, until it meets; its message says which were not ready and why. The podgroup controller owns it.
	ConditionRendezvousTimedOut = "RendezvousTimedOut"
)

var (
	// GroupVersion is the API group and version of PodGroup.
	GroupVersion = schema.GroupVersion{Group: "scheduling.x-k8s.io", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
		s.AddKnownTypes(GroupVersion, &PodGroup{}, &PodGroupList{})
		metav1.AddToGroupVersion(s, GroupVersion)
		return nil
	})

	// AddToScheme registers PodGroup and PodGroupList with a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

// PodGroup is a set of pods that start together or not at all.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName={pg,pgs}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",JSONPath=".status.phase",type=string,description="Current phase of the PodGroup."
// +kubebuilder:printcolumn:name="MinMember",JSONPath=".spec.minMember",type=integer,description="Members that must start together."
// +kubebuilder:printcolumn:name="Running",JSONPath=".status.running",type=integer,description="Members that are running."
// +kubebuilder:printcolumn:name="Succeeded",JSONPath=".status.succeeded",type=integer,description="Members that succeeded."
// +kubebuilder:printcolumn:name="Failed",JSONPath=".status.failed",type=integer,description="Members that failed."
// +kubebuilder:printcolumn:name="Age",JSONPath=".metadata.creationTimestamp",type=date,description="Time since creation."
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
type PodGroup struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec upstream.PodGroupSpec `json:"spec,omitempty"`

	// +optional
	Status PodGroupStatus `json:"status,omitempty"`
}

// PodGroupStatus is scheduler-plugins' status with conditions.
type PodGroupStatus struct {
	upstream.PodGroupStatus `json:",inline"`

	// Conditions say whether the group is scheduled and, if it is refused, why.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PodGroupList is a list of PodGroups.
//
// +kubebuilder:object:root=true
type PodGroupList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PodGroup `json:"items"`
}

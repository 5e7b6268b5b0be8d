package volcano

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

// GroupVersion is the API version of Volcano's PodGroups.
var GroupVersion = schema.GroupVersion{Group: "scheduling.volcano.sh", Version: "v1beta1"}

// AddToScheme registers the types of this package with a scheme.
func AddToScheme(scheme *apiruntime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &PodGroup{}, &PodGroupList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// PodGroup is the part of Volcano's PodGroup that the trainer writes. It is only ever applied, so that
// what it lacks stays as it is.
type PodGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PodGroupSpec `json:"spec,omitempty"`
}

// PodGroupSpec says what Volcano waits for.
type PodGroupSpec struct {
	// MinMember is the number of pods that start together.
	MinMember int32 `json:"minMember,omitempty"`

	// MinResources is what these pods request together.
	MinResources corev1.ResourceList `json:"minResources,omitempty"`

	// Queue is the name of Volcano's queue; empty means the namespace's, or the default one.
	Queue string `json:"queue,omitempty"`

	// PriorityClassName orders the groups of a queue.
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// NetworkTopology limits how far apart the pods may be.
	NetworkTopology *NetworkTopologySpec `json:"networkTopology,omitempty"`
}

// NetworkTopologySpec is a limit on the distance between pods.
type NetworkTopologySpec struct {
	// Mode is hard or soft.
	Mode string `json:"mode,omitempty"`

	// HighestTierAllowed is the highest tier of the network that the pods may cross.
	HighestTierAllowed *int `json:"highestTierAllowed,omitempty"`
}

// PodGroupList is a list of PodGroups.
type PodGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PodGroup `json:"items"`
}

// DeepCopyInto copies the group into an empty one.
func (in *PodGroup) DeepCopyInto(out *PodGroup) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.MinResources = in.Spec.MinResources.DeepCopy()
	if topology := in.Spec.NetworkTopology; topology != nil {
		out.Spec.NetworkTopology = &NetworkTopologySpec{Mode: topology.Mode}
		if tier := topology.HighestTierAllowed; tier != nil {
			out.Spec.NetworkTopology.HighestTierAllowed = ptr.To(*tier)
		}
	}
}

// DeepCopyObject implements runtime.Object.
func (in *PodGroup) DeepCopyObject() apiruntime.Object {
	out := &PodGroup{}
	in.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements runtime.Object.
func (in *PodGroupList) DeepCopyObject() apiruntime.Object {
	out := &PodGroupList{TypeMeta: in.TypeMeta, Items: make([]PodGroup, len(in.Items))}
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range in.Items {
		in.Items[i].DeepCopyInto(&out.Items[i])
	}
	return out
}

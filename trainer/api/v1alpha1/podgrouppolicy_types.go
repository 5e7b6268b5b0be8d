package v1alpha1

// PodGroupPolicy says which scheduler's groups the pods join.
//
// +kubebuilder:validation:XValidation:rule="[has(self.coscheduling), has(self.volcano)].filter(x, x).size() == 1",message="exactly one of coscheduling and volcano must be set"
type PodGroupPolicy struct {
	// Exactly one is set.
	PodGroupPolicySource `json:",inline"`
}

// PodGroupPolicySource is a choice of scheduler. Exactly one field is set.
type PodGroupPolicySource struct {
	// PodGroups of scheduling.x-k8s.io, the ones that Muster schedules.
	// +optional
	Coscheduling *CoschedulingPodGroupPolicySource `json:"coscheduling,omitempty"`

	// PodGroups of Volcano.
	// +optional
	Volcano *VolcanoPodGroupPolicySource `json:"volcano,omitempty"`
}

// CoschedulingPodGroupPolicySource configures PodGroups of scheduling.x-k8s.io.
type CoschedulingPodGroupPolicySource struct {
	// Seconds that members may hold their places while the rest of the group is being placed.
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=0
	// +optional
	ScheduleTimeoutSeconds *int32 `json:"scheduleTimeoutSeconds,omitempty"`
}

// VolcanoPodGroupPolicySource configures PodGroups of Volcano.
type VolcanoPodGroupPolicySource struct {
	// How far apart in the network the pods may be.
	// +optional
	NetworkTopology *VolcanoNetworkTopology `json:"networkTopology,omitempty"`
}

// VolcanoNetworkTopology is Volcano's limit on the distance between pods.
type VolcanoNetworkTopology struct {
	// Whether the limit is a condition (hard) or a wish (soft).
	// +kubebuilder:validation:Enum=hard;soft
	// +kubebuilder:default=hard
	// +optional
	Mode string `json:"mode,omitempty"`

	// Highest tier of the network that the pods may cross.
	// +kubebuilder:default=1
	// +optional
	HighestTierAllowed *int `json:"highestTierAllowed,omitempty"`
}

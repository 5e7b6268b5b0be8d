package v1alpha1

// MLPolicy says how the training framework is told about its nodes.
//
// +kubebuilder:validation:XValidation:rule="[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost),has(self.flux)].filter(x, x).size() <= 1",message="Only one of the policy can be configured"
type MLPolicy struct {
	// Number of training nodes where the TrainJob sets none. Unset means one.
	// +optional
	NumNodes *int32 `json:"numNodes,omitempty"`

	// The framework. None of them means that only the nodes are counted.
	MLPolicySource `json:",inline"`
}

// MLPolicySource is a choice of framework. At most one field may be set.
type MLPolicySource struct {
	// PyTorch, started by torchrun.
	// +optional
	Torch *TorchMLPolicySource `json:"torch,omitempty"`

	// MPI, started by mpirun from a launcher.
	// +optional
	MPI *MPIMLPolicySource `json:"mpi,omitempty"`

	// Flux.
	// +optional
	Flux *FluxMLPolicySource `json:"flux,omitempty"`

	// JAX.
	// +optional
	JAX *JAXMLPolicySource `json:"jax,omitempty"`

	// XGBoost.
	// +optional
	XGBoost *XGBoostMLPolicySource `json:"xgboost,omitempty"`
}

// TorchMLPolicySource configures PyTorch.
type TorchMLPolicySource struct {
	// Containers, beside the training container, that get torchrun's PET_* variables too.
	// +optional
	EnvInjection *EnvInjection `json:"envInjection,omitempty"`
}

// EnvInjection selects containers for a framework's environment variables.
type EnvInjection struct {
	// The containers, by replicated job.
	// +listType=map
	// +listMapKey=jobName
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Targets []EnvInjectionTarget `json:"targets,omitempty"`
}

// EnvInjectionTarget selects containers of one replicated job.
type EnvInjectionTarget struct {
	// Name of the replicated job.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	JobName string `json:"jobName,omitempty"`

	// Names of its containers or init containers.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!self.exists(c, c == 'node')",message="containerNames must not include the main node container because PET_* envs are always injected into it"
	// +required
	ContainerNames []string `json:"containerNames,omitempty"`
}

// JAXMLPolicySource selects JAX, which has nothing to configure.
type JAXMLPolicySource struct{}

// XGBoostMLPolicySource selects XGBoost, which has nothing to configure.
type XGBoostMLPolicySource struct{}

// MPIMLPolicySource configures MPI.
type MPIMLPolicySource struct {
	// Slots of each node in the hostfile.
	// +kubebuilder:default=1
	// +optional
	NumProcPerNode *int32 `json:"numProcPerNode,omitempty"`

	// The implementation, which decides the hostfile's form.
	// +kubebuilder:default=OpenMPI
	// +kubebuilder:validation:Enum=OpenMPI;""
	// +optional
	MPIImplementation *MPIImplementation `json:"mpiImplementation,omitempty"`

	// Directory where the SSH keys are mounted.
	// +kubebuilder:default=/root/.ssh
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	SSHAuthMountPath *string `json:"sshAuthMountPath,omitempty"`

	// Whether the launcher trains as well.
	// +kubebuilder:default=false
	// +optional
	RunLauncherAsNode *bool `json:"runLauncherAsNode,omitempty"`
}

// MPIImplementation names an implementation of MPI.
type MPIImplementation string

// MPIImplementationOpenMPI is Open MPI.
const MPIImplementationOpenMPI MPIImplementation = "OpenMPI"

// FluxMLPolicySource configures Flux.
type FluxMLPolicySource struct {
	// Processes on each node.
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="NumProcPerNode in fluxPolicy must be >= 1"
	// +optional
	NumProcPerNode *int32 `json:"numProcPerNode,omitempty"`
}

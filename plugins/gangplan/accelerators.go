package gangplan

// DefaultAccelerators are the extended resources of known accelerators: the device plugins' names for
// whole devices, and NVIDIA's for parts of one. A name may end with a wildcard.
var DefaultAccelerators = []string{
	"nvidia.com/gpu",
	"nvidia.com/mig-*",
	"amd.com/gpu",
	"google.com/tpu",
	"aws.amazon.com/neuron",
	"aws.amazon.com/neuroncore",
	"habana.ai/gaudi",
	"gpu.intel.com/i915",
	"gpu.intel.com/xe",
}

package runtime

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Accelerators are the devices of one container that training processes drive, all of one kind. The zero
// value means that there are none.
type Accelerators struct {
	// Resource is the name under which they are requested: the first by name, where a kind has several, as
	// MIG profiles are.
	Resource corev1.ResourceName

	// Count is how many there are.
	Count int32

	// SeenByTorch tells whether torchrun counts them itself when it is asked for "auto" processes. It takes
	// other machines for ones without accelerators.
	SeenByTorch bool
}

// acceleratorKind is a family of resources of which one unit is one device.
type acceleratorKind struct {
	matches     func(name string) bool
	seenByTorch bool
}

// acceleratorKinds are the known kinds, the first that a container has being the one that counts. Names such
// as nvidia.com/gpumem and nvidia.com/gpucores, by which device plugins that share a GPU count its parts, or
// gpu.intel.com/memory.max, are in none of them: they are no devices.
var acceleratorKinds = []acceleratorKind{
	{named("nvidia.com/gpu"), true},
	{named("nvidia.com/gpu.shared"), true},
	{prefixed("nvidia.com/mig-"), true},
	{named("amd.com/gpu"), true},
	{named("habana.ai/gaudi"), false},
	{named("google.com/tpu"), false},
	{named("aws.amazon.com/neuroncore"), false},
	{named("aws.amazon.com/neuron", "aws.amazon.com/neurondevice"), false},
	{named("gpu.intel.com/i915", "gpu.intel.com/xe"), true},
	// Vendors not listed here.
	{suffixed("/gpu"), true},
}

func named(names ...string) func(string) bool {
	return func(name string) bool { return slices.Contains(names, name) }
}

func prefixed(prefix string) func(string) bool {
	return func(name string) bool { return strings.HasPrefix(name, prefix) }
}

func suffixed(suffix string) func(string) bool {
	return func(name string) bool { return strings.HasSuffix(name, suffix) }
}

// AcceleratorsOf returns the accelerators among a container's resources: those that are requested or, because
// a request defaults to it, limited.
func AcceleratorsOf(resources *corev1.ResourceRequirements) Accelerators {
	amounts := map[string]resource.Quantity{}
	for _, list := range []corev1.ResourceList{resources.Limits, resources.Requests} {
		for name, quantity := range list {
			if quantity.Sign() > 0 {
				amounts[string(name)] = quantity
			}
		}
	}
	names := make([]string, 0, len(amounts))
	for name := range amounts {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, kind := range acceleratorKinds {
		found := Accelerators{SeenByTorch: kind.seenByTorch}
		total := int64(0)
		for _, name := range names {
			if !kind.matches(name) {
				continue
			}
			if found.Resource == "" {
				found.Resource = corev1.ResourceName(name)
			}
			amount := amounts[name]
			total = min(total+min(amount.Value(), math.MaxInt32), math.MaxInt32)
		}
		if total > 0 {
			found.Count = int32(total)
			return found
		}
	}
	return Accelerators{}
}

package runtime

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

func resourceList(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func TestAcceleratorsOf(t *testing.T) {
	cases := map[string]struct {
		requests, limits corev1.ResourceList
		want             Accelerators
	}{
		"nothing":                       {},
		"no devices":                    {requests: resourceList("cpu", "8", "memory", "1Gi"), limits: resourceList("ephemeral-storage", "1Gi", "rdma/hca", "1")},
		"requests":                      {requests: resourceList("nvidia.com/gpu", "8"), want: Accelerators{"nvidia.com/gpu", 8, true}},
		"limits":                        {limits: resourceList("nvidia.com/gpu", "8"), want: Accelerators{"nvidia.com/gpu", 8, true}},
		"both":                          {requests: resourceList("nvidia.com/gpu", "8"), limits: resourceList("nvidia.com/gpu", "8"), want: Accelerators{"nvidia.com/gpu", 8, true}},
		"none, in so many words":        {requests: resourceList("nvidia.com/gpu", "0"), limits: resourceList("nvidia.com/gpu", "0")},
		"none requested of some":        {requests: resourceList("nvidia.com/gpu", "0"), limits: resourceList("nvidia.com/gpu", "2"), want: Accelerators{"nvidia.com/gpu", 2, true}},
		"shared":                        {limits: resourceList("nvidia.com/gpu.shared", "1"), want: Accelerators{"nvidia.com/gpu.shared", 1, true}},
		"MIG":                           {limits: resourceList("nvidia.com/mig-1g.5gb", "2"), want: Accelerators{"nvidia.com/mig-1g.5gb", 2, true}},
		"several MIG profiles":          {limits: resourceList("nvidia.com/mig-2g.10gb", "1", "nvidia.com/mig-1g.5gb", "3"), want: Accelerators{"nvidia.com/mig-1g.5gb", 4, true}},
		"AMD":                           {limits: resourceList("amd.com/gpu", "4"), want: Accelerators{"amd.com/gpu", 4, true}},
		"Gaudi":                         {limits: resourceList("habana.ai/gaudi", "8"), want: Accelerators{"habana.ai/gaudi", 8, false}},
		"TPU":                           {limits: resourceList("google.com/tpu", "4"), want: Accelerators{"google.com/tpu", 4, false}},
		"Neuron":                        {limits: resourceList("aws.amazon.com/neuron", "16"), want: Accelerators{"aws.amazon.com/neuron", 16, false}},
		"Neuron cores":                  {limits: resourceList("aws.amazon.com/neuroncore", "32"), want: Accelerators{"aws.amazon.com/neuroncore", 32, false}},
		"Neuron's older name":           {limits: resourceList("aws.amazon.com/neurondevice", "1"), want: Accelerators{"aws.amazon.com/neurondevice", 1, false}},
		"Intel":                         {limits: resourceList("gpu.intel.com/i915", "1"), want: Accelerators{"gpu.intel.com/i915", 1, true}},
		"Intel's newer driver":          {limits: resourceList("gpu.intel.com/xe", "2"), want: Accelerators{"gpu.intel.com/xe", 2, true}},
		"Intel's parts":                 {limits: resourceList("gpu.intel.com/memory.max", "8G", "gpu.intel.com/millicores", "100", "gpu.intel.com/i915_monitoring", "1")},
		"another vendor":                {limits: resourceList("example.com/gpu", "2"), want: Accelerators{"example.com/gpu", 2, true}},
		"parts of a shared GPU":         {limits: resourceList("nvidia.com/gpumem", "8000", "nvidia.com/gpucores", "30", "nvidia.com/gpumem-percentage", "50")},
		"a shared GPU and its parts":    {limits: resourceList("nvidia.com/gpumem", "8000", "nvidia.com/gpu", "2", "nvidia.com/gpucores", "30"), want: Accelerators{"nvidia.com/gpu", 2, true}},
		"the first kind counts":         {limits: resourceList("example.com/gpu", "3", "nvidia.com/mig-1g.5gb", "4", "nvidia.com/gpu", "2"), want: Accelerators{"nvidia.com/gpu", 2, true}},
		"more than can be":              {limits: resourceList("nvidia.com/gpu", "9E"), want: Accelerators{"nvidia.com/gpu", math.MaxInt32, true}},
		"more than can be, in two ways": {limits: resourceList("nvidia.com/mig-1g.5gb", "9E", "nvidia.com/mig-2g.10gb", "9E"), want: Accelerators{"nvidia.com/mig-1g.5gb", math.MaxInt32, true}},
		"less than none":                {requests: resourceList("nvidia.com/gpu", "-3")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for range 20 { // Maps have another order each time.
				got := AcceleratorsOf(&corev1.ResourceRequirements{Requests: tc.requests, Limits: tc.limits})
				if got != tc.want {
					t.Fatalf("got %+v, want %+v", got, tc.want)
				}
			}
		})
	}
}

// What is no accelerator never changes the answer, and an accelerator is always found.
func TestAcceleratorsAmongOthers(t *testing.T) {
	others := []string{"cpu", "memory", "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage", "gpu.intel.com/memory.max", "rdma/hca", "hugepages-2Mi", "example.com/gpu-memory"}
	devices := []string{"nvidia.com/gpu", "nvidia.com/mig-7g.80gb", "amd.com/gpu", "habana.ai/gaudi", "google.com/tpu", "aws.amazon.com/neuron", "gpu.intel.com/xe", "vendor.example/gpu"}
	rapid.Check(t, func(t *rapid.T) {
		resources := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
		lists := []corev1.ResourceList{resources.Requests, resources.Limits}
		for _, name := range rapid.SliceOf(rapid.SampledFrom(others)).Draw(t, "others") {
			rapid.SampledFrom(lists).Draw(t, "list")[corev1.ResourceName(name)] = *resource.NewQuantity(rapid.Int64Range(0, 1<<40).Draw(t, "amount"), resource.DecimalSI)
		}
		if got := AcceleratorsOf(&resources); got != (Accelerators{}) {
			t.Fatalf("found %+v", got)
		}
		device, count := rapid.SampledFrom(devices).Draw(t, "device"), rapid.Int32Range(1, 64).Draw(t, "count")
		rapid.SampledFrom(lists).Draw(t, "list")[corev1.ResourceName(device)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
		if got := AcceleratorsOf(&resources); got.Count != count || string(got.Resource) != device {
			t.Fatalf("got %+v, want %d of %s", got, count, device)
		}
	})
}

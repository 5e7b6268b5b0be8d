package gputopology

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func resources(amounts map[corev1.ResourceName]int64) *framework.Resource {
	return &framework.Resource{ScalarResources: amounts}
}

func TestRequestedAccelerator(t *testing.T) {
	a := newAccelerators([]string{"nvidia.com/gpu", "nvidia.com/mig-*", "gpu.intel.com/*"})
	for _, test := range []struct {
		name     string
		requests map[corev1.ResourceName]int64
		want     request
	}{
		{"none", nil, request{}},
		{"another resource", map[corev1.ResourceName]int64{"rdma/hca": 1}, request{}},
		{"zero is none", map[corev1.ResourceName]int64{"nvidia.com/gpu": 0}, request{}},
		{"by name", map[corev1.ResourceName]int64{"nvidia.com/gpu": 4}, request{"nvidia.com/gpu", 4}},
		{"by wildcard", map[corev1.ResourceName]int64{"gpu.intel.com/xe": 2}, request{"gpu.intel.com/xe", 2}},
		{"the name alone is not under the wildcard", map[corev1.ResourceName]int64{"gpu.intel.com": 2}, request{}},
		{"the first configured", map[corev1.ResourceName]int64{"gpu.intel.com/xe": 2, "nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 3}, request{"nvidia.com/gpu", 1}},
		{"by name within one wildcard", map[corev1.ResourceName]int64{"nvidia.com/mig-2g.10gb": 1, "nvidia.com/mig-1g.5gb": 3}, request{"nvidia.com/mig-1g.5gb", 3}},
		{"one asked for among others", map[corev1.ResourceName]int64{"nvidia.com/gpu": 0, "nvidia.com/mig-1g.5gb": 3}, request{"nvidia.com/mig-1g.5gb", 3}},
	} {
		for range 20 { // the order of a map is random
			if got := a.requested(resources(test.requests)); got != test.want {
				t.Fatalf("%s: got %+v, want %+v", test.name, got, test.want)
			}
		}
	}
}

func TestAnyAccelerator(t *testing.T) {
	a := newAccelerators(DefaultAccelerators)
	for name, want := range map[corev1.ResourceName]bool{
		"nvidia.com/gpu": true, "nvidia.com/mig-3g.20gb": true, "google.com/tpu": true, "gpu.intel.com/xe": true,
		"rdma/hca": false, "gpu.intel.com/memory.max": false, "nvidia.com/gpu.shared": false,
	} {
		if got := a.any(resources(map[corev1.ResourceName]int64{name: 1})); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
		if a.any(resources(map[corev1.ResourceName]int64{name: 0})) {
			t.Errorf("%s: a node with none of it has accelerators", name)
		}
	}
}

package gangplan

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/podgroup/planner"
)

// amountsOf lists the resources that are not zero, in the scheduler's units: devices by name first,
// since they are what a gang is usually short of, then cpu, memory and ephemeral storage.
func amountsOf(r fwk.Resource) []planner.ResourceAmount {
	scalars := r.GetScalarResources()
	out := make([]planner.ResourceAmount, 0, len(scalars)+4)
	for name, value := range scalars {
		if value != 0 {
			out = append(out, planner.ResourceAmount{Name: string(name), Value: value})
		}
	}
	slices.SortFunc(out, func(a, b planner.ResourceAmount) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	for _, a := range []planner.ResourceAmount{
		{Name: string(corev1.ResourceCPU), Value: r.GetMilliCPU()},
		{Name: string(corev1.ResourceMemory), Value: r.GetMemory()},
		{Name: string(corev1.ResourceEphemeralStorage), Value: r.GetEphemeralStorage()},
	} {
		if a.Value != 0 {
			out = append(out, a)
		}
	}
	return out
}

// amounts is amountsOf in columns of the planner's table.
func (c *Cluster) amounts(r fwk.Resource) []planner.Amount {
	named := amountsOf(r)
	out := make([]planner.Amount, len(named), len(named)+4)
	for i, a := range named {
		out[i] = planner.Amount{Resource: c.Resource(a.Name), Value: a.Value}
	}
	return out
}

// usedBy is all that a pod uses of its node, as the model counts it.
func usedBy(pod *corev1.Pod) ([]planner.ResourceAmount, error) {
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", klog.KObj(pod), err)
	}
	used := append(amountsOf(info.CalculateResource().Resource), planner.ResourceAmount{Name: string(corev1.ResourcePods), Value: 1})
	ports, _ := hostPorts(pod)
	for _, p := range ports {
		used = append(used, planner.ResourceAmount{Name: portName(p), Value: 1})
	}
	return used, nil
}

package gangplan

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/podgroup/planner"
)

// ClaimOf is what a pod claims on a node that it had, or is to have. Unlike ClaimFor it may be called from any
// goroutine. The error is about the pod.
func ClaimOf(pod *corev1.Pod, node string) (Claim, error) {
	used, err := usedBy(pod)
	if err != nil {
		return Claim{}, err
	}
	ports, _ := hostPorts(pod)
	claim := Claim{Node: node, ports: ports}
	claim.named = used[:len(used)-len(ports)]
	return claim, nil
}

// SameAs reports whether two claims are for the same on the same node.
func (c *Claim) SameAs(other *Claim) bool {
	return c.Node == other.Node && slices.Equal(c.named, other.named) && slices.Equal(c.ports, other.ports)
}

// requestsOf are a claim's requests in columns of the model.
func (c *Cluster) requestsOf(claim Claim) []planner.Amount {
	if claim.Requests != nil {
		return claim.Requests
	}
	amounts := make([]planner.Amount, 0, len(claim.named)+len(claim.ports))
	for _, a := range claim.named {
		amounts = append(amounts, planner.Amount{Resource: c.Resource(a.Name), Value: a.Value})
	}
	for _, port := range claim.ports {
		if r, counted := c.singles.ports[port]; counted {
			amounts = append(amounts, planner.Amount{Resource: r, Value: 1})
		}
	}
	return amounts
}

// Barred says why a pod could not be put on a node even if all other pods left it, or returns "". It looks at
// what arithmetic knows: cordons, taints, node selectors, and the node's size. It may be called from any goroutine.
func Barred(logger klog.Logger, pod *corev1.Pod, node *corev1.Node) string {
	e := eligibility{affinity: nodeaffinity.GetRequiredNodeAffinity(pod), tolerations: pod.Spec.Tolerations}
	if why := e.cause(logger, node); why != "" {
		return why
	}
	needs, err := usedBy(pod)
	if err != nil {
		return err.Error()
	}
	ports, _ := hostPorts(pod)
	has := amountsOf(framework.NewResource(node.Status.Allocatable))
	has = append(has, planner.ResourceAmount{Name: string(corev1.ResourcePods), Value: node.Status.Allocatable.Pods().Value()})
	for _, need := range needs[:len(needs)-len(ports)] {
		i := slices.IndexFunc(has, func(a planner.ResourceAmount) bool { return a.Name == need.Name })
		if i < 0 || has[i].Value < need.Value {
			return fmt.Sprintf("too small for %s %d", need.Name, need.Value)
		}
	}
	return ""
}

// PlanVacancies places pods that do not exist, as many as there is room for beside the claims. Members that
// arithmetic cannot describe are placed by arithmetic all the same: their objects are no longer there to be asked about.
func PlanVacancies(ctx context.Context, fw framework.Framework, c *Cluster, d *Demand, claims []Claim) (*planner.Plan, *planner.Explanation, error) {
	if !d.exact {
		return Plan(ctx, fw, c, d, claims)
	}
	defer c.Hold(claims)()
	return c.Plan(&d.Demand, nil)
}

package gangplan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// FitsBeside reports whether a pod fits on a node beside the claims on it, and if not, which resource is short
// and by how much. It may be called from any goroutine; claims on other nodes are passed over.
func FitsBeside(pod *corev1.Pod, info fwk.NodeInfo, claims []Claim) (short string, fits bool) {
	used, err := usedBy(pod)
	if err != nil {
		return err.Error(), false
	}
	for _, need := range used {
		held := int64(0)
		for _, claim := range claims {
			if claim.Node == info.Node().Name {
				held += claim.of(need.Name)
			}
		}
		if held <= 0 {
			continue // what the node has left is for others to check
		}
		if left := leftOn(info, need.Name) - held; need.Value > left {
			return fmt.Sprintf("%s: %d needed, %d left beside what is held", need.Name, need.Value, max(left, 0)), false
		}
	}
	return "", true
}

// of returns how much of a resource the claim is for.
func (c *Claim) of(resource string) int64 {
	for _, a := range c.named {
		if a.Name == resource {
			return a.Value
		}
	}
	return 0
}

// leftOn returns how much of a resource the pods on a node leave.
func leftOn(info fwk.NodeInfo, resource string) int64 {
	if resource == string(corev1.ResourcePods) {
		return int64(info.GetAllocatable().GetAllowedPodNumber() - len(info.GetPods()))
	}
	left := int64(0)
	for _, a := range amountsOf(info.GetAllocatable()) {
		if a.Name == resource {
			left += a.Value
		}
	}
	for _, a := range amountsOf(info.GetRequested()) {
		if a.Name == resource {
			left -= a.Value
		}
	}
	return left
}

package gangplan

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// reservation is what a member in a trial holds of devices and volumes, in the scheduler's memory
// alone.
type reservation struct {
	state *framework.CycleState
	pod   *corev1.Pod
	uses  *uses
}

// reserve runs the profile's Reserve plugins for a member with claims or volumes, so that the members
// after it see the devices and volumes that it would take: DynamicResources notes an allocation in
// flight, VolumeBinding assumes a volume or a node for it. Neither asks the API server for anything.
//
// A member is left out where Unreserve would undo more than that. See uses.
func (t *trial) reserve(p *prepared, member int, pod *corev1.Pod) (*reservation, *fwk.Status) {
	u := &t.kinds.uses[member]
	if !u.reservable() {
		return nil, nil
	}
	return &reservation{p.state, pod, u}, t.fw.RunReservePluginsReserve(t.ctx, p.state, pod, pod.Spec.NodeName)
}

// unreserve takes a reservation back. The context is done, so that a plugin that would write to the
// API server cannot.
func (t *trial) unreserve(r *reservation) {
	if r == nil {
		return
	}
	done, cancel := context.WithCancel(t.ctx)
	cancel()
	if r.uses.allocated {
		for _, uid := range r.uses.unallocated {
			t.fw.SharedDRAManager().ResourceClaims().MaybeRemoveClaimPendingAllocation(uid, false)
		}
		r.state.Delete(names.DynamicResources)
	}
	t.fw.RunReservePluginsUnreserve(done, r.state, r.pod, r.pod.Spec.NodeName)
}

// Allocation is what a claim would be given.
type Allocation struct {
	Claim  *resourcev1.ResourceClaim
	Result *resourcev1.AllocationResult
	// Users are the members that share the claim, in rank order, as far as they have a place.
	Users []*corev1.Pod
}

// allocations lists the claims that several members in place share and that were allocated in the
// trial, in the order in which members name them.
func (t *trial) allocations() []Allocation {
	var out []Allocation
	tracker := t.fw.SharedDRAManager()
	if tracker == nil {
		return nil
	}
	index := map[*resourcev1.ResourceClaim]int{}
	for _, p := range t.placed {
		if !t.kinds.shares[p.member] {
			continue
		}
		for _, claim := range t.kinds.uses[p.member].claims {
			if !t.kinds.shared(claim) {
				continue
			}
			i, known := index[claim]
			if !known {
				result := tracker.ResourceClaims().GetPendingAllocation(claim.UID)
				if result == nil {
					continue
				}
				i = len(out)
				index[claim] = i
				out = append(out, Allocation{Claim: claim, Result: result})
			}
			out[i].Users = append(out[i].Users, t.demand.Pods[p.member])
		}
	}
	return out
}

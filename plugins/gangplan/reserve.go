package gangplan

import (
	"context"

	corev1 "k8s.io/api/core/v1"
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

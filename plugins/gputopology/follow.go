package gputopology

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/plugins/gangplan"
)

// pinKey is where the cycle of a member keeps the node that the plan has for it.
const pinKey fwk.StateKey = "muster.dev/gputopology-pin"

type pin string

// Clone returns the pin itself: nothing changes it.
func (p pin) Clone() fwk.StateData { return p }

// PreFilter gives a member of a native pod group the node that the plan has for it in the placement
// that is being tried, so that ranks and slices are as planned and one node is looked at.
func (pl *GPUTopology) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !state.IsPodGroupSchedulingCycle() || gangplan.IsTrial(state) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	o := pl.tried(offersOf(state.GetPodGroupSchedulingCycle()), len(nodes))
	if o == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	node, ok := o.nodes[pod.UID]
	if !ok {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "no room for this member beside the rest of its pod group")
	}
	state.Write(pinKey, pin(node))
	return &fwk.PreFilterResult{NodeNames: sets.New(node)}, nil
}

// tried returns the offer whose placement the scheduler is trying, nil if it is none of them. The
// public interface does not tell a plugin the placement; the snapshot behind it does, and returns
// nil while all nodes of the cluster are in it.
func (pl *GPUTopology) tried(made offers, allNodes int) *offer {
	snapshot, ok := pl.handle.SnapshotSharedLister().(interface{ GetPlacement() *fwk.Placement })
	if !ok {
		return nil
	}
	current := snapshot.GetPlacement()
	for i := range made {
		p := made[i].placement
		if p == current || current == nil && len(p.Nodes) == allNodes {
			return &made[i]
		}
	}
	return nil
}

// PreFilterExtensions returns nil: adding or removing one pod changes nothing for a planned member.
func (pl *GPUTopology) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter holds a member to its planned node. The scheduler tries a pod's nominated node first,
// before it looks at what PreFilter allows.
func (pl *GPUTopology) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	data, err := state.Read(pinKey)
	if err != nil {
		return nil
	}
	if node, ok := data.(pin); ok && string(node) != info.Node().Name {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "not the node that the pod group's plan has for this member")
	}
	return nil
}

package gputopology

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/podgroup/planner"
)

const (
	// The highest score has three parts: for the shape in which a node's free accelerators are left, for
	// how full the node is already, and for how full its domains are. In simulation_test.go more for
	// the shape leaves fewer nodes whole, and less leaves more GPUs in pieces.
	shapeScore  = 40
	nodeScore   = 40
	domainScore = int64(fwk.MaxScore) - shapeScore - nodeScore
	// nodeWithAccelerators is what a node with accelerators gets for a pod that needs none; others get
	// the highest score.
	nodeWithAccelerators = 60
)

// scoreKey marks what PreScore leaves for Score.
const scoreKey fwk.StateKey = "muster.dev/gputopology-score"

type scoreState struct{ request }

// Clone returns the state itself: nothing changes it.
func (s *scoreState) Clone() fwk.StateData { return s }

// PreScore finds out which accelerator the pod is for, and how full the domains are of it.
func (pl *GPUTopology) PreScore(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return fwk.AsStatus(err)
	}
	s := &scoreState{pl.accelerators.requested(info.CalculateResource().Resource)}
	state.Write(scoreKey, s)
	if s.amount == 0 {
		return nil
	}
	nodes, err := pl.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("list the nodes: %w", err))
	}
	pl.occupancy.sync(nodes)
	return nil
}

// Score prefers, for a pod with accelerators, the node whose free ones it leaves in the best shape:
// one that has a block of just its size before one that has to break a larger block, and a whole
// node last; and nodes and domains that are fuller, so that whole nodes, and then whole racks, stay
// free. A pod without accelerators prefers nodes without.
func (pl *GPUTopology) Score(_ context.Context, state fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	data, err := state.Read(scoreKey)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	s, ok := data.(*scoreState)
	if !ok {
		return 0, fwk.AsStatus(fmt.Errorf("%s holds a %T", scoreKey, data))
	}
	if s.amount == 0 {
		if pl.accelerators.any(info.GetAllocatable()) {
			return nodeWithAccelerators, nil
		}
		return fwk.MaxScore, nil
	}
	capacity := info.GetAllocatable().GetScalarResources()[s.resource]
	free := capacity - info.GetRequested().GetScalarResources()[s.resource]
	full := use{used: capacity - free, capacity: capacity}.share(nodeScore)
	return shape(free, capacity, s.amount) + full + pl.occupancy.fill(info.Node().Name, s.resource, domainScore), nil
}

// ScoreExtensions returns nil: scores are from 0 to 100 as they are.
func (pl *GPUTopology) ScoreExtensions() fwk.ScoreExtensions { return nil }

// shape scores what the request leaves of the free devices, from 0 to shapeScore: the most if it
// uses a block of just its size, less the more it breaks up.
func shape(free, capacity, request int64) int64 {
	cost := planner.ShapeCost(free, capacity, request)
	if cost <= 0 {
		return 0 // it does not fit
	}
	// On a node that has no more than this left, and is not whole, the request cannot break anything.
	least := planner.ShapeCost(request, request+1, request)
	return min(least, cost) * shapeScore / cost
}

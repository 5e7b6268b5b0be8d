package gangplan

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/podgroup/planner"
)

// placeOneByOne is the exact way to place a gang: each member, in rank order, goes to the first
// node in topology order that every Filter plugin accepts with the members before it in place, on
// copies of the snapshot's nodes. It sees what arithmetic cannot, inter-pod affinity and spread
// among the members for one, at the price of a check for each member and node. It does not try
// again with another choice for a member that passed.
func (v *verifier) placeOneByOne() (*planner.Plan, *planner.Explanation, error) {
	t := trial{v: v, copies: map[planner.NodeID]fwk.NodeInfo{}}
	nodes := make([]planner.NodeID, len(v.demand.Pods))
	for i := range nodes {
		nodes[i] = planner.NoNode
	}
	for i := range v.demand.Pods {
		node, causes, err := t.place(i)
		if err != nil {
			return nil, nil, err
		}
		if node == planner.NoNode {
			if i < v.demand.Min {
				return nil, v.cluster.Refused(&v.demand.Demand, i, causes), nil
			}
			break
		}
		nodes[i] = node
	}
	all := slices.Clone(nodes)
	for _, p := range v.demand.Placed {
		all = append(all, p.Node)
	}
	return &planner.Plan{Nodes: nodes, Domain: v.cluster.DomainOf(all)}, nil, nil
}

// trial is a private copy of the cluster with some members in place.
type trial struct {
	v      *verifier
	copies map[planner.NodeID]fwk.NodeInfo
	placed []placedMember
}

type placedMember struct {
	info fwk.PodInfo
	node planner.NodeID
}

// place finds a node for a member and puts it there. Without one it returns why each node was
// refused.
func (t *trial) place(member int) (planner.NodeID, []string, error) {
	v := t.v
	pod, state := v.demand.Pods[member], newTrialState()
	allowed, status, _ := v.fw.RunPreFilterPlugins(v.ctx, state, pod)
	if status.Code() == fwk.Error {
		return planner.NoNode, nil, fmt.Errorf("placing pod %s/%s: %w", pod.Namespace, pod.Name, status.AsError())
	}
	n := planner.NodeID(v.cluster.NumNodes())
	causes := make([]string, n)
	if !status.IsSuccess() {
		for id := range n {
			causes[id] = RefusedBy(status)
		}
		return planner.NoNode, causes, nil
	}
	for _, p := range t.placed {
		if s := v.fw.RunPreFilterExtensionAddPod(v.ctx, state, pod, p.info, t.copies[p.node]); !s.IsSuccess() {
			return planner.NoNode, nil, fmt.Errorf("placing pod %s/%s: %w", pod.Namespace, pod.Name, s.AsError())
		}
	}
	for id := range n {
		info := t.info(id)
		if !allowed.AllNodes() && !allowed.NodeNames.Has(info.Node().Name) {
			causes[id] = causeSelector
			continue
		}
		s := v.fw.RunFilterPluginsWithNominatedPods(v.ctx, state, pod, info)
		if s.Code() == fwk.Error {
			return planner.NoNode, nil, fmt.Errorf("placing pod %s/%s: %w", pod.Namespace, pod.Name, s.AsError())
		}
		if s.IsSuccess() {
			return id, nil, t.put(pod, id)
		}
		causes[id] = RefusedBy(s)
	}
	return planner.NoNode, causes, v.ctx.Err()
}

func (t *trial) info(id planner.NodeID) fwk.NodeInfo {
	if info, ok := t.copies[id]; ok {
		return info
	}
	return t.v.cluster.infoByID[id]
}

func (t *trial) put(pod *corev1.Pod, id planner.NodeID) error {
	info := t.info(id)
	assumed := *pod
	assumed.Spec.NodeName = info.Node().Name
	podInfo, err := framework.NewPodInfo(&assumed)
	if err != nil {
		return err
	}
	if _, copied := t.copies[id]; !copied {
		info = info.Snapshot()
		t.copies[id] = info
	}
	info.AddPodInfo(podInfo)
	t.placed = append(t.placed, placedMember{podInfo, id})
	return nil
}

package gputopology

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup/planner"
)

// offersKey is where the cycle of a pod group keeps what GeneratePlacements offered.
const offersKey fwk.StateKey = "muster.dev/gputopology-offers"

// offer is a placement together with the plan that it was made from.
type offer struct {
	placement *fwk.Placement
	nodes     map[types.UID]string // of each member that has a place
}

// offers are in the planner's order of choice.
type offers []offer

// Clone returns the offers themselves: nothing changes them.
func (o offers) Clone() fwk.StateData { return o }

// GeneratePlacements plans the pod group and offers the planned nodes as the first placement, then
// those of a few alternatives. A group that the planner has no place for is refused as a whole, with
// the planner's explanation.
func (pl *GPUTopology) GeneratePlacements(ctx context.Context, state fwk.PodGroupCycleState, group fwk.PodGroupInfo, parent *fwk.Placement) (*fwk.GeneratePlacementsResult, *fwk.Status) {
	pl.cluster.Sync(parent.Nodes)
	pl.refusals.forget(group)
	if group.GetCompositePodGroup() != nil {
		return pl.divide(group, parent)
	}
	d, err := pl.demand(ctx, group)
	if err != nil {
		if invalid(err) {
			pl.refusals.invalid(group)
			return nil, refused(group, parent, fwk.UnschedulableAndUnresolvable, err.Error())
		}
		return nil, fwk.AsStatus(err)
	}
	made, why, err := pl.offers(ctx, d, parent)
	if err != nil {
		return nil, fwk.AsStatus(fmt.Errorf("plan pod group %s: %w", group.GetKey(), err))
	}
	if len(made) == 0 {
		pl.unplaced(group, parent, d, why)
		pl.prepareForPostFilter(ctx, state, group)
		return nil, refused(group, parent, fwk.Unschedulable, why.String())
	}
	state.Write(offersKey, made)
	result := &fwk.GeneratePlacementsResult{}
	for _, o := range made {
		result.Placements = append(result.Placements, o.placement)
	}
	klog.FromContext(ctx).V(3).Info("Planned pod group", "podGroup", group.GetKey(), "placements", len(made), "first", made[0].placement.Name)
	return result, nil
}

// offers makes the placements: the planner's choice, then what it would choose if the earlier ones
// were taken. Without any it returns the planner's explanation of the first.
func (pl *GPUTopology) offers(ctx context.Context, d *gangplan.Demand, parent *fwk.Placement) (offers, *planner.Explanation, error) {
	var made offers
	var taken []gangplan.Claim
	whole := false
	for range 1 + *pl.args.Alternatives {
		plan, why, err := gangplan.Plan(ctx, pl.handle, pl.cluster, d, taken)
		if err != nil {
			return nil, nil, err
		}
		if plan == nil {
			if len(made) == 0 {
				return nil, why, nil
			}
			break
		}
		o := offer{placement: &fwk.Placement{Name: fmt.Sprintf("%d: %s", len(made)+1, plan.Domain)}, nodes: map[types.UID]string{}}
		chosen := sets.New[planner.NodeID]()
		for i, node := range plan.Nodes {
			if node == planner.NoNode {
				continue
			}
			name := pl.cluster.NodeName(node)
			o.nodes[d.Pods[i].UID] = name
			if !chosen.Has(node) {
				chosen.Insert(node)
				o.placement.Nodes = append(o.placement.Nodes, pl.cluster.Info(node))
			}
			taken = append(taken, gangplan.Claim{Node: name, Requests: d.Classes[d.Members[i].Class].Requests})
		}
		// A placement of all nodes is none to the scheduler, so a second one could not be told apart.
		if all := len(chosen) == len(parent.Nodes); !all || !whole {
			made = append(made, o)
			whole = whole || all
		}
	}
	return made, nil, nil
}

// refused says no to every member of the group. The error is the one that the scheduler's queue reads
// to learn which plugin's events may help, and the words are those that it would write for one pod.
func refused(group fwk.PodGroupInfo, parent *fwk.Placement, code fwk.Code, why string) *fwk.Status {
	var pod *corev1.Pod
	if pods := group.GetUnscheduledPods(); len(pods) > 0 {
		pod = pods[0]
	}
	return fwk.NewStatus(code).WithError(&framework.FitError{
		Pod:         pod,
		NumAllNodes: len(parent.Nodes),
		Diagnosis: framework.Diagnosis{
			NodeToStatus:         framework.NewDefaultNodeToStatus(),
			UnschedulablePlugins: sets.New(Name),
			PreFilterMsg:         why,
		},
	})
}

// prepareForPostFilter runs the PreFilter plugins for one member. The plugins that may make room after a
// refusal expect that a member was tried before: DynamicResources fails the whole cycle with an error
// if it never saw one.
func (pl *GPUTopology) prepareForPostFilter(ctx context.Context, state fwk.PodGroupCycleState, group fwk.PodGroupInfo) {
	for _, pod := range group.GetUnscheduledPods()[:1] {
		member := framework.NewCycleState()
		member.SetPodGroupSchedulingCycle(state)
		pl.handle.RunPreFilterPlugins(ctx, member, pod)
	}
}

// ScorePlacement prefers the placement that was offered earlier.
func (pl *GPUTopology) ScorePlacement(_ context.Context, state fwk.PlacementCycleState, _ fwk.PodGroupInfo, assigned *fwk.PodGroupAssignments) (int64, *fwk.Status) {
	made := offersOf(state.GetPodGroupSchedulingCycle())
	for i := range made {
		if made[i].placement == assigned.Placement {
			return fwk.MaxScore * int64(len(made)-i) / int64(len(made)), nil
		}
	}
	return 0, nil // another generator's, or the domain of a composite group
}

// PlacementScoreExtensions returns nil: scores are from 0 to 100 as they are.
func (pl *GPUTopology) PlacementScoreExtensions() fwk.PlacementScoreExtensions { return nil }

// offersOf returns what was offered in this cycle, none if nothing was.
func offersOf(state fwk.PodGroupCycleState) offers {
	if state == nil {
		return nil
	}
	data, err := state.Read(offersKey)
	if err != nil {
		return nil
	}
	made, _ := data.(offers)
	return made
}

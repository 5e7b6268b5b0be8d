package gputopology

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"

	"github.com/muster-sched/muster/podgroup/planner"
)

// divide offers, for a composite pod group with a topology constraint, each domain of the constraint's
// level in topology order, or the one that has members already. The groups in it are planned one
// after another inside each of them.
func (pl *GPUTopology) divide(group fwk.PodGroupInfo, parent *fwk.Placement) (*fwk.GeneratePlacementsResult, *fwk.Status) {
	level, err := pl.compositeLevel(group.GetCompositePodGroup())
	if err != nil {
		return nil, refused(group, parent, fwk.UnschedulableAndUnresolvable, err.Error())
	}
	if level == planner.WholeCluster {
		return &fwk.GeneratePlacementsResult{Placements: []*fwk.Placement{parent}}, nil
	}
	held, err := pl.heldDomains(group, level)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	if held[""] || len(held) > 1 {
		return nil, refused(group, parent, fwk.UnschedulableAndUnresolvable,
			fmt.Sprintf("members of the composite pod group have places that are not in one domain of %s", pl.cluster.LevelName(level)))
	}
	var placements []*fwk.Placement
	for id := range planner.NodeID(pl.cluster.NumNodes()) {
		info := pl.cluster.Info(id)
		name := pl.domain(info.Node(), level)
		if name == "" || len(held) == 1 && !held[name] {
			continue
		}
		if n := len(placements); n == 0 || placements[n-1].Name != name {
			placements = append(placements, &fwk.Placement{Name: name})
		}
		last := placements[len(placements)-1]
		last.Nodes = append(last.Nodes, info)
	}
	if len(placements) == 0 {
		return nil, refused(group, parent, fwk.Unschedulable, fmt.Sprintf("no node has the label %s", pl.cluster.LevelName(level)))
	}
	return &fwk.GeneratePlacementsResult{Placements: placements}, nil
}

func (pl *GPUTopology) compositeLevel(group *schedulingv1alpha3.CompositePodGroup) (planner.Level, error) {
	level := planner.WholeCluster
	if c := group.Spec.SchedulingConstraints; c != nil {
		for i := range c.Topology {
			l, err := pl.level(c.Topology[i].Key)
			if err != nil {
				return 0, err
			}
			level = max(level, l)
		}
	}
	return level, nil
}

// heldDomains are those in which members of the groups in it have their place, "" for a place outside
// the level.
func (pl *GPUTopology) heldDomains(group fwk.PodGroupInfo, level planner.Level) (map[string]bool, error) {
	lister := pl.handle.SnapshotSharedLister()
	key := fwk.CompositePodGroupKey(group.GetNamespace(), group.GetName())
	held := map[string]bool{}
	for state, err := range helper.GetPodGroupStates(lister, key) {
		if err != nil {
			return nil, fmt.Errorf("states of composite pod group %s: %w", group.GetKey(), err)
		}
		for _, pod := range state.ScheduledPods() {
			info, err := lister.NodeInfos().Get(pod.Spec.NodeName)
			if err != nil || info.Node() == nil {
				continue // the node is gone, and the pod will be
			}
			held[pl.domain(info.Node(), level)] = true
		}
	}
	return held, nil
}

// domain names the node's domain of the level, with those around it; "" if it is in none.
func (pl *GPUTopology) domain(node *corev1.Node, level planner.Level) string {
	if level == pl.cluster.NodeLevel() {
		return node.Name
	}
	labels := pl.cluster.Levels()[:level]
	if node.Labels[labels[len(labels)-1]] == "" {
		return ""
	}
	values := make([]string, len(labels))
	for i, label := range labels {
		values[i] = node.Labels[label]
	}
	return strings.Join(values, "/")
}

package gangplan

import (
	"context"
	"fmt"
	"strings"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/podgroup/planner"
)

// verifier checks a plan with the profile's own Filter plugins, on the planned nodes only: one
// check for each class on each node, with the rest of the gang in its place.
type verifier struct {
	ctx     context.Context
	fw      framework.Framework
	cluster *Cluster
	demand  *Demand
	// states of each class after PreFilter, made when first needed.
	states []*classState
}

type classState struct {
	state   fwk.CycleState
	allowed *fwk.PreFilterResult
	refused *fwk.Status
}

// share is the part of a plan that falls to one node.
type share struct {
	node    planner.NodeID
	members []int // indices of members
}

var _ planner.Verifier = &verifier{}

// Verify implements planner.Verifier.
func (v *verifier) Verify(d *planner.Demand, nodes []planner.NodeID) ([]planner.Limit, error) {
	if v.states == nil {
		v.states = make([]*classState, len(d.Classes))
	}
	for i, node := range nodes {
		class := d.Members[i].Class
		if node == planner.NoNode || v.states[class] != nil {
			continue
		}
		s := v.prepare(class)
		v.states[class] = s
		if s.refused != nil {
			if s.refused.Code() == fwk.Error {
				return nil, s.refused.AsError()
			}
			return []planner.Limit{{Class: class, Node: planner.NoNode, Cause: RefusedBy(s.refused)}}, nil
		}
	}
	shares := sharesByNode(nodes)
	limits := make([][]planner.Limit, len(shares))
	errs := make([]error, len(shares))
	v.fw.Parallelizer().Until(v.ctx, len(shares), func(i int) {
		limits[i], errs[i] = v.check(d, &shares[i])
	}, "GangVerify")
	var out []planner.Limit
	for i := range shares {
		if errs[i] != nil {
			return nil, errs[i]
		}
		out = append(out, limits[i]...)
	}
	return out, v.ctx.Err()
}

// prepare runs the PreFilter plugins for the first member of a class, which stands for the others.
func (v *verifier) prepare(class int) *classState {
	s := &classState{state: newTrialState()}
	allowed, status, _ := v.fw.RunPreFilterPlugins(v.ctx, s.state, v.demand.Pods[v.demand.samples[class]])
	s.allowed = allowed
	if !status.IsSuccess() {
		s.refused = status
	}
	return s
}

func sharesByNode(nodes []planner.NodeID) []share {
	var shares []share
	index := map[planner.NodeID]int{}
	for member, node := range nodes {
		if node == planner.NoNode {
			continue
		}
		i, ok := index[node]
		if !ok {
			i = len(shares)
			index[node] = i
			shares = append(shares, share{node: node})
		}
		shares[i].members = append(shares[i].members, member)
	}
	return shares
}

// check asks, for each class with members on the node, whether its last member there passes when
// all others are in place, and finds how many would if not.
func (v *verifier) check(d *planner.Demand, s *share) ([]planner.Limit, error) {
	var limits []planner.Limit
	counts := map[int]int{}
	for _, m := range s.members {
		counts[d.Members[m].Class]++
	}
	for class := range d.Classes {
		count := counts[class]
		if count == 0 {
			continue
		}
		passes, cause, err := v.passes(d, s, class, count)
		if err != nil {
			return nil, err
		}
		if passes {
			continue
		}
		fits, fails := 0, count
		for fails-fits > 1 {
			k := (fits + fails) / 2
			ok, why, err := v.passes(d, s, class, k)
			if err != nil {
				return nil, err
			}
			if ok {
				fits = k
			} else {
				fails, cause = k, why
			}
		}
		limits = append(limits, planner.Limit{Class: class, Node: s.node, Max: fits, Cause: cause})
	}
	return limits, nil
}

// passes runs the Filter plugins for the last of k members of a class on a node that already has
// the others, and the members of earlier classes that are planned there.
func (v *verifier) passes(d *planner.Demand, s *share, class, k int) (bool, string, error) {
	state := v.states[class]
	info := v.cluster.infoByID[s.node]
	if !state.allowed.AllNodes() && !state.allowed.NodeNames.Has(info.Node().Name) {
		return false, causeSelector, nil
	}
	last, seen := -1, 0
	var others []int
	for _, m := range s.members {
		switch {
		case d.Members[m].Class == class && seen < k:
			if last >= 0 {
				others = append(others, last)
			}
			last = m
			seen++
		case d.Members[m].Class < class:
			others = append(others, m)
		}
	}
	if len(others) > 0 {
		info = info.Snapshot()
		for _, m := range others {
			info.AddPodInfo(v.demand.Infos[m])
		}
	}
	status := v.fw.RunFilterPluginsWithNominatedPods(v.ctx, state.state, v.demand.Pods[last], info)
	if status.Code() == fwk.Error {
		return false, "", fmt.Errorf("verifying node %s: %w", info.Node().Name, status.AsError())
	}
	if status.IsSuccess() {
		return true, "", nil
	}
	return false, RefusedBy(status), nil
}

// RefusedBy words the status of a plugin that refused a pod as a cause.
func RefusedBy(status *fwk.Status) string {
	reason := strings.Join(status.Reasons(), ", ")
	if status.Plugin() == "" {
		return "refused: " + reason
	}
	return "refused by " + status.Plugin() + ": " + reason
}

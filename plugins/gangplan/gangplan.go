// Package gangplan answers for a scheduler plugin where a whole gang goes: it keeps the planner's
// model of the cluster in step with the scheduling cycle's snapshot, describes pods as the planner's
// demand, and checks plans with the profile's own Filter plugins.
package gangplan

import (
	"context"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/podgroup/planner"
)

// Claim is capacity on a node that is held for a gang and that no pod of the snapshot shows yet.
type Claim struct {
	Node     string
	Requests []planner.Amount
	// named are the requests with the names of the resources, for other goroutines than the model's.
	named []planner.ResourceAmount
	// ports are host ports that are not in named: a claim made by ClaimOf, which has no Requests.
	ports []fwk.ProtocolPort
}

// Hold takes claims out of what the model has left, until the returned function gives them back.
func (c *Cluster) Hold(claims []Claim) (release func()) {
	undo := c.change(claims, c.Take, c.Return)
	c.countClaims(claims, 1)
	return func() {
		undo()
		c.countClaims(claims, -1)
	}
}

// countClaims counts the claims that are held on nodes.
func (c *Cluster) countClaims(claims []Claim, by int) {
	for _, claim := range claims {
		if c.claimed[claim.Node] += by; c.claimed[claim.Node] == 0 {
			delete(c.claimed, claim.Node)
		}
	}
}

// Unhold gives claims back that are held, until the returned function takes them out again.
func (c *Cluster) Unhold(claims []Claim) (hold func()) {
	return c.change(claims, c.Return, c.Take)
}

// change does something with what the claims are on nodes that the model has, until the returned function undoes it.
func (c *Cluster) change(claims []Claim, do, undo func(planner.NodeID, []planner.Amount)) func() {
	type share struct {
		node    planner.NodeID
		amounts []planner.Amount
	}
	var all []share
	for _, claim := range claims {
		if id, ok := c.Node(claim.Node); ok {
			all = append(all, share{id, c.singles.held(c.requestsOf(claim))})
		}
	}
	for _, s := range all {
		do(s.node, s.amounts)
	}
	return func() {
		for _, s := range all {
			undo(s.node, s.amounts)
		}
	}
}

// MostWanted adds up the first resource that claims are for: devices, if they are for any. It returns the zero
// amount if there are no claims.
func MostWanted(claims []Claim) planner.ResourceAmount {
	var sum planner.ResourceAmount
	for _, claim := range claims {
		if sum.Name == "" && len(claim.named) > 0 {
			sum.Name = claim.named[0].Name
		}
		sum.Value += claim.of(sum.Name)
	}
	return sum
}

// Plan places the demand on what the snapshot of the last Sync has left beside the claims, or explains
// why it does not fit; exactly one of the two is returned unless a plugin fails. Gangs that arithmetic
// cannot describe are placed one member at a time.
func Plan(ctx context.Context, fw framework.Framework, c *Cluster, d *Demand, claims []Claim) (*planner.Plan, *planner.Explanation, error) {
	defer c.Hold(claims)()
	if !d.exact {
		plan, explanation, err := c.Plan(&d.Demand, &verifier{ctx: ctx, fw: fw, cluster: c, demand: d})
		if err != nil || plan != nil || !explanation.Undecided {
			return plan, explanation, err
		}
	}
	// Arithmetic still says no faster and better, where it can.
	plan, explanation, err := c.Plan(&d.Demand, nil)
	if err != nil || explanation != nil {
		return nil, explanation, err
	}
	return placeOneByOne(ctx, fw, c, d, slices.Clone(plan.Nodes))
}

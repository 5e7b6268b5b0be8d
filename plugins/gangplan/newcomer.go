package gangplan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/podgroup/planner"
)

// Newcomers tells what a refused gang could use of nodes that join the cluster. It shares no state with the Cluster
// that it comes from, and may be used from any goroutine.
type Newcomers struct {
	kinds []kind
	// singles are what members ask of a node that only this package counts: an empty node has one.
	singles []planner.ResourceAmount
	// levels are the node labels down to the level one domain of which must hold the gang, and inside their values
	// where it has members already.
	levels, inside []string
	// together is set if one node must hold all members.
	together bool
}

// kind is a number of members that are alike.
type kind struct {
	members int
	sample  *corev1.Pod
	claim   Claim // on some node
}

// Newcomers describes the members that a demand needs for nodes to come.
func (c *Cluster) Newcomers(d *Demand) *Newcomers {
	n := &Newcomers{singles: c.singlesOf(d)}
	index := map[int]int{}
	for i, m := range d.Members[:d.Min] {
		k, known := index[m.Class]
		if !known {
			k = len(n.kinds)
			index[m.Class] = k
			claim := Claim{Requests: d.Classes[m.Class].Requests, named: d.named[m.Class]}
			n.kinds = append(n.kinds, kind{sample: d.Pods[i], claim: claim})
		}
		n.kinds[k].members++
	}
	required := d.Required
	if len(d.Sets) == 1 {
		required = max(required, d.Sets[0].Required)
	}
	n.together = required >= c.NodeLevel()
	n.levels = c.Levels()[:min(int(required), len(c.Levels()))]
	if len(d.Demand.Placed) > 0 && required > planner.WholeCluster {
		n.inside = domainsOf(n.levels, c.byID[d.Demand.Placed[0].Node])
	}
	return n
}

// Needed is how many members the gang needs.
func (n *Newcomers) Needed() int {
	total := 0
	for _, k := range n.kinds {
		total += k.members
	}
	return total
}

// Domain is where a node is, of the level that the gang requires: a value for each label down to it. It reports
// false if the gang can have nothing there.
func (n *Newcomers) Domain(node *corev1.Node) (values []string, ok bool) {
	values = domainsOf(n.levels, node)
	if len(values) > 0 && values[len(values)-1] == "" || n.inside != nil && !slices.Equal(values, n.inside) {
		return nil, false
	}
	return values, true
}

// Claim returns what the gang could use of a node without pods: a claim for each member that it takes, and how many
// that are of each kind of members. Of each kind so many have places on other newcomers already.
func (n *Newcomers) Claim(logger klog.Logger, node *corev1.Node, elsewhere []int) (claims []Claim, taken []int) {
	free := append(amountsOf(framework.NewResource(node.Status.Allocatable)), n.singles...)
	free = append(free, planner.ResourceAmount{Name: string(corev1.ResourcePods), Value: node.Status.Allocatable.Pods().Value()})
	taken = make([]int, len(n.kinds))
	for i, k := range n.kinds {
		e := eligibility{affinity: nodeaffinity.GetRequiredNodeAffinity(k.sample), tolerations: k.sample.Spec.Tolerations}
		if e.cause(logger, node) != "" {
			continue
		}
		lacks := k.members
		if i < len(elsewhere) {
			lacks -= elsewhere[i]
		}
		for range lacks {
			if !k.claim.take(free) {
				break
			}
			claim := k.claim
			claim.Node = node.Name
			claims = append(claims, claim)
			taken[i]++
		}
	}
	if n.together && len(claims) < n.Needed() {
		return nil, make([]int, len(n.kinds))
	}
	return claims, taken
}

// take takes the claim out of what is free, if there is enough of everything.
func (c *Claim) take(free []planner.ResourceAmount) bool {
	at := func(name string) int {
		return slices.IndexFunc(free, func(a planner.ResourceAmount) bool { return a.Name == name })
	}
	for _, need := range c.named {
		if i := at(need.Name); i < 0 || free[i].Value < need.Value {
			return false
		}
	}
	for _, need := range c.named {
		free[at(need.Name)].Value -= need.Value
	}
	return true
}

package planner

import (
	"fmt"
	"slices"
)

// extension is a copy of a part of a cluster, with room for more nodes in one of its domains.
type extension struct {
	*Cluster
	demand  *Demand
	learned *learned
	// added are the new nodes, without capacity until they are counted, and like what each has then.
	added []NodeID
	like  []Amount
	// together nodes share a domain of level; 0 if it does not matter.
	together int
	level    Level
}

// An extension has room for firstAdded nodes to begin with, for growth times as many if they are not
// enough, and for maxAdded at most: an advice that asks for more is none.
const (
	firstAdded = 32
	growth     = 8
	maxAdded   = 4096
)

// newName begins the names of new nodes and domains. No other name has it, and it comes after all
// others.
const newName = "\U0010FFFF"

// extend copies the domain of the level that the whole gang requires around the given one, and puts
// at most so many new nodes like shape into the given one. It returns nil if none could help.
func (c *Cluster) extend(d *Demand, l *learned, in Domain, shape NodeID, atMost int) *extension {
	x := &extension{Cluster: NewCluster(c.levels)}
	region, required := c.Whole(), d.Required
	if len(d.Sets) == 1 {
		required = max(required, d.Sets[0].Required)
	}
	switch {
	case len(d.MinResources) > 0:
	case in.Level >= c.NodeLevel() && required >= c.NodeLevel():
		region = Domain{} // a new node is a domain of its own
	case in.Level >= c.NodeLevel() && required > WholeCluster:
		return nil
	case required > WholeCluster:
		region, _ = c.Around(in.Lo, min(required, in.Level))
	}
	for _, p := range d.Placed {
		if p.Node < region.Lo || p.Node >= region.Hi {
			return nil // the gang is tied to other nodes
		}
	}
	x.level = d.innermost()
	wanted := d.Min
	if x.level > in.Level && x.level < c.NodeLevel() {
		around, ok := c.Around(shape, x.level)
		if !ok {
			return nil // the shape is outside the level that slices need
		}
		x.together = int(around.Hi - around.Lo)
		wanted *= x.together
	}
	nodes := make([]Node, 0, int(region.Hi-region.Lo)+min(wanted, atMost))
	var values []string
	for node := region.Lo; node < region.Hi; node++ {
		if node == region.Lo || c.leaf[node] != c.leaf[node-1] {
			values = c.values(node)
		}
		nodes = append(nodes, Node{c.names[node], values})
	}
	within := make([]string, len(c.levels))
	if in.Level < c.NodeLevel() && in.Lo < in.Hi {
		copy(within, c.values(in.Lo)[:in.Level])
	}
	for i := range min(wanted, atMost) {
		values := slices.Clone(within)
		for level := int(in.Level % c.NodeLevel()); level < len(values); level++ {
			values[level] = fmt.Sprint(newName, i/max(x.together, 1)*min(x.together, 1))
		}
		nodes = append(nodes, Node{fmt.Sprint(newName, i), values})
	}
	x.SetNodes(nodes)
	x.copyFrom(c, d, l, region, nodes)
	for r := range c.resources {
		if has := c.capacity[r][shape]; has > 0 {
			x.like = append(x.like, Amount{x.Resource(c.resources[r]), has})
		}
	}
	return x
}

// copyFrom takes over capacity, demand and limits for the nodes of the region, which are the first
// of the given nodes; the others are new.
func (x *extension) copyFrom(c *Cluster, d *Demand, l *learned, region Domain, nodes []Node) {
	for _, name := range c.resources {
		x.Resource(name)
	}
	ids := make([]NodeID, len(nodes))
	for i := range nodes {
		ids[i], _ = x.Node(nodes[i].Name)
	}
	old := int(region.Hi - region.Lo)
	x.added = ids[old:]
	for r := range c.resources {
		if !c.exists[r] {
			continue
		}
		x.column(Resource(r))
		for i := range old {
			x.free[r][ids[i]] = c.free[r][int(region.Lo)+i]
			x.capacity[r][ids[i]] = c.capacity[r][int(region.Lo)+i]
		}
	}
	copy(x.totals, c.totals) // what is hard to place is so by the measure of the whole cluster
	demand := *d
	demand.Classes = slices.Clone(d.Classes)
	for class := range demand.Classes {
		k := &demand.Classes[class]
		k.Blocked = carry(k.Blocked, region, ids)
		k.Score = carry(k.Score, region, ids)
	}
	demand.Placed = slices.Clone(d.Placed)
	for i := range demand.Placed {
		demand.Placed[i].Node = ids[demand.Placed[i].Node-region.Lo]
	}
	x.demand, x.learned = &demand, newLearned(len(d.Classes))
	copy(x.learned.nowhere, l.nowhere)
	for class, limits := range l.byClass {
		for _, limit := range limits {
			if region.Lo <= limit.Node && limit.Node < region.Hi {
				limit.Node = ids[limit.Node-region.Lo]
				x.learned.byClass[class] = append(x.learned.byClass[class], limit)
			}
		}
	}
}

// carry takes over what is known of the nodes of a region for their new places, the first of ids.
func carry[T uint16 | int32](known []T, region Domain, ids []NodeID) []T {
	if known == nil {
		return nil
	}
	out := make([]T, len(ids))
	for i, value := range known[region.Lo:region.Hi] {
		out[ids[i]] = value
	}
	return out
}

// fewest returns the least number of new nodes, more than lo, with which the gang fits, 0 if no number
// does: with one node less it does not. The search begins at a guess, more than lo.
func (x *extension) fewest(lo, guess int) int {
	there := 0
	fits := func(k int) bool {
		for ; there < k; there++ {
			x.SetNode(x.added[there], x.like, nil)
		}
		for ; there > k; there-- {
			x.SetNode(x.added[there-1], nil, nil)
		}
		return x.fits(x.demand, x.learned)
	}
	hi, step := min(guess, len(x.added)), 1
	if fits(hi) {
		for ; hi-lo > 1; step *= 2 {
			k := max(hi-step, lo+1)
			if !fits(k) {
				lo = k
				break
			}
			hi = k
		}
	} else {
		for lo = hi; ; step *= 2 {
			if lo >= len(x.added) {
				return 0
			}
			if hi = min(lo+step, len(x.added)); fits(hi) {
				break
			}
			lo = hi
		}
	}
	for hi-lo > 1 {
		if k := (lo + hi) / 2; fits(k) {
			hi = k
		} else {
			lo = k
		}
	}
	return hi
}

// innermost returns the innermost level that constrains any member.
func (d *Demand) innermost() Level {
	level := d.Required
	for _, s := range d.Sets {
		level = max(level, s.Required)
		if s.SliceSize > 1 {
			level = max(level, s.SliceLevel)
		}
	}
	return level
}

// values returns the node's value for each level.
func (c *Cluster) values(node NodeID) []string {
	values := make([]string, len(c.levels))
	for i := c.leaf[node]; c.domains[i].level > WholeCluster; i = c.domains[i].parent {
		values[c.domains[i].level-1] = c.domains[i].name
	}
	return values
}

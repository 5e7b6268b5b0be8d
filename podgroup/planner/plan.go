package planner

import (
	"cmp"
	"math"
	"slices"
)

// maxRounds bounds how often a plan is repaired after a Verifier refused it. Every round learns a
// limit for at least one node of the plan, and checks only the nodes that the plan names.
const maxRounds = 32

// scratch holds the buffers that a plan needs, kept between plans.
type scratch struct {
	slots [][]int64 // by class, then node
	sums  [][]int64 // by class: sums[i] is the number of slots on the nodes before i
	picks []pick
	units []unit
}

// pick is a number of members of a class put on a node.
type pick struct {
	class int
	node  NodeID
	count int64
}

// Plan places the gang, or explains why it does not fit. Exactly one of the plan and the
// explanation is returned unless the Verifier fails. A nil Verifier accepts every plan.
//
// An explanation that is Undecided means the Verifier refused maxRounds plans in a row, so that
// the question needs an exact answer; arithmetic alone would have let the gang in.
func (c *Cluster) Plan(d *Demand, v Verifier) (*Plan, *Explanation, error) {
	learned := newLearned(len(d.Classes))
	for round := range maxRounds {
		nodes := c.placeMost(d, learned)
		if nodes == nil {
			return nil, c.explain(d, learned), nil
		}
		if round == 0 {
			if short := c.minResourcesShort(d); len(short) > 0 {
				e := c.explain(d, learned)
				e.MinResources, e.Fragmented = short, nil
				return nil, e, nil
			}
		}
		if v == nil {
			return c.plan(nodes, d), nil, nil
		}
		limits, err := v.Verify(d, nodes)
		if err != nil {
			return nil, nil, err
		}
		if len(limits) == 0 {
			return c.plan(nodes, d), nil, nil
		}
		learned.add(limits)
	}
	e := c.explain(d, learned)
	e.Undecided = true
	return nil, e, nil
}

func (c *Cluster) plan(nodes []NodeID, d *Demand) *Plan {
	return &Plan{Nodes: nodes, Domain: c.DomainOf(append(d.placedNodes(), nodes...))}
}

// placeMost places all members if it can, otherwise as many beyond the minimum as it finds room
// for, in rank order. It returns nil if the minimum does not fit.
func (c *Cluster) placeMost(d *Demand, l *learned) []NodeID {
	if nodes := c.place(d, len(d.Members), l); nodes != nil || d.Min >= len(d.Members) {
		return nodes
	}
	best := c.place(d, d.Min, l)
	if best == nil {
		return nil
	}
	// Room for k members is room for k-1, so the largest k can be searched for by halving.
	fits, fails := d.Min, len(d.Members)
	for fails-fits > 1 {
		k := (fits + fails) / 2
		if nodes := c.place(d, k, l); nodes != nil {
			best, fits = nodes, k
		} else {
			fails = k
		}
	}
	return best
}

// place finds nodes for the first k members in the lowest domain that holds them.
func (c *Cluster) place(d *Demand, k int, l *learned) []NodeID {
	counts := d.counts(k)
	order := c.classOrder(d, counts)
	c.countSlots(d, l, order)
	for _, target := range c.candidates(d, counts, order) {
		if picks, ok := c.pack(d, l, target, counts, order); ok {
			return assign(d, k, picks)
		}
	}
	return nil
}

// classOrder returns the classes that have members to place, the ones whose members ask for the
// largest part of the cluster first: what is hard to place goes while there is room.
func (c *Cluster) classOrder(d *Demand, counts []int64) []int {
	var order []int
	share := make([]float64, len(d.Classes))
	for i := range d.Classes {
		if counts[i] == 0 {
			continue
		}
		order = append(order, i)
		if len(d.Classes) == 1 {
			break
		}
		for _, a := range d.Classes[i].Requests {
			if _, total := c.TotalFree(a.Resource); total > 0 {
				share[i] = max(share[i], float64(a.Value)/float64(total))
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(share[b], share[a]) })
	return order
}

// countSlots computes, for each class, how many of its members fit on each node if it had the
// cluster to itself, and the running sums.
func (c *Cluster) countSlots(d *Demand, l *learned, order []int) {
	for len(c.work.slots) < len(d.Classes) {
		c.work.slots = append(c.work.slots, nil)
		c.work.sums = append(c.work.sums, nil)
	}
	for _, class := range order {
		c.work.slots[class] = slices.Grow(c.work.slots[class][:0], len(c.names))[:len(c.names)]
		c.work.sums[class] = slices.Grow(c.work.sums[class][:0], len(c.names)+1)[:len(c.names)+1]
		c.countRange(d, l, class, 0, NodeID(len(c.names)))
	}
}

// countRange recounts the slots of a class on the nodes lo to hi, and the sums from lo on within
// that range. Sums are differences to the sum at lo, which must be right already.
func (c *Cluster) countRange(d *Demand, l *learned, class int, lo, hi NodeID) {
	slots, sums := c.work.slots[class], c.work.sums[class]
	for i := lo; i < hi; i++ {
		slots[i] = math.MaxInt32
	}
	for _, a := range d.Classes[class].Requests {
		free := c.free[a.Resource]
		for i := lo; i < hi; i++ {
			switch f := free[i]; {
			case f < a.Value:
				slots[i] = 0
			case slots[i] != 0:
				slots[i] = min(slots[i], f/a.Value)
			}
		}
	}
	blocked, nowhere := d.Classes[class].Blocked, l.nowhere[class] != ""
	for i := lo; i < hi && (nowhere || blocked != nil); i++ {
		if nowhere || blocked[i] != 0 {
			slots[i] = 0
		}
	}
	for _, limit := range l.byClass[class] {
		if lo <= limit.Node && limit.Node < hi {
			slots[limit.Node] = min(slots[limit.Node], int64(limit.Max))
		}
	}
	if lo == 0 {
		sums[0] = 0
	}
	for i := lo; i < hi; i++ {
		sums[i+1] = sums[i] + slots[i]
	}
}

// target is a candidate to hold a gang: a domain, or a single node.
type target struct {
	domain int32 // -1 if a single node
	lo, hi NodeID
	room   int64
}

// candidates returns the domains with room for every class taken alone, innermost level first and
// within a level the one with the least room first. With members placed already, only the domains
// around those are candidates, from the innermost outwards.
func (c *Cluster) candidates(d *Demand, counts []int64, order []int) []target {
	var out []target
	if placed := d.placedNodes(); len(placed) > 0 {
		if lo, hi := slices.Min(placed), slices.Max(placed); lo == hi {
			out = c.appendIfRoom(out, target{domain: -1, lo: lo, hi: lo + 1}, counts, order)
		}
		for i := c.commonDomain(placed); i >= 0; i = c.domains[i].parent {
			out = c.appendIfRoom(out, c.target(i), counts, order)
		}
		return out
	}
	var nodes []target
	for i := range NodeID(len(c.names)) {
		nodes = c.appendIfRoom(nodes, target{domain: -1, lo: i, hi: i + 1}, counts, order)
	}
	out = append(out, tightestFirst(nodes)...)
	for l := len(c.byLevel) - 1; l > int(WholeCluster); l-- {
		var level []target
		for _, i := range c.byLevel[l] {
			level = c.appendIfRoom(level, c.target(i), counts, order)
		}
		out = append(out, tightestFirst(level)...)
	}
	return c.appendIfRoom(out, c.target(0), counts, order)
}

func (c *Cluster) target(i int32) target {
	return target{domain: i, lo: c.domains[i].lo, hi: c.domains[i].hi}
}

func (c *Cluster) appendIfRoom(to []target, t target, counts []int64, order []int) []target {
	for _, class := range order {
		room := c.work.sums[class][t.hi] - c.work.sums[class][t.lo]
		if room < counts[class] {
			return to
		}
		t.room += room
	}
	return append(to, t)
}

func tightestFirst(targets []target) []target {
	slices.SortFunc(targets, func(a, b target) int {
		return cmp.Or(cmp.Compare(a.room, b.room), cmp.Compare(a.lo, b.lo))
	})
	return targets
}

// assign gives the picked places to the first k members: those of a class, in rank order, run
// through its nodes in topology order.
func assign(d *Demand, k int, picks []pick) []NodeID {
	slices.SortFunc(picks, func(a, b pick) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.node, b.node))
	})
	next := make([]int, len(d.Classes)) // the first pick of each class that has places left
	for i := range next {
		next[i], _ = slices.BinarySearchFunc(picks, i, func(p pick, class int) int { return cmp.Compare(p.class, class) })
	}
	nodes := make([]NodeID, len(d.Members))
	for i, m := range d.Members {
		if i >= k {
			nodes[i] = NoNode
			continue
		}
		p := &picks[next[m.Class]]
		nodes[i] = p.node
		if p.count--; p.count == 0 {
			next[m.Class]++
		}
	}
	return nodes
}

// placeable returns the largest number of needed members, in rank order, that would fit.
func (c *Cluster) placeable(d *Demand, l *learned) int {
	fits, fails := 0, d.Min
	for fails-fits > 1 {
		if k := (fits + fails) / 2; c.place(d, k, l) != nil {
			fits = k
		} else {
			fails = k
		}
	}
	return fits
}

package planner

import "slices"

// assign gives the picked places to the members of the units that begin with one of the first k
// members: those of a block, in rank order, run through its places in topology order. Slices run
// through their domains in order of their numbers, and their members through the nodes there.
func (c *Cluster) assign(d *Demand, k int) {
	w := &c.work
	slices.SortFunc(w.picks, comparePicks)
	w.next = resize(w.next, len(w.blocks))
	for i := len(w.picks) - 1; i >= 0; i-- {
		w.next[w.picks[i].block] = int32(i)
	}
	w.nodes = resize(w.nodes, len(d.Members))
	for i := range d.Members {
		w.nodes[i] = NoNode
		if !w.sets[d.Members[i].Set].slices() && int(w.first[i]) < k {
			c.seat(int32(i))
		}
	}
	for _, i := range w.bySlice {
		if int(w.first[i]) < k {
			c.seat(i)
		}
	}
}

// seat gives a member the next place of its block.
func (c *Cluster) seat(member int32) {
	w := &c.work
	next := &w.next[w.blockOf[member]]
	p := &w.picks[*next]
	w.nodes[member] = p.node
	if p.count--; p.count == 0 {
		*next++
	}
}

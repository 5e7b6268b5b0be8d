package planner

import (
	"math"
	"slices"
)

// maxTallies is for how many parts of a gang it is kept how many of them fit where. Others are counted
// when they are packed, so that a gang of thousands of classes takes time but no memory for each of
// them and each node.
const maxTallies = 64

// tally is how many members of a class fit, had it the cluster to itself.
type tally struct {
	slots []int64 // by node
	sums  []int64 // sums[j]-sums[i] is the number of slots on the nodes from i to before j
	units []int64 // likewise the number of units in the domains that begin there, if units span nodes
	most  int64   // slots on the node that has the most
}

// countBlocks makes the base tallies of the blocks that are not pinned.
func (c *Cluster) countBlocks(d *Demand, l *learned) {
	w := &c.work
	w.picks = w.picks[:0]
	w.bounded, w.bounds = false, w.bounds[:0]
	c.sumDevices(d)
	next := int32(0)
	for i := range w.blocks {
		b := &w.blocks[i]
		b.tally = -1
		if b.pin.pinned {
			continue
		}
		if b.tally = c.alike(i); b.tally >= 0 || next+b.hi-b.lo > maxTallies {
			continue
		}
		b.tally = next
		next += b.hi - b.lo
		for int(next) > len(w.base) {
			w.base = append(w.base, tally{})
		}
		c.count(w.base[b.tally:next], d, l, b, 0, NodeID(len(c.names)))
	}
}

// sumDevices sums up the free devices, if several classes compete for them: what they need together
// bounds what is worth trying. A node counts for no more than all members request.
func (c *Cluster) sumDevices(d *Demand) {
	w := &c.work
	w.devices = w.devices[:0]
	if w.device < 0 || len(w.parts) < 2 {
		return
	}
	needed := int64(0)
	for _, m := range d.Members {
		needed = plus(needed, d.Classes[m.Class].of(w.device))
	}
	if needed > math.MaxInt64/int64(len(c.names)+1) {
		return // sums could overflow
	}
	w.devices = resize(w.devices, len(c.names)+1)
	w.devices[0] = 0
	for i, free := range c.free[w.device] {
		w.devices[i+1] = w.devices[i] + min(max(free, 0), needed)
	}
}

// devicesIn returns how many devices the nodes lo to hi have free, if that was summed up.
func (c *Cluster) devicesIn(lo, hi NodeID) int64 {
	if w := &c.work; len(w.devices) > 0 {
		return w.devices[hi] - w.devices[lo]
	}
	return math.MaxInt64
}

// alike returns the tally of an earlier block that has the same slots as a block, or -1.
func (c *Cluster) alike(block int) int32 {
	w := &c.work
	b := &w.blocks[block]
	for i := range block {
		if o := &w.blocks[i]; o.tally >= 0 && o.level == b.level && o.size == b.size && o.inside == b.inside &&
			slices.Equal(w.parts[o.lo:o.hi], w.parts[b.lo:b.hi]) {
			return o.tally
		}
	}
	return -1
}

// tallies returns how far the nodes lo to hi go towards a block: the base tallies as long as nothing
// is packed, otherwise new ones, which are valid for these nodes and until the next call.
func (c *Cluster) tallies(d *Demand, l *learned, b *block, lo, hi NodeID) []tally {
	w := &c.work
	n := b.hi - b.lo
	if b.tally >= 0 && len(w.picks) == 0 {
		return w.base[b.tally : b.tally+n]
	}
	ts := c.localTallies(n)
	c.count(ts, d, l, b, lo, hi)
	return ts
}

// localTallies returns tallies that are valid until the next call.
func (c *Cluster) localTallies(n int32) []tally {
	w := &c.work
	for int(n) > len(w.local) {
		w.local = append(w.local, tally{})
	}
	return w.local[:n]
}

// resize makes room for a number of nodes.
func (t *tally) resize(nodes int) {
	t.slots, t.sums = resize(t.slots, nodes), resize(t.sums, nodes+1)
}

// count fills in the tallies of a block's parts for the nodes lo to hi.
func (c *Cluster) count(ts []tally, d *Demand, l *learned, b *block, lo, hi NodeID) {
	n := len(c.names)
	for i := range ts {
		t, p := &ts[i], &c.work.parts[int(b.lo)+i]
		t.resize(n)
		c.countClass(t.slots, d, l, p.class, lo, hi)
		for _, level := range b.inside {
			c.dropOutside(t.slots, level, lo, hi)
		}
		if b.level == c.NodeLevel() && b.size > 1 {
			for node := lo; node < hi; node++ {
				t.slots[node] -= t.slots[node] % p.count
			}
		}
		t.most = sum(t.sums, t.slots, lo, hi)
	}
	if c.sliced(b) {
		ts[0].units = resize(ts[0].units, n+1)
		c.countUnits(ts, b, lo, hi)
	}
}

// dropOutside removes the slots of nodes that are in no domain of a level.
func (c *Cluster) dropOutside(slots []int64, level Level, lo, hi NodeID) {
	if level == WholeCluster || level == c.NodeLevel() {
		return
	}
	at := c.at[level]
	for node := lo; node < hi; node++ {
		if at[node] < 0 {
			slots[node] = 0
		}
	}
}

// countUnits sums up how many units fit into the domains of the block's level. If a unit has several
// parts this is a bound: each part fits that often when alone.
func (c *Cluster) countUnits(ts []tally, b *block, lo, hi NodeID) {
	units := ts[0].units
	units[lo] = 0
	at, total := lo, int64(0)
	for _, i := range c.within(b.level, lo, hi) {
		from, to := c.domains[i].lo, c.domains[i].hi
		for ; at < from; at++ {
			units[at+1] = total
		}
		total += c.unitsIn(ts, b, from, to)
		for ; at < min(to, hi); at++ {
			units[at+1] = total
		}
	}
	for ; at < hi; at++ {
		units[at+1] = total
	}
}

// unitsIn returns how many units the nodes lo to hi of one domain have slots for.
func (c *Cluster) unitsIn(ts []tally, b *block, lo, hi NodeID) int64 {
	most, devices := int64(math.MaxInt64), int64(0)
	for i := range ts {
		p := &c.work.parts[int(b.lo)+i]
		most = min(most, (ts[i].sums[hi]-ts[i].sums[lo])/p.count)
		devices = plus(devices, times(p.count, p.devices))
	}
	if len(ts) > 1 && devices > 0 {
		most = min(most, c.devicesIn(lo, hi)/devices)
	}
	return most
}

// room returns how many units of a block a target has slots for.
func (c *Cluster) room(ts []tally, b *block, t *target) int64 {
	if c.sliced(b) && t.level < b.level {
		return ts[0].units[t.hi] - ts[0].units[t.lo]
	}
	return c.unitsIn(ts, b, t.lo, t.hi)
}

// countClass counts the slots of a class on the nodes lo to hi as they are.
func (c *Cluster) countClass(slots []int64, d *Demand, l *learned, class int, lo, hi NodeID) {
	if l.nowhere[class] != "" {
		clear(slots[lo:hi])
		return
	}
	requests := d.Classes[class].Requests
	if len(requests) == 0 {
		for node := lo; node < hi; node++ {
			slots[node] = maxSlots
		}
	}
	for i, a := range requests {
		free, out := c.free[a.Resource][lo:hi], slots[lo:hi]
		if i == 0 {
			first(out, free, a.Value)
		} else {
			limit(out, free, a.Value)
		}
	}
	if blocked := d.Classes[class].Blocked; blocked != nil {
		for node := lo; node < hi; node++ {
			if blocked[node] != 0 {
				slots[node] = 0
			}
		}
	}
	for _, known := range l.byClass[class] {
		if lo <= known.Node && known.Node < hi {
			slots[known.Node] = min(slots[known.Node], max(int64(known.Max)-c.packed(class, known.Node), 0))
		}
	}
}

// packed returns how many members of a class are packed on a node.
func (c *Cluster) packed(class int, node NodeID) int64 {
	n := int64(0)
	for _, p := range c.work.picks {
		if p.class == class && p.node == node {
			n += p.count
		}
	}
	return n
}

// first sets slots to how often a value is contained in what is free.
func first(slots, free []int64, value int64) {
	for i, f := range free {
		if f < value {
			slots[i] = 0
		} else {
			slots[i] = min(f/value, maxSlots)
		}
	}
}

// limit lowers slots to how often a value is contained in what is free.
func limit(slots, free []int64, value int64) {
	for i, f := range free {
		switch {
		case f < value:
			slots[i] = 0
		case slots[i] > 1:
			slots[i] = min(slots[i], f/value)
		}
	}
}

// sum makes the running sums of slots and returns the largest of these.
func sum(sums, slots []int64, lo, hi NodeID) (most int64) {
	sums[lo] = 0
	total := int64(0)
	for node := lo; node < hi; node++ {
		total += slots[node]
		sums[node+1] = total
		most = max(most, slots[node])
	}
	return most
}

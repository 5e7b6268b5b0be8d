package planner

import (
	"cmp"
	"iter"
)

// target is a candidate to hold a group: a domain, or a single node.
type target struct {
	domain int32 // -1 if a single node
	level  Level
	lo, hi NodeID

	room  int64 // slots for the group's classes, added up
	cost  int64 // of the shape that a single node would be left in
	score int64 // how much the group's classes like the nodes, on average, in thousandths
}

func (c *Cluster) target(i int32) target {
	return target{domain: i, level: c.domains[i].level, lo: c.domains[i].lo, hi: c.domains[i].hi}
}

// targetAt returns the domain of a level that a node is in.
func (c *Cluster) targetAt(l Level, node NodeID) (target, bool) {
	if l == c.NodeLevel() {
		return target{domain: -1, level: l, lo: node, hi: node + 1}, true
	}
	if i := c.at[l][node]; i >= 0 {
		return c.target(i), true
	}
	return target{}, false
}

func (t *target) contains(lo, hi NodeID) bool { return t.lo <= lo && hi <= t.hi }

// levels returns the levels whose domains are tried for a group inside a target, from the deepest
// to the shallowest.
func (c *Cluster) levelsFor(g *group, in *target) (from, to Level) {
	from, to = g.preferred, max(g.required, in.level)
	if from == WholeCluster {
		from = c.NodeLevel()
	}
	return max(from, to), to
}

// appendTargets adds the domains of a level inside a target that have room for each block of a group
// taken alone. With members placed already, only the domain that holds them all is considered.
func (c *Cluster) appendTargets(d *Demand, level Level, g *group, in *target, blocks []int32) {
	switch {
	case g.placed.any:
		if t, ok := c.targetAt(level, g.placed.lo); ok && t.hi > g.placed.hi && in.contains(t.lo, t.hi) {
			c.appendIfRoom(d, t, blocks)
		}
	case level == in.level:
		c.appendIfRoom(d, *in, blocks)
	case level == c.NodeLevel():
		if c.tooManyForANode(blocks) {
			return
		}
		for node := in.lo; node < in.hi; node++ {
			c.appendIfRoom(d, target{domain: -1, level: level, lo: node, hi: node + 1}, blocks)
		}
	default:
		for _, i := range c.within(level, in.lo, in.hi) {
			c.appendIfRoom(d, c.target(i), blocks)
		}
	}
}

// tooManyForANode reports whether no node has slots for all members of the blocks.
func (c *Cluster) tooManyForANode(blocks []int32) bool {
	w := &c.work
	for _, i := range blocks {
		b := &w.blocks[i]
		for j := range b.hi - b.lo {
			if b.tally >= 0 && b.units*w.parts[b.lo+j].count > w.base[b.tally+j].most {
				return true
			}
		}
	}
	return false
}

func (c *Cluster) appendIfRoom(d *Demand, t target, blocks []int32) {
	w := &c.work
	t.room, t.cost, t.score = 0, 0, 0
	devices := int64(0)
	for _, i := range blocks {
		b := &w.blocks[i]
		if b.units == 0 {
			continue
		}
		if b.pin.pinned {
			if b.pin.torn || !t.contains(b.pin.target.lo, b.pin.target.hi) && !b.pin.target.contains(t.lo, t.hi) {
				return
			}
			continue
		}
		if b.tally < 0 {
			continue
		}
		ts := w.base[b.tally : b.tally+b.hi-b.lo]
		if c.room(ts, b, &t) < b.units {
			return
		}
		for j := range ts {
			t.room += ts[j].sums[t.hi] - ts[j].sums[t.lo]
			p := &w.parts[int(b.lo)+j]
			devices = plus(devices, times(b.units*p.count, p.devices))
		}
	}
	if devices > c.devicesIn(t.lo, t.hi) {
		return
	}
	if t.domain < 0 && devices > 0 {
		t.cost = ShapeCost(c.free[w.device][t.lo], c.capacity[w.device][t.lo], devices)
	}
	if w.scored {
		t.score = c.scoreOf(d, &t, blocks)
	}
	w.targets = append(w.targets, t)
}

// scoreOf returns how much the classes of the blocks like the nodes of a target, on average over the
// nodes with slots.
func (c *Cluster) scoreOf(d *Demand, t *target, blocks []int32) int64 {
	w := &c.work
	sum, nodes := int64(0), int64(0)
	for _, i := range blocks {
		b := &w.blocks[i]
		if b.units == 0 || b.tally < 0 {
			continue
		}
		for j := range b.hi - b.lo {
			score, slots := d.Classes[w.parts[b.lo+j].class].Score, w.base[b.tally+j].slots
			if score == nil {
				continue
			}
			for node := t.lo; node < t.hi; node++ {
				if slots[node] > 0 {
					sum += int64(score[node])
					nodes++
				}
			}
		}
	}
	return 1000 * sum / max(nodes, 1)
}

// compareTargets orders the candidates of one level: nodes that keep the best shape first, then
// what has the least room, then what is liked best, then topology order.
func compareTargets(a, b *target) int {
	return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.room, b.room), cmp.Compare(b.score, a.score), cmp.Compare(a.lo, b.lo))
}

// heapTargets makes a heap of the targets from an index on, the first choice on top.
func (c *Cluster) heapTargets(from int) {
	heapify(c.work.targets[from:], compareTargets)
}

// popTarget takes the first choice off the heap that begins at an index.
func (c *Cluster) popTarget(from int) target {
	w := &c.work
	t := pop(w.targets[from:], compareTargets)
	w.targets = w.targets[:len(w.targets)-1]
	return t
}

// Candidates lists the domains and nodes with enough room for the needed members by arithmetic, in
// the order in which Plan tries them: inside the required level, and around the placed members. It
// is for placing members one by one where arithmetic is not enough.
func (c *Cluster) Candidates(d *Demand) iter.Seq[Domain] {
	w := &c.work
	w.learned.reset(len(d.Classes))
	c.prepare(d)
	c.countBlocks(d, &w.learned)
	c.setUnits(d, d.Min)
	gang, root := &w.groups[0], c.target(0)
	var out []Domain
	w.targets = w.targets[:0]
	for level, to := c.levelsFor(gang, &root); level >= to; level-- {
		c.appendTargets(d, level, gang, &root, w.order)
		for c.heapTargets(0); len(w.targets) > 0; {
			t := c.popTarget(0)
			out = append(out, Domain{Level: t.level, Lo: t.lo, Hi: t.hi})
		}
	}
	return func(yield func(Domain) bool) {
		for _, domain := range out {
			if !yield(domain) {
				return
			}
		}
	}
}

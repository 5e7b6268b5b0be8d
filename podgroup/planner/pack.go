package planner

import "cmp"

// maxAttempts bounds in how many ways it is tried to pack several blocks into one target, and
// maxRetries how many attempts after the first ones are made at all targets of a plan together; those
// at many blocks count for more.
const (
	maxAttempts = 8
	maxRetries  = 64
)

// pick is a number of members of a class put on a node.
type pick struct {
	block int32
	class int
	node  NodeID
	count int64
	// at and unit tell the units of a block with several parts apart: the first node of the domain
	// that a unit is in, and its number.
	at   NodeID
	unit int32
}

func comparePicks(a, b pick) int {
	return cmp.Or(cmp.Compare(a.block, b.block), cmp.Compare(a.at, b.at), cmp.Compare(a.unit, b.unit),
		cmp.Compare(a.class, b.class), cmp.Compare(a.node, b.node))
}

// pack puts the units of every block into a target, those of the first k members. What is picked stays in the scratch; the
// capacity table is as before. One block of one class is packed whenever it fits. Several may fit
// in one order and not in another: what did not fit is tried first the next time.
func (c *Cluster) pack(d *Demand, l *learned, t *target, k int) bool {
	w := &c.work
	w.tight = false
	w.items = append(w.items[:0], w.firstItems...)
	for attempt := range maxAttempts {
		if attempt > 0 {
			w.retries -= 1 + len(w.items)/maxAttempts
		}
		failed, ok := c.packItems(d, l, t)
		if ok {
			c.giveBack(d, 0)
			return true
		}
		c.drop(d, 0)
		if c.boundTogether(d) && !c.mayHold(t, k) {
			return false
		}
		switch {
		case w.retries <= 0 || failed < 0 || t.domain < 0 || len(w.items) == 1 && !c.mixed(w.items[0]):
			return false
		case failed > 0:
			item := w.items[failed]
			copy(w.items[1:failed+1], w.items[:failed])
			w.items[0] = item
		case w.tight:
			return false
		default:
			w.tight = true
			copy(w.items, w.firstItems)
		}
	}
	return false
}

// mixed reports whether an item is more than one block of one class.
func (c *Cluster) mixed(item int32) bool {
	return item < 0 || c.work.blocks[item].hi-c.work.blocks[item].lo > 1
}

// packItems packs the pinned blocks and then the items in order. It returns the index of the first
// that does not fit, -1 for a pinned block.
func (c *Cluster) packItems(d *Demand, l *learned, t *target) (failed int, ok bool) {
	w := &c.work
	w.picks = w.picks[:0]
	for i := range w.blocks {
		if w.blocks[i].pin.pinned && !c.packBlock(d, l, t, int32(i), w.groups[w.blocks[i].group].preferred) {
			return -1, false
		}
	}
	for i, item := range w.items {
		if item < 0 {
			ok = c.packGroup(d, l, t, ^item)
		} else {
			ok = c.packBlock(d, l, t, item, w.groups[0].preferred)
		}
		if !ok {
			return i, false
		}
	}
	return 0, true
}

// packGroup puts a group with constraints of its own into the lowest domain that holds it inside the
// target of the gang.
func (c *Cluster) packGroup(d *Demand, l *learned, in *target, group int32) bool {
	w := &c.work
	g := &w.groups[group]
	blocks := w.order[g.lo:g.hi]
	from, mark := len(w.targets), len(w.picks)
	for level, to := c.levelsFor(g, in); level >= to; level-- {
		c.appendTargets(d, level, g, in, blocks)
		for c.heapTargets(from); len(w.targets) > from; {
			t := c.popTarget(from)
			if c.packBlocks(d, l, &t, blocks, g.preferred) {
				w.targets = w.targets[:from]
				return true
			}
			c.drop(d, mark)
		}
	}
	return false
}

func (c *Cluster) packBlocks(d *Demand, l *learned, t *target, blocks []int32, preferred Level) bool {
	for _, i := range blocks {
		if !c.work.blocks[i].pin.pinned && !c.packBlock(d, l, t, i, preferred) {
			return false
		}
	}
	return true
}

// packBlock puts the units of a block into a target and takes their capacity.
func (c *Cluster) packBlock(d *Demand, l *learned, in *target, index int32, preferred Level) bool {
	w := &c.work
	b, t := &w.blocks[index], *in
	if b.units == 0 {
		return true
	}
	if b.pin.pinned {
		if b.pin.torn {
			return false
		}
		if in.contains(b.pin.target.lo, b.pin.target.hi) {
			t = b.pin.target
		} else if !b.pin.target.contains(in.lo, in.hi) {
			return false
		}
	}
	w.effort += int(t.hi - t.lo)
	f := &w.filler
	*f = filler{c: c, d: d, block: index, preferred: preferred, tight: w.tight, size: b.size, level: b.level}
	if b.hi-b.lo > 1 {
		return c.packMixed(d, l, &t, b)
	}
	ts := c.tallies(d, l, b, t.lo, t.hi)
	if c.room(ts, b, &t) < b.units {
		return false
	}
	mark := len(w.picks)
	f.use(&w.parts[b.lo], ts[0])
	if c.sliced(b) && t.level < b.level {
		f.fill(t.domain, b.units, true)
	} else {
		f.fillTarget(&t, b.units*b.size)
	}
	c.take(d, mark)
	return true
}

// packMixed puts units of several parts into a target, one after the other: into the domains of
// their level that could hold the most of them first, the last ones into the smallest that could.
func (c *Cluster) packMixed(d *Demand, l *learned, t *target, b *block) bool {
	w := &c.work
	if t.level >= b.level {
		return c.packUnits(d, l, t, b, b.units) == b.units
	}
	ts := c.tallies(d, l, b, t.lo, t.hi)
	from := len(w.targets)
	if b.level == c.NodeLevel() {
		for node := t.lo; node < t.hi; node++ {
			c.appendUnitTarget(target{domain: -1, level: b.level, lo: node, hi: node + 1}, ts, b)
		}
	} else {
		for _, i := range c.within(b.level, t.lo, t.hi) {
			c.appendUnitTarget(c.target(i), ts, b)
		}
	}
	heapify(w.targets[from:], roomiest)
	left, last := b.units, false
	for left > 0 && len(w.targets) > from {
		h := w.targets[from:]
		u, most := h[0], min(left, h[0].room)
		if u.room >= left && !last {
			// One try at the smallest that could hold all that is left.
			last = true
			i := smallestHolder(h, left)
			u, h[i] = h[i], h[len(h)-1]
			heapify(h[:len(h)-1], roomiest)
		} else {
			pop(h, roomiest)
		}
		w.targets = w.targets[:len(w.targets)-1]
		left -= c.packUnits(d, l, &u, b, most)
	}
	w.targets = w.targets[:from]
	return left == 0
}

// smallestHolder returns the index of the target with the least room that has room for units.
func smallestHolder(h []target, units int64) int {
	best := 0
	for i := range h {
		if h[i].room >= units && roomiest(&h[best], &h[i]) < 0 {
			best = i
		}
	}
	return best
}

func (c *Cluster) appendUnitTarget(u target, ts []tally, b *block) {
	if u.room = c.unitsIn(ts, b, u.lo, u.hi); u.room > 0 {
		c.work.targets = append(c.work.targets, u)
	}
}

func roomiest(a, b *target) int {
	return cmp.Or(cmp.Compare(b.room, a.room), cmp.Compare(a.lo, b.lo))
}

// packUnits puts up to most units of several parts into one domain and returns how many fit.
func (c *Cluster) packUnits(d *Demand, l *learned, t *target, b *block, most int64) int64 {
	for n := range most {
		if !c.packUnit(d, l, t, b) {
			return n
		}
	}
	return most
}

// packUnit puts one unit of several parts into a domain, the part that takes most first.
func (c *Cluster) packUnit(d *Demand, l *learned, t *target, b *block) bool {
	w := &c.work
	mark := len(w.picks)
	c.beginUnit(d, t, b)
	for _, i := range w.partOrder {
		if !c.packPart(d, l, t, b, i) {
			c.drop(d, mark)
			return false
		}
	}
	return true
}

// beginUnit prepares to pack a unit of several parts, and orders these.
func (c *Cluster) beginUnit(d *Demand, t *target, b *block) {
	w := &c.work
	w.unit++
	f := &w.filler
	f.unit, f.at = w.unit, t.lo
	w.partOrder = w.partOrder[:0]
	for i := b.lo; i < b.hi; i++ {
		w.partOrder = append(w.partOrder, i)
		for j := len(w.partOrder) - 1; j > 0 && c.share(&d.Classes[w.parts[w.partOrder[j]].class]) > c.share(&d.Classes[w.parts[w.partOrder[j-1]].class]); j-- {
			w.partOrder[j], w.partOrder[j-1] = w.partOrder[j-1], w.partOrder[j]
		}
	}
}

// packPart puts one part of the unit that is packed into its domain.
func (c *Cluster) packPart(d *Demand, l *learned, t *target, b *block, part int32) bool {
	w := &c.work
	one := b.only(part)
	ts, p := c.tallies(d, l, &one, t.lo, t.hi), &w.parts[part]
	if ts[0].sums[t.hi]-ts[0].sums[t.lo] < p.count {
		return false
	}
	mark := len(w.picks)
	w.filler.use(p, ts[0])
	w.filler.fillTarget(t, p.count)
	c.take(d, mark)
	return true
}

// only is a part of a block, as a block of single members.
func (b *block) only(part int32) block {
	return block{level: b.level, inside: b.inside, size: 1, lo: part, hi: part + 1, tally: -1}
}

// take subtracts what the picks from a mark on use, if there is anything else to pack.
func (c *Cluster) take(d *Demand, mark int) { c.settle(d, mark, 1) }

// giveBack is the inverse of take.
func (c *Cluster) giveBack(d *Demand, mark int) { c.settle(d, mark, -1) }

// settle counts what the picks from a mark on use, once more or once less. A single block of one class
// has nothing to make room for.
func (c *Cluster) settle(d *Demand, mark int, times int64) {
	if len(c.work.parts) == 1 {
		return
	}
	for _, p := range c.work.picks[mark:] {
		c.move(p.node, d.Classes[p.class].Requests, -times*p.count)
		c.mark(p.node, int32(times))
	}
}

// drop takes the picks from a mark on back.
func (c *Cluster) drop(d *Demand, mark int) {
	c.giveBack(d, mark)
	c.work.picks = c.work.picks[:mark]
}

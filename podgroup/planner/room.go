package planner

import "math"

// Room is how far a domain goes towards a gang.
type Room struct {
	Domain
	// Members is how many of the needed members have slots there, in rank order, slices only whole.
	// For one class that is how many fit; several classes may compete for the same slots.
	Members int
}

// best returns the domain of the level that the gang requires in which the most of its needed
// members have slots: the one around the placed members, if there are any. The zero Room if there is
// none, as for members placed in different domains. The blocks must have been counted.
func (c *Cluster) best(d *Demand, l *learned) Room {
	w := &c.work
	c.setUnits(d, d.Min)
	c.listUnits(d)
	c.countPinned(d, l)
	gang := &w.groups[0]
	var best Room
	consider := func(t target) {
		if n := c.membersIn(d, &t); best.Hi == 0 || n > best.Members {
			best = Room{Domain{Level: t.level, Lo: t.lo, Hi: t.hi}, n}
		}
	}
	switch {
	case gang.placed.any:
		if t, ok := c.targetAt(gang.required, gang.placed.lo); ok && t.hi > gang.placed.hi {
			consider(t)
		}
	case gang.required == c.NodeLevel():
		for node := range NodeID(len(c.names)) {
			consider(target{domain: -1, level: gang.required, lo: node, hi: node + 1})
		}
	default:
		for _, i := range c.byLevel[gang.required] {
			consider(c.target(i))
		}
	}
	return best
}

// listUnits lists the first members of the needed units of each block, in rank order.
func (c *Cluster) listUnits(d *Demand) {
	w := &c.work
	w.unitsFrom = resize(w.unitsFrom, len(w.blocks)+1)
	total := int32(0)
	for i := range w.blocks {
		w.unitsFrom[i] = total
		total += int32(w.blocks[i].units)
	}
	w.unitsFrom[len(w.blocks)] = total
	w.firsts = resize(w.firsts, int(total))
	w.next = resize(w.next, len(w.blocks))
	copy(w.next, w.unitsFrom)
	for i := range d.Min {
		if int(w.first[i]) == i {
			next := &w.next[w.blockOf[i]]
			w.firsts[*next] = int32(i)
			*next++
		}
	}
}

// countPinned counts how many units fit into the domains that pinned blocks are tied to.
func (c *Cluster) countPinned(d *Demand, l *learned) {
	w := &c.work
	w.picks = w.picks[:0]
	w.pinnedRoom = resize(w.pinnedRoom, len(w.blocks))
	for i := range w.blocks {
		b := &w.blocks[i]
		if w.pinnedRoom[i] = 0; b.pin.pinned && !b.pin.torn {
			t := &b.pin.target
			w.pinnedRoom[i] = c.room(c.tallies(d, l, b, t.lo, t.hi), b, t)
		}
	}
}

// membersIn returns how many of the needed members have slots in a target, each block by itself.
func (c *Cluster) membersIn(d *Demand, t *target) int {
	w := &c.work
	fit := d.Min
	for i := range w.blocks {
		b := &w.blocks[i]
		room := int64(math.MaxInt64)
		switch {
		case !b.pin.pinned && b.tally < 0:
		case !b.pin.pinned:
			room = c.room(w.base[b.tally:b.tally+b.hi-b.lo], b, t)
		case t.contains(b.pin.target.lo, b.pin.target.hi):
			room = w.pinnedRoom[i]
		case !b.pin.target.contains(t.lo, t.hi):
			room = 0
		}
		if room < b.units {
			fit = min(fit, int(w.firsts[int64(w.unitsFrom[i])+room]))
		}
	}
	return c.atMost(t, fit)
}

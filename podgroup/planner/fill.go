package planner

import "cmp"

// filler picks places for the units of a block inside a domain that has room for them. It takes the
// largest sub-domain first until one holds what is left, and of those the smallest: so the fewest
// are used, and a large one is not opened for a small remainder. Those with members of the gang, in
// place or packed before, come before all others. With a preferred level its domains are what is
// counted, wherever they are; otherwise the sub-domains of each level in turn.
type filler struct {
	c         *Cluster
	d         *Demand
	block     int32
	preferred Level
	tight     bool  // the smallest first instead: another way to pack several classes
	size      int64 // members of a unit
	level     Level // of the domains that hold a unit
	part      *part
	score     []int32
	tally     tally
	at        NodeID
	unit      int32
}

// place is what a domain is filled by: one of its sub-domains, or a node of its own.
type place struct {
	domain int32 // -1 if a node
	node   NodeID
	near   bool  // has members of the gang already
	room   int64 // units or members
	cost   int64 // of a node's shape when its room is used, or what is left is put there
	score  int32
}

// use says which members are placed next.
func (f *filler) use(p *part, t tally) {
	f.part, f.tally, f.score = p, t, f.d.Classes[p.class].Score
}

// fillTarget picks places for members in a target that has room for them.
func (f *filler) fillTarget(t *target, members int64) {
	if t.domain < 0 {
		f.pick(t.lo, members)
		return
	}
	f.fill(t.domain, members, false)
}

func (f *filler) pick(node NodeID, members int64) {
	w := &f.c.work
	w.picks = append(w.picks, pick{block: f.block, class: f.part.class, node: node, count: members, at: f.at, unit: f.unit})
}

// fill picks places in a domain, for units or for members.
func (f *filler) fill(domain int32, need int64, units bool) {
	w := &f.c.work
	from := len(w.places)
	f.appendPlaces(domain, units)
	places := w.places[from:]
	order := largestFirst
	if f.tight {
		order = smallestFirst
	}
	heapify(places, order)
	for need > 0 {
		var p place
		if !f.tight && places[0].room >= need {
			p = f.holder(places, need)
		} else {
			p = pop(places, order)
			places = places[:len(places)-1]
		}
		n := min(p.room, need)
		switch {
		case p.domain < 0:
			f.pick(p.node, n)
		case units && f.c.domains[p.domain].level >= f.level:
			f.fill(p.domain, n*f.size, false)
		default:
			f.fill(p.domain, n, units)
		}
		need -= n
	}
	w.places = w.places[:from]
}

// largestFirst orders places by falling room; nodes that are used up more fully, and are liked
// better, come first among equals.
func largestFirst(a, b *place) int {
	return cmp.Or(compareNear(a, b), cmp.Compare(b.room, a.room), compareEqualRoom(a, b))
}

func smallestFirst(a, b *place) int {
	return cmp.Or(compareNear(a, b), cmp.Compare(a.room, b.room), compareEqualRoom(a, b))
}

func compareEqualRoom(a, b *place) int {
	return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(b.score, a.score), cmp.Compare(a.node, b.node))
}

func compareNear(a, b *place) int {
	switch {
	case a.near == b.near:
		return 0
	case a.near:
		return -1
	}
	return 1
}

// holder returns, of the places that have room for all that is needed, the one whose shape suffers
// least from it, with the least room, liked best, first in topology order.
func (f *filler) holder(places []place, need int64) place {
	best := -1
	for i := range places {
		p := &places[i]
		if p.room < need {
			continue
		}
		if p.domain < 0 {
			p.cost = f.shapeCost(p.node, need)
		}
		if best < 0 || compareHolders(p, &places[best]) < 0 {
			best = i
		}
	}
	return places[best]
}

func compareHolders(a, b *place) int {
	return cmp.Or(compareNear(a, b), cmp.Compare(a.cost, b.cost), cmp.Compare(a.room, b.room), cmp.Compare(b.score, a.score), cmp.Compare(a.node, b.node))
}

func (f *filler) shapeCost(node NodeID, members int64) int64 {
	r := f.c.work.device
	if f.part.devices == 0 {
		return 0
	}
	return ShapeCost(f.c.free[r][node], f.c.capacity[r][node], times(members, f.part.devices))
}

// appendPlaces lists the sub-domains of a domain and the nodes that are in none of them, if they
// have room.
func (f *filler) appendPlaces(domain int32, units bool) {
	c := f.c
	d := &c.domains[domain]
	children := d.children
	if p := f.preferred; d.level < p && (!units || p <= f.level) {
		if p == c.NodeLevel() {
			children = nil
		} else {
			children = c.within(p, d.lo, d.hi)
		}
	}
	node := d.lo
	for _, child := range children {
		f.appendBetween(node, c.domains[child].lo, units)
		f.appendDomain(child, units)
		node = c.domains[child].hi
	}
	f.appendBetween(node, d.hi, units)
}

func (f *filler) appendDomain(domain int32, units bool) {
	c := f.c
	lo, hi := c.domains[domain].lo, c.domains[domain].hi
	sums := f.tally.sums
	if units {
		sums = f.tally.units
	}
	if room := sums[hi] - sums[lo]; room > 0 {
		c.work.places = append(c.work.places, place{domain: domain, node: lo, near: c.work.inDomain[domain] > 0, room: room})
	}
}

// appendBetween lists what has room between two sub-domains: the domains that units go into, where
// units are counted, or else the nodes.
func (f *filler) appendBetween(lo, hi NodeID, units bool) {
	c := f.c
	if units {
		for _, domain := range c.within(f.level, lo, hi) {
			f.appendDomain(domain, units)
		}
		return
	}
	for node := lo; node < hi; node++ {
		slots := f.tally.slots[node]
		if slots == 0 {
			continue
		}
		p := place{domain: -1, node: node, near: c.work.onNode[node] > 0, room: slots}
		if f.part.devices > 0 {
			p.cost = c.free[c.work.device][node] - slots*f.part.devices
		}
		if f.score != nil {
			p.score = f.score[node]
		}
		c.work.places = append(c.work.places, p)
	}
}

// mark counts a member of the gang on a node, and in the domains around it, or takes it off.
func (c *Cluster) mark(node NodeID, by int32) {
	w := &c.work
	w.onNode[node] += by
	for i := c.leaf[node]; i >= 0; i = c.domains[i].parent {
		w.inDomain[i] += by
	}
}

package planner

import (
	"slices"
)

// clamped returns the demand with every level that is asked for being one of the cluster's, as it is
// planned.
func (c *Cluster) clamped(d *Demand) *Demand {
	out := *d
	out.Required, out.Preferred = c.clamp(d.Required), c.clamp(d.Preferred)
	for i, s := range d.Sets {
		if c.clamp(s.Required) == s.Required && c.clamp(s.SliceLevel) == s.SliceLevel {
			continue
		}
		if &out.Sets[0] == &d.Sets[0] {
			out.Sets = slices.Clone(d.Sets)
		}
		out.Sets[i].Required, out.Sets[i].SliceLevel = c.clamp(s.Required), c.clamp(s.SliceLevel)
	}
	return &out
}

// needed returns the demand without the members that are not needed. A slice is needed whole. The
// blocks must have been counted, and are again for what it returns.
func (c *Cluster) needed(d *Demand, l *learned) *Demand {
	if d.Min == len(d.Members) {
		return d
	}
	n := *d
	n.Members = d.Members[:d.Min:d.Min]
	for i := d.Min; i < len(d.Members); i++ {
		if int(c.work.first[i]) < d.Min {
			n.Members = append(n.Members, d.Members[i])
		}
	}
	if n.Min = len(n.Members); n.Min > d.Min {
		c.prepare(&n)
		c.countBlocks(&n, l)
	}
	return &n
}

// asked returns, of a demand of needed members, what keeps the gang from its place, and how far the
// best domain for it goes: usually the gang's own, with the level that its only set requires. Of a gang
// of several sets it is the first set that has no place even by itself, if that is one of maxAdvised.
func (c *Cluster) asked(d *Demand, l *learned) (*Demand, Room) {
	room := c.roomFor(d, l)
	switch len(d.Sets) {
	case 0:
		return d, room
	case 1:
		only := *d
		only.Required = max(d.Required, d.Sets[0].Required)
		return &only, room
	}
	for set := range min(len(d.Sets), maxAdvised) {
		if d.Sets[set].Required <= d.Required || d.Required > WholeCluster && len(d.Placed) > 0 {
			continue // the gang is tied to a domain that the set by itself knows nothing of
		}
		alone := d.alone(set)
		if alone.Min == 0 {
			continue
		}
		c.prepare(alone)
		c.countBlocks(alone, l)
		if room := c.roomFor(alone, l); room.Members < alone.Min {
			return alone, room
		}
	}
	return d, room
}

// roomFor is best, with what fits together where blocks compete for the same slots. The blocks must
// have been counted.
func (c *Cluster) roomFor(d *Demand, l *learned) Room {
	w := &c.work
	c.boundTogether(d)
	room := c.best(d, l)
	if len(w.parts) == 1 && len(w.groups) == 1 {
		return room
	}
	if n := c.placeable(d, l, room.Members); n < room.Members {
		room.Members = n
		if first := slices.IndexFunc(w.nodes[:min(n, len(w.nodes))], func(at NodeID) bool { return at != NoNode }); first >= 0 {
			room.Domain, _ = c.Around(w.nodes[first], room.Level)
		}
	}
	return room
}

// alone is the demand of the needed members of one set, as if it were a gang.
func (d *Demand) alone(set int) *Demand {
	s := d.Sets[set]
	a := &Demand{Classes: d.Classes, Sets: []Set{s}, Required: s.Required, Preferred: max(s.Preferred, s.Required)}
	for _, m := range d.Members[:d.Min] {
		if m.Set == set {
			m.Set = 0
			a.Members = append(a.Members, m)
		}
	}
	for _, p := range d.Placed {
		if p.Set == set {
			p.Set = 0
			a.Placed = append(a.Placed, p)
		}
	}
	a.Min = len(a.Members)
	return a
}

package planner

import (
	"cmp"
	"slices"
)

// unit is what a domain is packed with: one of its sub-domains, or a node of its own.
type unit struct {
	domain int32 // -1 if a node
	node   NodeID
	room   int64
}

// pack puts every class into the target, class after class, each seeing what the ones before it
// left. The capacity table is as before when it returns.
func (c *Cluster) pack(d *Demand, l *learned, t target, counts []int64, order []int) ([]pick, bool) {
	c.work.picks = c.work.picks[:0]
	fits := true
	for n, class := range order {
		if n > 0 {
			c.countRange(d, l, class, t.lo, t.hi)
			if c.work.sums[class][t.hi]-c.work.sums[class][t.lo] < counts[class] {
				fits = false
				break
			}
		}
		from := len(c.work.picks)
		if t.domain < 0 {
			c.work.picks = append(c.work.picks, pick{class, t.lo, counts[class]})
		} else {
			c.fill(t.domain, class, counts[class])
		}
		if n+1 < len(order) {
			for _, p := range c.work.picks[from:] {
				c.move(p.node, d.Classes[p.class].Requests, -p.count)
			}
		}
	}
	if len(order) > 1 {
		c.undo(d, l, t, order, fits)
	}
	return c.work.picks, fits
}

// undo gives back what the classes of a pack took from the table, and recounts their slots, so
// that the next candidate is judged on the cluster as it is.
func (c *Cluster) undo(d *Demand, l *learned, t target, order []int, fits bool) {
	last := order[len(order)-1]
	for _, p := range c.work.picks {
		if !fits || p.class != last {
			c.move(p.node, d.Classes[p.class].Requests, p.count)
		}
	}
	if fits {
		return
	}
	for _, class := range order[1:] {
		c.countRange(d, l, class, t.lo, t.hi)
	}
}

func (c *Cluster) move(node NodeID, amounts []Amount, times int64) {
	for _, a := range amounts {
		c.free[a.Resource][node] += times * a.Value
	}
}

// fill picks places for need members of a class inside a domain that has room for them. It takes
// the smallest unit that holds what is left, and where none does the largest: so the fewest units
// are used at each level, and a large one is not opened for a small remainder.
func (c *Cluster) fill(d int32, class int, need int64) {
	from := len(c.work.units)
	c.appendUnits(d, class)
	units := c.work.units[from:]
	slices.SortFunc(units, func(a, b unit) int {
		return cmp.Or(cmp.Compare(b.room, a.room), cmp.Compare(a.node, b.node))
	})
	for i := 0; need > 0; i++ {
		u := units[i]
		if u.room >= need {
			u = smallestWith(units[i:], need)
		}
		take := min(u.room, need)
		if u.domain < 0 {
			c.work.picks = append(c.work.picks, pick{class, u.node, take})
		} else {
			c.fill(u.domain, class, take)
		}
		need -= take
	}
	c.work.units = c.work.units[:from]
}

// smallestWith returns, of units sorted by falling room of which the first has enough, the one
// with the least room that still holds need; the first in topology order among equals.
func smallestWith(units []unit, need int64) unit {
	n, _ := slices.BinarySearchFunc(units, need, func(u unit, need int64) int {
		if u.room >= need {
			return -1
		}
		return 1
	})
	room := units[n-1].room
	i, _ := slices.BinarySearchFunc(units, room, func(u unit, room int64) int { return cmp.Compare(room, u.room) })
	return units[i]
}

// appendUnits lists the sub-domains of a domain and the nodes that are in none of them, if they
// have room.
func (c *Cluster) appendUnits(d int32, class int) {
	slots, sums := c.work.slots[class], c.work.sums[class]
	at := c.domains[d].lo
	nodesUpTo := func(end NodeID) {
		for ; at < end; at++ {
			if slots[at] > 0 {
				c.work.units = append(c.work.units, unit{-1, at, slots[at]})
			}
		}
	}
	for _, child := range c.domains[d].children {
		lo, hi := c.domains[child].lo, c.domains[child].hi
		nodesUpTo(lo)
		if room := sums[hi] - sums[lo]; room > 0 {
			c.work.units = append(c.work.units, unit{child, lo, room})
		}
		at = hi
	}
	nodesUpTo(c.domains[d].hi)
}

package planner

import (
	"slices"
)

// MoreNodes are new, empty nodes like one that exists.
type MoreNodes struct {
	// Count is the least number of nodes that does.
	Count int
	// Like is the existing node, and Shape what it has of the resources that the members request.
	Like  string
	Shape []ResourceAmount
	// Together is how many of them at a time must be in one domain of the level with the label
	// TogetherIn, as the members' slices need; 0 if it does not matter.
	Together   int
	TogetherIn string
}

// moreNodes returns how many more nodes of the best shape in a domain would let the gang in.
func (c *Cluster) moreNodes(d, asked *Demand, l *learned, in Domain) *MoreNodes {
	if in.Lo == in.Hi && len(c.names) > 0 || len(d.Placed) > 0 && in.Level >= c.NodeLevel() {
		return nil
	}
	if in.Lo < in.Hi && !c.mayGrow(d, in) {
		return nil
	}
	shape := c.shape(asked, in)
	if shape == NoNode {
		return nil
	}
	m := &MoreNodes{Like: c.names[shape]}
	for class := range asked.Classes {
		for _, a := range asked.Classes[class].Requests {
			has := ResourceAmount{c.resources[a.Resource], c.capacity[a.Resource][shape]}
			if has.Name != podsResource && !slices.Contains(m.Shape, has) {
				m.Shape = append(m.Shape, has)
			}
		}
	}
	if class, ok := d.uniform(); ok {
		m.Count = c.moreForOne(d, class, l, in, shape)
	} else {
		c.moreForMixture(m, d, l, in, shape, c.guess(asked, l, in, shape))
	}
	if m.Count <= 0 {
		return nil
	}
	return m
}

// mayGrow reports whether new nodes of a domain would be in a domain of every shallower level that is
// asked for.
func (c *Cluster) mayGrow(d *Demand, in Domain) bool {
	inside := !c.outside(in.Lo, min(d.Required, in.Level))
	for _, s := range d.Sets {
		inside = inside && !c.outside(in.Lo, min(s.Required, in.Level))
		if s.SliceSize > 0 {
			inside = inside && !c.outside(in.Lo, min(s.SliceLevel, in.Level))
		}
	}
	return inside
}

// uniform returns the only class of the needed members, if there is only one and no set to keep
// apart: a domain holds such a gang if it has enough slots.
func (d *Demand) uniform() (class int, ok bool) {
	if len(d.Sets) > 1 || len(d.Sets) == 1 && d.Sets[0].SliceSize > 0 {
		return 0, false
	}
	class = d.Members[0].Class
	for _, m := range d.Members[:d.Min] {
		if m.Class != class {
			return 0, false
		}
	}
	return class, true
}

// moreForOne returns how many nodes like shape a domain lacks for a uniform gang, or 0 if no number
// of them would do.
func (c *Cluster) moreForOne(d *Demand, class int, l *learned, in Domain, shape NodeID) int {
	slots := c.emptySlots(&d.Classes[class], shape)
	need := int64(d.Min)
	if in.Level < c.NodeLevel() {
		f := c.find(d, l, class, in)
		need -= f.slots
	} else if slots < need {
		return 0 // a new node is a domain of its own
	}
	if l.nowhere[class] != "" {
		return 0
	}
	k := max((need+slots-1)/slots, 0)
	for _, s := range c.minResourcesShort(d) {
		has := c.capacity[c.columns[s.Name]][shape]
		if has == 0 {
			return 0
		}
		k = max(k, (s.Needed-s.Free-1)/has+1)
	}
	if k > maxAdded {
		return 0
	}
	return int(k)
}

// guess returns about how many nodes like shape a domain lacks for a gang: for each of its classes and
// of its resources by itself. At least 1.
func (c *Cluster) guess(d *Demand, l *learned, in Domain, shape NodeID) int {
	counts := d.counts(d.Min)
	lacks := int64(1)
	for class, n := range counts {
		if n > 0 {
			n -= c.find(d, l, class, in).slots
			lacks = max(lacks, n/max(c.emptySlots(&d.Classes[class], shape), 1))
		}
	}
	for _, s := range c.shortages(d, counts, in) {
		lacks = max(lacks, (s.Needed-s.Free)/max(c.capacity[c.columns[s.Name]][shape], 1))
	}
	return int(min(lacks, maxAdded))
}

// moreForMixture finds by trying how many nodes like shape a domain lacks for any gang.
func (c *Cluster) moreForMixture(m *MoreNodes, d *Demand, l *learned, in Domain, shape NodeID, guess int) {
	tried, atMost := 0, firstAdded
	for atMost < min(2*guess, maxAdded) {
		atMost = min(atMost*growth, maxAdded)
	}
	for ; m.Count == 0; atMost = min(atMost*growth, maxAdded) {
		x := c.extend(d, l, in, shape, atMost)
		if x == nil {
			return
		}
		if x.together > 0 {
			m.Together, m.TogetherIn = x.together, c.LevelName(x.level)
		}
		m.Count = x.fewest(tried, max(guess, tried+1))
		if tried = len(x.added); tried < atMost || atMost == maxAdded {
			return
		}
	}
}

// shape returns the node of the domain that would hold the most members if it were empty: of those
// that the classes may use, and that have room for one of each.
func (c *Cluster) shape(d *Demand, in Domain) NodeID {
	counts := d.counts(d.Min)
	best, most := NoNode, int64(0)
	for node := in.Lo; node < in.Hi; node++ {
		if c.outside(node, d.slicing()) {
			continue
		}
		holds := int64(maxSlots)
		for class := range d.Classes {
			if counts[class] > 0 {
				holds = min(holds, c.emptySlots(&d.Classes[class], node))
			}
		}
		if holds > most || holds == most && best != NoNode && c.larger(d, node, best) {
			best, most = node, holds
		}
	}
	return best
}

// larger reports whether a node has more than another of the first resource of which they have
// different amounts, in the order in which the members request them.
func (c *Cluster) larger(d *Demand, a, b NodeID) bool {
	for class := range d.Classes {
		for _, request := range d.Classes[class].Requests {
			if x, y := c.capacity[request.Resource][a], c.capacity[request.Resource][b]; x != y {
				return x > y
			}
		}
	}
	return false
}

// emptySlots returns how many members of a class would have room on a node without pods.
func (c *Cluster) emptySlots(class *Class, node NodeID) int64 {
	if !class.mayUse(node) {
		return 0
	}
	slots := int64(maxSlots)
	for _, a := range class.Requests {
		slots = min(slots, c.capacity[a.Resource][node]/a.Value)
	}
	return slots
}

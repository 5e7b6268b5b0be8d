package planner

// counter counts how many units of a block have room on the nodes from lo to hi, as victims come and go.
type counter struct {
	lo, hi  NodeID
	request []Amount // of what goes onto one node: a unit, or a member of a unit that spans nodes
	limit   []int64  // by node: how many may go there, whatever is free
	slots   []int64  // by node
	total   int64    // of the slots
	// Units of size members are each in one domain of a level; 0 if units are on one node.
	size  int64
	level Level
	in    []int64 // by domain of that level: slots
	units int64   // of the size
	// need is how many of the units, or else of the slots, are asked for.
	need int64
}

// region is a part of what is counted: all of it, or one of the domains that hold units.
type region struct {
	lo, hi NodeID
	domain int32 // -1 for all
}

// count counts what a block has room for in a target.
func (s *clearance) count(b *block, t *target) {
	switch {
	case !s.c.sliced(b):
		s.start(b, false, false, t.lo, t.hi)
		s.need = b.units
	case t.level >= b.level:
		s.start(b, true, false, t.lo, t.hi)
		s.need = b.units * b.size
	default:
		s.start(b, true, true, t.lo, t.hi)
		s.need = b.units
	}
}

// enough reports whether as much has room as is asked for.
func (k *counter) enough() bool {
	if k.size > 0 {
		return k.units >= k.need
	}
	return k.total >= k.need
}

// start counts units of a block that are on one node each, or, if each is set, the members of its only
// part; those in units too, if split is set.
func (s *clearance) start(b *block, each, split bool, lo, hi NodeID) {
	c, k := s.c, &s.counter
	s.effort += int(hi - lo)
	k.lo, k.hi, k.total, k.size, k.units = lo, hi, 0, 0, 0
	k.limit, k.slots = resize(k.limit, len(c.names)), resize(k.slots, len(c.names))
	k.request = k.request[:0]
	for node := lo; node < hi; node++ {
		k.limit[node] = maxSlots
	}
	for _, level := range b.inside {
		c.dropOutside(k.limit, level, lo, hi)
	}
	for j := b.lo; j < b.hi; j++ {
		p, multiple := &c.work.parts[j], int64(1)
		if !each {
			multiple = c.work.parts[j].count
		}
		class := &s.d.Classes[p.class]
		for _, a := range class.Requests {
			k.add(Amount{a.Resource, times(multiple, a.Value)})
		}
		s.limitBy(p.class, multiple)
	}
	if split {
		k.size, k.level = b.size, b.level
		k.in = resize(k.in, len(c.domains))
		for _, i := range c.within(b.level, lo, hi) {
			k.in[i] = 0
		}
	}
	for node := lo; node < hi; node++ {
		k.slots[node] = 0
		s.update(node)
	}
}

func (k *counter) add(a Amount) {
	for i := range k.request {
		if k.request[i].Resource == a.Resource {
			k.request[i].Value = plus(k.request[i].Value, a.Value)
			return
		}
	}
	k.request = append(k.request, a)
}

// limitBy applies what keeps a class from nodes besides their capacity.
func (s *clearance) limitBy(class int, multiple int64) {
	k := &s.counter
	if blocked := s.d.Classes[class].Blocked; blocked != nil {
		for node := k.lo; node < k.hi; node++ {
			if blocked[node] != 0 {
				k.limit[node] = 0
			}
		}
	}
	if s.l.nowhere[class] != "" {
		clear(k.limit[k.lo:k.hi])
	}
	for _, known := range s.l.byClass[class] {
		if k.lo <= known.Node && known.Node < k.hi {
			k.limit[known.Node] = min(k.limit[known.Node], max(int64(known.Max)-s.c.packed(class, known.Node), 0)/multiple)
		}
	}
}

// update counts a node again.
func (s *clearance) update(node NodeID) {
	k := &s.counter
	if node < k.lo || node >= k.hi || k.limit[node] == 0 {
		return
	}
	slots := k.limit[node]
	for _, a := range k.request {
		slots = min(slots, max(s.c.free[a.Resource][node], 0)/a.Value)
	}
	change := slots - k.slots[node]
	k.slots[node] = slots
	k.total += change
	if k.size == 0 || change == 0 {
		return
	}
	if in := s.c.at[k.level][node]; in >= 0 {
		k.units += (k.in[in]+change)/k.size - k.in[in]/k.size
		k.in[in] += change
	}
}

// room returns the slots of a region.
func (k *counter) room(r region) int64 {
	if r.domain >= 0 {
		return k.in[r.domain]
	}
	return k.total
}

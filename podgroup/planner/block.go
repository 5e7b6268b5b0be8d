package planner

import (
	"cmp"
	"slices"
)

// block is a number of units that are alike. A unit is what no other rule divides: a slice, which
// goes into one domain of the slices' level, or a single member, which goes onto one node.
type block struct {
	set    int
	level  Level    // one domain of which holds a unit
	inside [3]Level // nodes outside any of these levels hold no unit
	size   int64    // members of a unit
	lo, hi int32    // its parts
	pin    pin
	share  float64 // of the cluster's capacity that a unit takes
	group  int32   // index of the group that the block belongs to
	tally  int32   // index of the base tally of its first part; -1 if there is none
	before int32   // the block of the set before this one, -1 if none; not for slices
	units  int64   // to place now
}

// part is the members of one class in a unit.
type part struct {
	class   int
	count   int64
	devices int64 // that each member requests of the scratch's device
}

// pin ties the units of a block to the domain that members of them are in already.
type pin struct {
	pinned bool
	torn   bool // the members that have their place are not in one domain, so that no place is right
	target target
}

// group is the members whose places are chosen together: those of a set with constraints of its
// own, or, as group 0, all others.
type group struct {
	required, preferred Level
	placed              span // of the members that have their place
	lo, hi              int32
	share               float64
}

// sliced reports whether a unit may span nodes, so that rooms are counted in units down to the level
// of the slices and in members below it.
func (c *Cluster) sliced(b *block) bool { return b.size > 1 && b.level < c.NodeLevel() }

func (s *Set) slices() bool { return s.SliceSize > 0 }

// prepare divides the members into blocks and the blocks into groups.
func (c *Cluster) prepare(d *Demand) {
	w := &c.work
	w.sets = append(w.sets[:0], d.Sets...)
	if len(w.sets) == 0 {
		w.sets = append(w.sets, Set{})
	}
	c.prepareGroups(d)
	w.blocks, w.parts, w.bySlice = w.blocks[:0], w.parts[:0], w.bySlice[:0]
	w.blockOf, w.first = resize(w.blockOf, len(d.Members)), resize(w.first, len(d.Members))
	w.latest = resize(w.latest, len(w.sets))
	for i := range w.latest {
		w.latest[i] = -1
	}
	for i, m := range d.Members {
		if w.sets[m.Set].slices() {
			w.bySlice = append(w.bySlice, int32(i))
			continue
		}
		b := w.latest[m.Set]
		for b >= 0 && w.parts[w.blocks[b].lo].class != m.Class {
			b = w.blocks[b].before
		}
		if b < 0 {
			w.parts = append(w.parts, part{class: m.Class, count: 1})
			b = c.addBlock(m.Set, 1, c.NodeLevel(), pin{}, len(w.parts)-1)
			w.blocks[b].before, w.latest[m.Set] = w.latest[m.Set], b
		}
		w.blockOf[i], w.first[i] = b, int32(i)
	}
	c.prepareSlices(d)
	c.prepareShares(d)
	c.sortBlocks()
}

// prepareGroups gives every set with constraints beyond those of the gang a group of its own. If
// there is but one set, its constraints are the gang's.
func (c *Cluster) prepareGroups(d *Demand) {
	w := &c.work
	w.required = c.clamp(d.Required)
	gang := group{required: w.required, preferred: c.clamp(d.Preferred)}
	if len(w.sets) == 1 {
		gang.required = max(gang.required, c.clamp(w.sets[0].Required))
		gang.preferred = max(gang.preferred, c.clamp(w.sets[0].Preferred))
	}
	if gang.preferred > WholeCluster {
		gang.preferred = max(gang.preferred, gang.required)
	}
	w.onNode, w.inDomain = resize(w.onNode, len(c.names)), resize(w.inDomain, len(c.domains))
	clear(w.onNode)
	clear(w.inDomain)
	for _, p := range d.Placed {
		gang.placed.add(p.Node)
		c.mark(p.Node, 1)
	}
	w.groups = append(w.groups[:0], gang)
	w.groupOf = resize(w.groupOf, len(w.sets))
	for s := range w.sets {
		w.groupOf[s] = 0
		required, preferred := c.clamp(w.sets[s].Required), c.clamp(w.sets[s].Preferred)
		if required <= gang.required && preferred <= gang.preferred {
			continue
		}
		if preferred = max(preferred, gang.preferred); preferred > WholeCluster {
			preferred = max(preferred, required)
		}
		w.groupOf[s] = int32(len(w.groups))
		w.groups = append(w.groups, group{required: required, preferred: preferred})
	}
	for _, p := range d.Placed {
		if g := w.groupOf[p.Set]; g > 0 {
			w.groups[g].placed.add(p.Node)
		}
	}
}

func (c *Cluster) clamp(l Level) Level { return min(max(l, WholeCluster), c.NodeLevel()) }

// prepareSlices makes blocks of the members that are in slices.
func (c *Cluster) prepareSlices(d *Demand) {
	w := &c.work
	if len(w.bySlice) == 0 {
		return
	}
	slices.SortFunc(w.bySlice, func(a, b int32) int {
		x, y := &d.Members[a], &d.Members[b]
		return cmp.Or(cmp.Compare(x.Set, y.Set), cmp.Compare(x.Slice, y.Slice), cmp.Compare(x.Class, y.Class), cmp.Compare(a, b))
	})
	w.placed = append(w.placed[:0], d.Placed...)
	slices.SortFunc(w.placed, func(a, b PlacedMember) int { return cmp.Or(comparePlaced(a, b), cmp.Compare(a.Node, b.Node)) })
	for lo := 0; lo < len(w.bySlice); {
		m := d.Members[w.bySlice[lo]]
		hi, first, parts := lo, w.bySlice[lo], len(w.parts)
		for ; hi < len(w.bySlice); hi++ {
			i := w.bySlice[hi]
			n := d.Members[i]
			if n.Set != m.Set || n.Slice != m.Slice {
				break
			}
			first = min(first, i)
			if last := len(w.parts) - 1; last < parts || w.parts[last].class != n.Class {
				w.parts = append(w.parts, part{class: n.Class})
			}
			w.parts[len(w.parts)-1].count++
		}
		level := c.clamp(w.sets[m.Set].SliceLevel)
		b := c.addBlock(m.Set, int64(hi-lo), level, c.pinOf(m.Set, m.Slice, level), parts)
		for _, i := range w.bySlice[lo:hi] {
			w.blockOf[i], w.first[i] = b, first
		}
		lo = hi
	}
}

func comparePlaced(a, b PlacedMember) int {
	return cmp.Or(cmp.Compare(a.Set, b.Set), cmp.Compare(a.Slice, b.Slice))
}

// pinOf returns where the members of a slice that have their place tie the others to: the domain of
// the slices' level, or of a deeper one that the set or the gang requires.
func (c *Cluster) pinOf(set, slice int, level Level) pin {
	w := &c.work
	level = max(level, w.groups[0].required, w.groups[w.groupOf[set]].required)
	i, found := slices.BinarySearchFunc(w.placed, PlacedMember{Set: set, Slice: slice}, comparePlaced)
	if !found {
		return pin{}
	}
	p := pin{pinned: true}
	var inside bool
	p.target, inside = c.targetAt(level, w.placed[i].Node)
	p.torn = !inside
	for ; i < len(w.placed) && w.placed[i].Set == set && w.placed[i].Slice == slice; i++ {
		p.torn = p.torn || w.placed[i].Node < p.target.lo || w.placed[i].Node >= p.target.hi
	}
	return p
}

// addBlock returns the block of such units, whose parts are the last ones from the given index on;
// if there is one already, the parts are dropped.
func (c *Cluster) addBlock(set int, size int64, level Level, p pin, parts int) int32 {
	w := &c.work
	for i := len(w.blocks) - 1; i >= 0 && w.blocks[i].set == set; i-- {
		if b := &w.blocks[i]; w.sets[set].slices() && b.size == size && b.pin == p && slices.Equal(w.parts[b.lo:b.hi], w.parts[parts:]) {
			w.parts = w.parts[:parts]
			return int32(i)
		}
	}
	b := block{set: set, level: level, size: size, lo: int32(parts), hi: int32(len(w.parts)), pin: p, group: w.groupOf[set]}
	b.inside = [3]Level{w.required, c.clamp(w.sets[set].Required), WholeCluster}
	if w.sets[set].slices() {
		b.inside[2] = c.clamp(w.sets[set].SliceLevel)
	}
	w.blocks = append(w.blocks, b)
	return int32(len(w.blocks) - 1)
}

// prepareShares computes what part of the cluster units take, and picks the device whose shape on the
// nodes matters: the first that a class requests.
func (c *Cluster) prepareShares(d *Demand) {
	w := &c.work
	w.device, w.scored = -1, false
	for i := range d.Classes {
		w.scored = w.scored || d.Classes[i].Score != nil
		for _, a := range d.Classes[i].Requests {
			if w.device < 0 && c.devices[a.Resource] {
				w.device = a.Resource
			}
		}
	}
	for i := range w.blocks {
		b := &w.blocks[i]
		for j := b.lo; j < b.hi; j++ {
			p := &w.parts[j]
			for _, a := range d.Classes[p.class].Requests {
				if a.Resource == w.device {
					p.devices = a.Value
				}
			}
			b.share += float64(p.count) * c.share(&d.Classes[p.class])
		}
	}
}

// share returns the largest part of the cluster's capacity of any resource that a member takes.
func (c *Cluster) share(class *Class) float64 {
	share := 0.0
	for _, a := range class.Requests {
		if total := c.totals[a.Resource]; total > 0 {
			share = max(share, float64(a.Value)/float64(total))
		}
	}
	return share
}

// sortBlocks lists what is packed, in order: the groups with constraints of their own, then the
// blocks of group 0, in each those with the largest units first, since what is hard to place goes
// while there is room.
func (c *Cluster) sortBlocks() {
	w := &c.work
	w.order = resize(w.order, len(w.blocks))
	for i := range w.order {
		w.order[i] = int32(i)
	}
	slices.SortFunc(w.order, func(a, b int32) int {
		x, y := &w.blocks[a], &w.blocks[b]
		return cmp.Or(cmp.Compare(x.group, y.group), cmp.Compare(y.share, x.share), cmp.Compare(y.size, x.size), cmp.Compare(a, b))
	})
	for i, b := range w.order {
		g := &w.groups[w.blocks[b].group]
		if g.lo == g.hi {
			g.lo = int32(i)
		}
		g.hi = int32(i + 1)
		g.share += w.blocks[b].share
	}
	w.firstItems = w.firstItems[:0]
	for g := 1; g < len(w.groups); g++ {
		w.firstItems = append(w.firstItems, ^int32(g))
	}
	slices.SortFunc(w.firstItems, func(a, b int32) int {
		return cmp.Or(cmp.Compare(w.groups[^b].share, w.groups[^a].share), cmp.Compare(b, a))
	})
	for _, b := range w.order[w.groups[0].lo:w.groups[0].hi] {
		if !w.blocks[b].pin.pinned {
			w.firstItems = append(w.firstItems, b)
		}
	}
}

// setUnits counts the units of each block among those that begin with one of the first k members. A
// slice is placed whole or not at all.
func (c *Cluster) setUnits(d *Demand, k int) {
	w := &c.work
	for i := range w.blocks {
		w.blocks[i].units = 0
	}
	for i := range d.Members {
		if int(w.first[i]) < k {
			w.blocks[w.blockOf[i]].units++
		}
	}
	for i := range w.blocks {
		w.blocks[i].units /= w.blocks[i].size
	}
}

func resize[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

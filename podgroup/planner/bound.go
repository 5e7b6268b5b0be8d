package planner

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sort"
)

const (
	// maxBounds is how many resources bound a gang, those that it needs the largest part of, and
	// maxBases how many bounds there are for each.
	maxBounds = 2
	maxBases  = 4
	// plenty is how many times scarcer another resource is if there is no need to look at one.
	plenty = 4
	// maxTable is the most of a resource on a node for which it is computed what classes make of it.
	maxTable = 1024
)

// bound is a proof that members of several classes, each of which has room alone, have none together.
// Members weigh something, and no node holds more weight than a certain one, in whatever way it is
// filled; a domain that holds less than the members weigh needs no packing to be refused.
//
// Weights are what members of a base size could have had instead: with the unit as the base it is the
// amount itself; with a base of 4 GPUs, on nodes with 8, a member with 5 weighs 2 and one with 3
// weighs 1. This sees fragmentation that sums of amounts do not.
type bound struct {
	needs []int64 // needs[k] is the weight of the first k members and the rest of their slices
	sums  []int64 // running sums over the nodes of the weight that these hold
}

// competition is the members that request one resource, in multiples of a unit of it.
type competition struct {
	resource Resource
	unit     int64
	sizes    []int64 // distinct, falling
	most     int64   // free on any node
	part     float64 // of what is free that all members need
}

// boundTogether makes the bounds, unless there are some already or nothing competes. It reports whether
// any was made. The blocks must have been counted, and nothing be packed.
func (c *Cluster) boundTogether(d *Demand) bool {
	w := &c.work
	if w.bounded || len(w.parts) < 2 {
		return false
	}
	w.bounded = true
	c.findCompetitions(d)
	for i := range min(len(w.competitions), maxBounds) {
		k := &w.competitions[i]
		if k.part*plenty < w.competitions[0].part {
			break
		}
		c.boundBy(d, k, 1)
		for j := 0; j < len(k.sizes) && j < maxBases-1; j++ {
			if k.sizes[j] > 1 {
				c.boundBy(d, k, k.sizes[j])
			}
		}
	}
	return len(w.bounds) > 0
}

// findCompetitions lists the resources that several parts of the gang request, the one of which all
// members need the largest part first.
func (c *Cluster) findCompetitions(d *Demand) {
	w := &c.work
	w.competitions = w.competitions[:0]
	w.members, w.requesting = resize(w.members, len(d.Classes)), resize(w.requesting, len(c.resources))
	clear(w.members)
	clear(w.requesting)
	for i, m := range d.Members {
		if !w.blocks[w.blockOf[i]].pin.pinned {
			w.members[m.Class]++
		}
	}
	for i := range w.blocks {
		b := &w.blocks[i]
		for j := b.lo; j < b.hi && !b.pin.pinned; j++ {
			for _, a := range d.Classes[w.parts[j].class].Requests {
				if w.requesting[a.Resource]++; w.requesting[a.Resource] == 2 {
					c.addCompetition(d, a.Resource)
				}
			}
		}
	}
	slices.SortStableFunc(w.competitions, func(a, b competition) int { return cmp.Compare(b.part, a.part) })
}

// addCompetition adds up what is needed and what is free of a resource, and lists the sizes.
func (c *Cluster) addCompetition(d *Demand, r Resource) {
	w := &c.work
	n := len(w.competitions)
	w.competitions = resize(w.competitions, n+1)
	k := &w.competitions[n]
	*k = competition{resource: r, sizes: k.sizes[:0]}
	needed, free := 0.0, 0.0
	for class, members := range w.members {
		if size := d.Classes[class].of(r); members > 0 && size > 0 {
			needed += float64(members) * float64(size)
			k.unit = gcd(size, k.unit)
			k.sizes = append(k.sizes, size)
		}
	}
	if k.unit == 0 {
		w.competitions = w.competitions[:n] // only members that are not needed request it
		return
	}
	for _, f := range c.free[r] {
		free += float64(max(f, 0))
		k.most = max(k.most, f)
	}
	k.most /= k.unit
	k.part = needed / max(free, 1)
	slices.SortFunc(k.sizes, func(a, b int64) int { return cmp.Compare(b, a) })
	k.sizes = slices.Compact(k.sizes)
	for i := range k.sizes {
		k.sizes[i] /= k.unit
	}
}

// of returns what a member requests of a resource.
func (class *Class) of(r Resource) int64 {
	for _, a := range class.Requests {
		if a.Resource == r {
			return a.Value
		}
	}
	return 0
}

// gcd returns the greatest common divisor of two amounts, a for a zero b.
func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// weight is how many members of the base size have no room on a node with the most free, once a
// member of a size is there.
func (k *competition) weight(size, base int64) int64 {
	return k.most/base - max(k.most-size, 0)/base
}

// boundBy makes the bound for a base size. Nodes count for no more than all members weigh together;
// weights so large that sums of them could overflow make no bound.
func (c *Cluster) boundBy(d *Demand, k *competition, base int64) {
	w := &c.work
	limit := int64(0)
	for class, members := range w.members {
		limit = plus(limit, times(members, k.weightOf(&d.Classes[class], base)))
	}
	if largest := math.MaxInt64 / 4 / int64(len(c.names)+1); limit == 0 || limit > largest {
		return
	}
	n := len(w.bounds)
	w.bounds = resize(w.bounds, n+1)
	b := &w.bounds[n]
	b.needs = resize(b.needs, len(d.Members)+1)
	clear(b.needs)
	for i, m := range d.Members {
		if !w.blocks[w.blockOf[i]].pin.pinned {
			b.needs[w.first[i]+1] += k.weightOf(&d.Classes[m.Class], base)
		}
	}
	for i := range d.Members {
		b.needs[i+1] += b.needs[i]
	}
	b.sums = resize(b.sums, len(c.names)+1)
	c.sumWeights(d, k, base, limit, b.sums)
}

func (k *competition) weightOf(class *Class, base int64) int64 {
	if size := class.of(k.resource); size > 0 {
		return k.weight(size/k.unit, base)
	}
	return 0
}

// sumWeights computes what weight each node holds at most: what its slots hold, each class alone, and
// what the free amount of the resource holds.
func (c *Cluster) sumWeights(d *Demand, k *competition, base, limit int64, sums []int64) {
	w := &c.work
	clear(sums)
	hold := sums[1:]
	counted := int32(-1)
	for i := range w.blocks {
		b := &w.blocks[i]
		if b.tally < 0 && !b.pin.pinned {
			for node := range hold {
				hold[node] = limit
			}
			break
		}
		if b.tally <= counted {
			continue // pinned, or counted with a block that is alike
		}
		counted = b.tally
		for j := range b.hi - b.lo {
			p := &w.parts[b.lo+j]
			weight := k.weightOf(&d.Classes[p.class], base)
			if weight == 0 {
				continue
			}
			enough := limit/weight + 1
			for node, slots := range w.base[b.tally+j].slots {
				hold[node] = min(hold[node]+min(slots, enough)*weight, limit)
			}
		}
	}
	table := w.table(k, base)
	last := int64(len(table) - 1)
	num, den := k.densest(base)
	total := int64(0)
	for node, free := range c.free[k.resource] {
		free = max(free, 0) / k.unit
		if free <= last {
			total += min(hold[node], table[free])
		} else if all := times(free, num); all < math.MaxInt64 {
			total += min(hold[node], all/den)
		} else {
			total += hold[node]
		}
		hold[node] = total
	}
}

// table computes for each free amount of a resource, in units and up to maxTable, what weight members
// have that use no more than that.
func (w *scratch) table(k *competition, base int64) []int64 {
	w.most = resize(w.most, int(min(k.most, maxTable))+1)
	w.most[0] = 0
	for free := int64(1); free < int64(len(w.most)); free++ {
		best := int64(0)
		for _, size := range k.sizes {
			if size <= free {
				best = max(best, w.most[free-size]+k.weight(size, base))
			}
		}
		w.most[free] = best
	}
	return w.most
}

// densest returns the weight and the size of the members that weigh the most for their size: no others
// make more of any amount.
func (k *competition) densest(base int64) (weight, size int64) {
	weight, size = 0, 1
	for _, s := range k.sizes {
		n := k.weight(s, base)
		hi, lo := bits.Mul64(uint64(n), uint64(size))
		if mostHi, mostLo := bits.Mul64(uint64(weight), uint64(s)); hi > mostHi || hi == mostHi && lo > mostLo {
			weight, size = n, s
		}
	}
	return weight, size
}

// mayHold reports whether no bound keeps the first k members out of a target.
func (c *Cluster) mayHold(t *target, k int) bool {
	for i := range c.work.bounds {
		if b := &c.work.bounds[i]; b.needs[k] > b.sums[t.hi]-b.sums[t.lo] {
			return false
		}
	}
	return true
}

// atMost returns how many of the first k members the bounds let into a target.
func (c *Cluster) atMost(t *target, k int) int {
	for i := range c.work.bounds {
		b := &c.work.bounds[i]
		room := b.sums[t.hi] - b.sums[t.lo]
		k = sort.Search(k, func(i int) bool { return b.needs[i+1] > room })
	}
	return k
}

// dropHopeless drops the targets from which a bound keeps the first k members out.
func (c *Cluster) dropHopeless(k int) {
	w := &c.work
	if len(w.bounds) > 0 {
		w.targets = slices.DeleteFunc(w.targets, func(t target) bool { return !c.mayHold(&t, k) })
	}
}

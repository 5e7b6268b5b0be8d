package planner

import (
	"cmp"
	"math"
	"slices"
)

// maxEnds is how many tenants may have to end before an advice to wait for them is none.
const maxEnds = 5

// eviction searches for tenants of the best domain whose end would let a gang in.
type eviction struct {
	c         *Cluster
	d         *Demand // the whole gang
	asked     *Demand // what keeps it from its place
	l         *learned
	occupants []occupant
	// left is how many slots each class of asked lacks, and short how much of each of the gang's
	// minResources, with the tenants chosen so far gone.
	left, short []int64
	chosen      []int
}

// ends returns tenants whose end would let the gang in, none of which could stay; nil if there are
// no such tenants, or too many. It takes those first that bring the gang nearest to its place.
func (c *Cluster) ends(d, asked *Demand, l *learned, best Domain, occupants []occupant, tenants Tenants) []Tenant {
	v := &eviction{c: c, d: d, asked: asked, l: l, occupants: occupants}
	v.measure(best)
	if !v.fewCouldHelp() {
		return nil
	}
	return v.search(tenants)
}

func (v *eviction) search(tenants Tenants) []Tenant {
	if !v.couldHelp() {
		return nil
	}
	c, d, occupants := v.c, v.d, v.occupants
	fits := false
	for len(v.chosen) < maxEnds && !fits {
		next := v.next()
		if next < 0 {
			break
		}
		v.take(next)
		fits = v.enough() && c.fits(d, v.l)
	}
	for i := range v.chosen {
		c.stay(&occupants[v.chosen[i]])
	}
	if !fits {
		return nil
	}
	slices.SortFunc(v.chosen, func(a, b int) int { return compareTenants(occupants[a].Tenant, occupants[b].Tenant) })
	if _, uniform := d.uniform(); len(v.chosen) > 1 || !uniform {
		v.trim(tenants)
	}
	out := make([]Tenant, len(v.chosen))
	for i, o := range v.chosen {
		out[i] = occupants[o].Tenant
	}
	return out
}

// measure computes what the asked members lack.
func (v *eviction) measure(best Domain) {
	v.left = v.asked.counts(v.asked.Min)
	for class := range v.left {
		if v.left[class] > 0 {
			f := v.c.find(v.asked, v.l, class, best)
			v.left[class] -= f.slots
		}
	}
	v.short = make([]int64, len(v.d.MinResources))
	lacking := make([]int64, len(v.c.resources))
	for _, s := range v.c.minResourcesShort(v.d) {
		lacking[v.c.columns[s.Name]] = s.Needed - s.Free
	}
	for i, a := range v.d.MinResources {
		v.short[i] = lacking[a.Resource]
	}
}

// fewCouldHelp reports whether as few tenants as there may be could free enough for each class by itself: a node on
// which one of them is would have no more room than if it were empty.
func (v *eviction) fewCouldHelp() bool {
	for class, left := range v.left {
		if left <= 0 {
			continue
		}
		rules := &v.asked.Classes[class]
		var most [maxEnds]int64 // from the least
		for i := range v.occupants {
			gain := int64(0)
			for _, at := range v.occupants[i].on {
				if rules.mayUse(at.node) {
					slots, _ := v.c.slotsOn(rules, at.node)
					gain += max(v.c.emptySlots(rules, at.node)-slots, 0)
				}
			}
			at := 0
			for ; at < len(most) && most[at] < gain; at++ {
				if at > 0 {
					most[at-1] = most[at]
				}
			}
			if at > 0 {
				most[at-1] = gain
			}
		}
		for _, gain := range most {
			left -= gain
		}
		if left > 0 {
			return false
		}
	}
	return true
}

// couldHelp reports whether the end of all tenants would be enough as far as the classes taken by
// themselves go.
func (v *eviction) couldHelp() bool {
	if v.asked.Min > 0 {
		for class, left := range v.left {
			if left > 0 && v.l.nowhere[class] != "" {
				return false
			}
		}
	}
	gain := make([]int64, len(v.left))
	freed := make([]int64, len(v.short))
	gone := 0
	for ; gone < len(v.occupants) && !v.suffice(gain, freed); gone++ {
		for _, at := range v.occupants[gone].on {
			v.addSlots(at.node, gain, -1)
			v.c.Return(at.node, at.used)
			v.addSlots(at.node, gain, 1)
			v.addFreed(at.used, freed)
		}
	}
	for i := range gone {
		v.c.stay(&v.occupants[i])
	}
	return v.suffice(gain, freed)
}

// suffice reports whether the slots and the minResources are all that is lacking.
func (v *eviction) suffice(gain, freed []int64) bool {
	for class, left := range v.left {
		if left > gain[class] {
			return false
		}
	}
	for i, short := range v.short {
		if short > freed[i] {
			return false
		}
	}
	return true
}

// addSlots adds up the slots that the classes have on a node, or subtracts them.
func (v *eviction) addSlots(node NodeID, slots []int64, sign int64) {
	for class := range v.left {
		rules := &v.asked.Classes[class]
		if v.left[class] == math.MinInt64 || !rules.mayUse(node) {
			continue
		}
		n, _ := v.c.slotsOn(rules, node)
		slots[class] += sign * n
	}
}

// addFreed adds up what an end frees of the minResources.
func (v *eviction) addFreed(used []Amount, freed []int64) {
	for _, a := range used {
		for i, m := range v.d.MinResources {
			if m.Resource == a.Resource {
				freed[i] = plus(freed[i], max(a.Value, 0))
			}
		}
	}
}

// add adds up the slots that a tenant's end gives to each class, and the minResources it frees.
func (v *eviction) add(o *occupant, gain, freed []int64) {
	for _, at := range o.on {
		v.addSlots(at.node, gain, -1)
		v.c.Return(at.node, at.used)
		v.addSlots(at.node, gain, 1)
		v.c.Take(at.node, at.used)
		v.addFreed(at.used, freed)
	}
}

// pieces adds up the parts of what members ask for that a tenant's end frees.
func (v *eviction) pieces(o *occupant) (pieces float64) {
	for _, at := range o.on {
		for _, a := range at.used {
			for class := range v.asked.Classes {
				for _, request := range v.asked.Classes[class].Requests {
					if request.Resource == a.Resource && v.c.resources[a.Resource] != podsResource {
						pieces += min(float64(a.Value)/float64(request.Value), 1)
					}
				}
			}
		}
	}
	return pieces
}

// next returns the tenant whose end brings the gang nearest to its place: first by what it gives of
// what is lacking, then the smaller one, then by name; -1 if none gives anything.
func (v *eviction) next() int {
	type offer struct {
		gives, beyond, pieces float64
		tenant                int
	}
	best := offer{tenant: -1}
	gain, freed := make([]int64, len(v.left)), make([]int64, len(v.short))
	for i := range v.occupants {
		if slices.Contains(v.chosen, i) {
			continue
		}
		clear(gain)
		clear(freed)
		o := offer{tenant: i}
		v.add(&v.occupants[i], gain, freed)
		for class, left := range v.left {
			if left > 0 {
				o.gives += float64(min(gain[class], left)) / float64(left)
				o.beyond += float64(gain[class])
			}
		}
		for r, short := range v.short {
			if short > 0 {
				o.gives += min(float64(freed[r])/float64(short), 1)
				o.beyond += float64(freed[r]) / float64(short)
			}
		}
		if best.tenant >= 0 && o.gives < best.gives {
			continue
		}
		if o.pieces = v.pieces(&v.occupants[i]); o.gives == 0 && o.pieces == 0 {
			continue
		}
		if best.tenant >= 0 {
			better := cmp.Or(cmp.Compare(o.gives, best.gives), cmp.Compare(best.beyond, o.beyond), v.byPieces(o.pieces, best.pieces, o.gives))
			if better < 0 || better == 0 && compareTenants(v.occupants[i].Tenant, v.occupants[best.tenant].Tenant) > 0 {
				continue
			}
		}
		best = o
	}
	return best.tenant
}

// byPieces prefers, of tenants that free whole places, the one that uses less besides; where nobody
// frees one alone, it prefers the one that frees the most of it.
func (v *eviction) byPieces(a, b, gives float64) int {
	if gives > 0 {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// take lets a tenant leave for the rest of the search.
func (v *eviction) take(i int) {
	gain, freed := make([]int64, len(v.left)), make([]int64, len(v.short))
	v.add(&v.occupants[i], gain, freed)
	for class := range v.left {
		v.left[class] -= gain[class]
	}
	for r := range v.short {
		v.short[r] -= freed[r]
	}
	v.c.leave(&v.occupants[i])
	v.chosen = append(v.chosen, i)
}

func (v *eviction) enough() bool {
	for _, left := range v.left {
		if left > 0 {
			return false
		}
	}
	for _, short := range v.short {
		if short > 0 {
			return false
		}
	}
	return true
}

// trim drops chosen tenants as long as the others suffice. A tenant that ends frees its nodes
// everywhere, also where the best domain is not; a mixture of classes may then be packed in another
// way, and not fit: then nobody is left.
func (v *eviction) trim(tenants Tenants) {
	gone := v.everywhere(tenants)
	for i := range gone {
		v.c.leave(&gone[i])
	}
	if !v.c.fits(v.d, v.l) {
		v.chosen = nil
	}
	for again := true; again && len(v.chosen) > 1; {
		again = false
		for i := 0; i < len(v.chosen) && len(v.chosen) > 1; i++ {
			v.c.stay(&gone[i])
			if !v.c.fits(v.d, v.l) {
				v.c.leave(&gone[i])
				continue
			}
			v.chosen, gone = slices.Delete(v.chosen, i, i+1), slices.Delete(gone, i, i+1)
			again = true
			i--
		}
	}
	for i := range gone {
		v.c.stay(&gone[i])
	}
}

// everywhere returns the chosen tenants with all their nodes in the cluster.
func (v *eviction) everywhere(tenants Tenants) []occupant {
	gone := make([]occupant, len(v.chosen))
	for i, o := range v.chosen {
		gone[i].Tenant = v.occupants[o].Tenant
	}
	for node := range NodeID(len(v.c.names)) {
		for _, t := range tenants.On(node) {
			for i := range gone {
				if gone[i].Tenant == t.Tenant {
					gone[i].on = append(gone[i].on, occupancy{node, t.Used})
				}
			}
		}
	}
	return gone
}

package planner

import (
	"cmp"
	"slices"
)

// Ends tells when a tenant ends, in any unit that counts forward, and whether that is known at all.
type Ends func(Tenant) (at int64, known bool)

// Wait is what has to end before places are free.
type Wait struct {
	// Waiting are the tenants that have to end, none of which could stay: those of known end first, in the order of
	// their ends, then the others by name.
	Waiting []Tenant
	// At is the last known end of them; 0 if none has one.
	At int64
	// Unknown is how many pods of unknown end have to end besides: the time is known if there are none.
	Unknown int64
}

// Sooner reports whether places that wait for w are free before those that wait for x, as far as is known: the
// fewer pods of unknown end, the sooner, then the earlier end of the others.
func (w Wait) Sooner(x Wait) bool {
	return cmp.Or(cmp.Compare(w.Unknown, x.Unknown), cmp.Compare(w.At, x.At)) < 0
}

// WaitFor returns what has to end before members of the gang have these places, one for each of Demand.Members as
// in a Reservation. It reports false if no ends would help: a node may not be used any more, or is too small. What is
// free in other places does not matter, MinResources included.
func (c *Cluster) WaitFor(d *Demand, nodes []NodeID, tenants Tenants, ends Ends) (Wait, bool) {
	on := slices.DeleteFunc(slices.Clone(nodes), func(n NodeID) bool { return n == NoNode })
	slices.Sort(on)
	var all []occupant
	index := map[Tenant]int{}
	for _, node := range slices.Compact(on) {
		for _, t := range tenants.On(node) {
			i, known := index[t.Tenant]
			if !known {
				i = len(all)
				index[t.Tenant] = i
				all = append(all, occupant{Tenant: t.Tenant})
			}
			all[i].on = append(all[i].on, occupancy{node, t.Used})
		}
	}
	slices.SortFunc(all, func(a, b occupant) int { return compareTenants(a.Tenant, b.Tenant) })
	known, unknown := c.leavers(all, ends)
	left := slices.Concat(known, unknown)
	for _, o := range left {
		c.leave(&o.occupant)
	}
	defer func() {
		for _, o := range left {
			c.stay(&o.occupant)
		}
	}()
	if !c.seatable(d, nodes) {
		return Wait{}, false
	}
	return c.waitFor(d, nodes, left, nil), true
}

// seatable reports whether the places have room for the members now, all together.
func (c *Cluster) seatable(d *Demand, nodes []NodeID) bool {
	ok := true
	for i, node := range nodes {
		if node != NoNode {
			ok = ok && d.Classes[d.Members[i].Class].mayUse(node)
			c.Take(node, d.Classes[d.Members[i].Class].Requests)
		}
	}
	for i, node := range nodes {
		if node != NoNode {
			ok = ok && !c.overfull(node, d.Classes[d.Members[i].Class].Requests)
		}
	}
	c.vacate(d, nodes)
	return ok
}

// vacate gives back what members take in places.
func (c *Cluster) vacate(d *Demand, nodes []NodeID) {
	for i, node := range nodes {
		if node != NoNode {
			c.Return(node, d.Classes[d.Members[i].Class].Requests)
		}
	}
}

// overfull reports whether less than nothing is left of any of these resources.
func (c *Cluster) overfull(node NodeID, of []Amount) bool {
	return slices.ContainsFunc(of, func(a Amount) bool { return c.free[a.Resource][node] < 0 })
}

// waitFor returns which of the tenants that have left must stay away for the places to have room. Those that can
// come back do: first those of unknown end, the largest first, then those that end last. slack is what may be taken
// of each of the gang's MinResources, nil if they do not matter. The cluster is left as it was.
func (c *Cluster) waitFor(d *Demand, nodes []NodeID, left []*leaver, slack []int64) Wait {
	needs := map[NodeID][]Amount{} // every request on a node
	for i, node := range nodes {
		if node != NoNode {
			requests := d.Classes[d.Members[i].Class].Requests
			c.Take(node, requests)
			needs[node] = append(needs[node], requests...)
		}
	}
	order := slices.Clone(left)
	slices.SortStableFunc(order, func(a, b *leaver) int {
		switch {
		case a.known != b.known:
			return cmp.Compare(b2i(a.known), b2i(b.known))
		case a.known:
			return cmp.Compare(b.at, a.at)
		}
		return cmp.Compare(b.pods, a.pods)
	})
	var back, away []*leaver
	for _, o := range order {
		if c.comesBack(d, o, needs, slack) {
			back = append(back, o)
		} else {
			away = append(away, o)
		}
	}
	for _, o := range back {
		c.leave(&o.occupant)
	}
	c.vacate(d, nodes)
	return waitOf(away)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// comesBack lets a tenant take again what it had, if that is possible beside the places.
func (c *Cluster) comesBack(d *Demand, o *leaver, needs map[NodeID][]Amount, slack []int64) bool {
	for i, a := range d.MinResources[:len(slack)] {
		if slack[i] < o.uses(a.Resource) {
			return false
		}
	}
	c.stay(&o.occupant)
	for _, at := range o.on {
		if of := needs[at.node]; of != nil && c.overfull(at.node, of) {
			c.leave(&o.occupant)
			return false
		}
	}
	for i, a := range d.MinResources[:len(slack)] {
		slack[i] -= o.uses(a.Resource)
	}
	return true
}

// slack returns how much more of each of the gang's MinResources is free than they ask for; nil without them.
func (c *Cluster) slack(d *Demand) []int64 {
	if len(d.MinResources) == 0 {
		return nil
	}
	free := make([]Shortage, len(d.MinResources))
	columns := make([]Resource, len(d.MinResources))
	for i, a := range d.MinResources {
		columns[i] = a.Resource
	}
	c.sumUsable(d, d.counts(len(d.Members)), c.Whole(), WholeCluster, columns, free)
	slack := make([]int64, len(free))
	for i, a := range d.MinResources {
		slack[i] = free[i].Free - a.Value
	}
	return slack
}

func waitOf(away []*leaver) Wait {
	var w Wait
	slices.SortStableFunc(away, func(a, b *leaver) int {
		switch {
		case a.known != b.known:
			return cmp.Compare(b2i(b.known), b2i(a.known))
		case a.known && a.at != b.at:
			return cmp.Compare(a.at, b.at)
		}
		return compareTenants(a.Tenant, b.Tenant)
	})
	for _, o := range away {
		w.Waiting = append(w.Waiting, o.Tenant)
		if o.known {
			w.At = o.at
		} else {
			w.Unknown += o.pods
		}
	}
	return w
}

// leaver is a tenant that may end.
type leaver struct {
	occupant
	at    int64
	known bool
	pods  int64 // on the nodes that are looked at
	price float64
}

// leavers divides tenants into those whose end is known, in the order of their ends, and the others.
func (c *Cluster) leavers(all []occupant, ends Ends) (known, unknown []*leaver) {
	every := make([]leaver, len(all))
	for i := range all {
		o := &every[i]
		o.occupant = all[i]
		for _, at := range o.on {
			o.pods += c.podsIn(at.used)
		}
		if o.at, o.known = ends(o.Tenant); o.known {
			known = append(known, o)
		} else {
			o.at = 0
			unknown = append(unknown, o)
		}
	}
	slices.SortStableFunc(known, func(a, b *leaver) int { return cmp.Compare(a.at, b.at) })
	return known, unknown
}

// podsIn returns how many pods use these amounts.
func (c *Cluster) podsIn(used []Amount) int64 {
	n := int64(0)
	for _, a := range used {
		if c.resources[a.Resource] == podsResource {
			n += a.Value
		}
	}
	return max(n, 1)
}

// usedOn returns what the tenant uses of a node.
func (o *leaver) usedOn(node NodeID) []Amount {
	i, _ := slices.BinarySearchFunc(o.on, node, func(at occupancy, node NodeID) int { return cmp.Compare(at.node, node) })
	return o.on[i].used
}

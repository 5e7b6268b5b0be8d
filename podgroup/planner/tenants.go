package planner

import (
	"cmp"
	"slices"
)

// Tenant is somebody who uses capacity of nodes: a gang, or a pod that is in none.
type Tenant struct {
	// Name is what a user knows it by: namespace/name.
	Name string
	// Pod is set for a single pod, which is on one node.
	Pod bool
}

func (t Tenant) String() string {
	if t.Pod {
		return "pod " + t.Name
	}
	return t.Name
}

func compareTenants(a, b Tenant) int {
	if a.Pod != b.Pod {
		if b.Pod {
			return -1
		}
		return 1
	}
	return compareNatural(a.Name, b.Name)
}

// Tenancy is what a tenant uses of a node.
type Tenancy struct {
	Tenant
	Used []Amount
}

// Tenants tells who uses the nodes. It is asked for advice only, node by node and in no hot path, so
// that it may find out when it is asked.
type Tenants interface {
	// On returns the tenants of a node, each once, without the gang that asks. Nobody changes what it
	// returned before Advise is done.
	On(node NodeID) []Tenancy
}

// Use is an amount of a resource that a tenant uses.
type Use struct {
	Tenant
	Amount int64
}

// maxUsers is how many tenants an explanation names as users of a resource.
const maxUsers = 3

// occupant is a tenant with all that it uses of some nodes, in topology order.
type occupant struct {
	Tenant
	on []occupancy
}

type occupancy struct {
	node NodeID
	used []Amount
}

// occupants gathers, in no order, the tenants of a domain's nodes that any class of the demand may use,
// as far as they use something that the gang lacks on any of them.
func (c *Cluster) occupants(d *Demand, in Domain, tenants Tenants) []occupant {
	return c.gather(c.lacking(d, in), d, d.counts(d.Min), in, tenants)
}

// occupantsUsing gathers, by name, those who use any of the resources, on nodes that classes with members to count may
// use.
func (c *Cluster) occupantsUsing(lacking []bool, d *Demand, counts []int64, in Domain, tenants Tenants) []occupant {
	out := c.gather(lacking, d, counts, in, tenants)
	slices.SortFunc(out, func(a, b occupant) int { return compareTenants(a.Tenant, b.Tenant) })
	return out
}

// gathering is what it takes to gather tenants, kept because refusals are many and tenants too.
type gathering struct {
	index map[Tenant]int32
	// found are the places in the order of the nodes, each with the index of its tenant, and places the same by tenant.
	found  []foundPlace
	places []occupancy
	out    []occupant
	// sizes are how many places each of out has.
	sizes []int32
}

type foundPlace struct {
	occupancy
	tenant int32
}

// gather returns the same as occupantsUsing in no order. It is good until the next call.
func (c *Cluster) gather(lacking []bool, d *Demand, counts []int64, in Domain, tenants Tenants) []occupant {
	g := &c.work.gathering
	if g.index == nil {
		g.index = map[Tenant]int32{}
	}
	clear(g.index)
	g.found, g.out, g.sizes = g.found[:0], g.out[:0], g.sizes[:0]
	for node := in.Lo; node < in.Hi; node++ {
		if !usable(d, counts, node) {
			continue
		}
		for _, t := range tenants.On(node) {
			if !slices.ContainsFunc(t.Used, func(a Amount) bool { return a.Value > 0 && lacking[a.Resource] }) {
				continue
			}
			i, known := int32(0), false
			if !t.Pod { // a pod is on no other node
				i, known = g.index[t.Tenant]
			}
			if !known {
				i = int32(len(g.out))
				if !t.Pod {
					g.index[t.Tenant] = i
				}
				g.out, g.sizes = append(g.out, occupant{Tenant: t.Tenant}), append(g.sizes, 0)
			}
			g.found = append(g.found, foundPlace{occupancy{node, t.Used}, i})
			g.sizes[i]++
		}
	}
	g.places = resize(g.places, len(g.found))
	from := 0
	for i := range g.out {
		to := from + int(g.sizes[i])
		g.out[i].on = g.places[from:from:to]
		from = to
	}
	for _, f := range g.found {
		g.out[f.tenant].on = append(g.out[f.tenant].on, f.occupancy)
	}
	return g.out
}

// lacking returns the resources of which any node that a class may use has too little left for a
// member, and those of the minResources.
func (c *Cluster) lacking(d *Demand, in Domain) []bool {
	lacking := make([]bool, len(c.resources))
	for _, a := range d.MinResources {
		lacking[a.Resource] = true
	}
	for class, n := range d.counts(d.Min) {
		if n == 0 {
			continue
		}
		rules := &d.Classes[class]
		for _, a := range rules.Requests {
			for node := in.Lo; node < in.Hi && !lacking[a.Resource]; node++ {
				lacking[a.Resource] = c.free[a.Resource][node] < a.Value && c.capacity[a.Resource][node] >= a.Value && rules.mayUse(node)
			}
		}
	}
	return lacking
}

// fillUsers names who uses the resources that are short: the largest users, of equal ones by name.
func (c *Cluster) fillUsers(shortages []Shortage, occupants []occupant) {
	for i := range shortages {
		s := &shortages[i]
		r := c.columns[s.Name]
		var top []Use
		users, others := 0, int64(0)
		for j := range occupants {
			n := occupants[j].uses(r)
			if n == 0 {
				continue
			}
			users++
			u := Use{occupants[j].Tenant, n}
			at := len(top)
			for at > 0 && compareUses(u, top[at-1]) < 0 {
				at--
			}
			if at > maxUsers {
				others = plus(others, n)
				continue
			}
			if top = slices.Insert(top, at, u); len(top) > maxUsers+1 {
				others = plus(others, top[maxUsers+1].Amount)
				top = top[:maxUsers+1]
			}
		}
		if users > maxUsers+1 { // "1 other" is not shorter than its name
			others = plus(others, top[maxUsers].Amount)
			top = top[:maxUsers]
		}
		s.UsedBy, s.OtherTenants, s.Others = top, users-len(top), Use{Amount: others}
	}
}

func compareUses(a, b Use) int {
	if a.Amount != b.Amount {
		return cmp.Compare(b.Amount, a.Amount)
	}
	return compareTenants(a.Tenant, b.Tenant) // only where it is needed: it reads the names
}

func (o *occupant) uses(r Resource) int64 {
	n := int64(0)
	for _, at := range o.on {
		for _, a := range at.used {
			if a.Resource == r {
				n = plus(n, max(a.Value, 0))
			}
		}
	}
	return n
}

// leave gives back what a tenant uses, and stay takes it again.
func (c *Cluster) leave(o *occupant) {
	for _, at := range o.on {
		c.Return(at.node, at.used)
	}
}

func (c *Cluster) stay(o *occupant) {
	for _, at := range o.on {
		c.Take(at.node, at.used)
	}
}

package planner

import (
	"math"
	"slices"
)

// Shortage compares what members need of a resource with what is there, on the nodes that they may
// use.
type Shortage struct {
	Name string
	// Needed by the members that are not placed yet.
	Needed int64
	// Free and Capacity of those nodes.
	Free, Capacity int64
	// Scraps is how much of what is free is left over on nodes that have less than a member needs, or
	// less than one more, and ScrapNodes how many nodes that are.
	Scraps     int64
	ScrapNodes int
	// UsedBy are the tenants that use the most of it there, the largest first, and Others all the
	// rest. Filled by Advise.
	UsedBy []Use
	Others Use
	// OtherTenants is how many tenants the rest are.
	OtherTenants int
}

// TooLarge is a request that no node of the cluster could serve if it were empty.
type TooLarge struct {
	Name string
	// Needed by one member, and Largest what the largest node has.
	Needed, Largest int64
}

// minResourcesShort compares what the gang's minResources still ask for with what is free.
func (c *Cluster) minResourcesShort(d *Demand) []Shortage {
	if len(d.MinResources) == 0 {
		return nil
	}
	asked := make([]Shortage, len(d.MinResources))
	columns := make([]Resource, len(d.MinResources))
	for i, a := range d.MinResources {
		columns[i], asked[i] = a.Resource, Shortage{Name: c.resources[a.Resource], Needed: a.Value}
	}
	c.sumUsable(d, d.counts(len(d.Members)), c.Whole(), WholeCluster, columns, asked)
	return slices.DeleteFunc(asked, func(s Shortage) bool { return s.Needed <= s.Free })
}

// shortages adds up what the members need and what the nodes of the domain that any of their
// classes may use have left, for each resource in the order in which the classes name them.
func (c *Cluster) shortages(d *Demand, counts []int64, in Domain) []Shortage {
	var out []Shortage
	var columns []Resource
	for class := range d.Classes {
		for _, a := range d.Classes[class].Requests {
			if counts[class] == 0 {
				continue
			}
			i := slices.Index(columns, a.Resource)
			if i < 0 {
				i = len(out)
				columns = append(columns, a.Resource)
				out = append(out, Shortage{Name: c.resources[a.Resource]})
			}
			out[i].Needed = plus(out[i].Needed, times(counts[class], a.Value))
		}
	}
	c.sumUsable(d, counts, in, d.slicing(), columns, out)
	return out
}

// sumUsable fills in what the nodes of the domain that any class may use, and that are in a domain of
// the given level, have of each column.
func (c *Cluster) sumUsable(d *Demand, counts []int64, in Domain, inside Level, columns []Resource, out []Shortage) {
	for node := in.Lo; node < in.Hi; node++ {
		if !usable(d, counts, node) || c.outside(node, inside) {
			continue
		}
		for i, r := range columns {
			out[i].Free = plus(out[i].Free, max(c.free[r][node], 0))
			out[i].Capacity = plus(out[i].Capacity, c.capacity[r][node])
		}
	}
}

// usable reports whether any class that has members to place may use the node.
func usable(d *Demand, counts []int64, node NodeID) bool {
	for class := range d.Classes {
		if counts[class] > 0 && d.Classes[class].mayUse(node) {
			return true
		}
	}
	return false
}

// fragmented returns of the shortages, none of which is one in all, those of resources that are free
// in pieces too small for a member, with the pieces. What is too small for members of different
// classes together is not a matter of pieces: then it returns all of them.
func (c *Cluster) fragmented(d *Demand, counts []int64, in Domain, all []Shortage) []Shortage {
	all = slices.DeleteFunc(all, func(s Shortage) bool { return s.Name == podsResource })
	only := -1
	for class, n := range counts {
		if n > 0 && only >= 0 {
			return all
		}
		if n > 0 {
			only = class
		}
	}
	class := &d.Classes[only]
	for i := range all {
		s := &all[i]
		r := slices.IndexFunc(class.Requests, func(a Amount) bool { return c.resources[a.Resource] == s.Name })
		free, request := c.free[class.Requests[r].Resource], class.Requests[r].Value
		for node := in.Lo; node < in.Hi; node++ {
			if scrap := max(free[node], 0) % request; scrap > 0 && class.mayUse(node) {
				s.Scraps = plus(s.Scraps, scrap)
				s.ScrapNodes++
			}
		}
	}
	return slices.DeleteFunc(all, func(s Shortage) bool { return s.ScrapNodes == 0 })
}

// tooLarge lists what a member of the class asks for and no node has.
func (c *Cluster) tooLarge(class *Class) []TooLarge {
	var out []TooLarge
	for _, a := range class.Requests {
		largest := int64(0)
		for _, has := range c.capacity[a.Resource] {
			largest = max(largest, has)
		}
		if a.Value > largest && len(c.names) > 0 {
			out = append(out, TooLarge{c.resources[a.Resource], a.Value, largest})
		}
	}
	return out
}

// plus and times compute with amounts that are not negative, and stop at the largest there is.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func times(n, a int64) int64 {
	if a > 0 && n > math.MaxInt64/a {
		return math.MaxInt64
	}
	return n * a
}

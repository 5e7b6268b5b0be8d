package planner

import "sort"

// Domain is a topology domain, or a single node: the nodes from Lo up to but not including Hi.
type Domain struct {
	Level  Level
	Lo, Hi NodeID
}

// Whole returns the domain of all nodes.
func (c *Cluster) Whole() Domain { return Domain{Level: WholeCluster, Hi: NodeID(len(c.names))} }

// Around returns the domain of a level that a node is in. A node outside the level is in none.
func (c *Cluster) Around(node NodeID, l Level) (Domain, bool) {
	if l >= c.NodeLevel() {
		return Domain{Level: c.NodeLevel(), Lo: node, Hi: node + 1}, true
	}
	if i := c.at[max(l, WholeCluster)][node]; i >= 0 {
		return c.domain(i), true
	}
	return Domain{}, false
}

// DomainsAt returns the domains of a level in topology order.
func (c *Cluster) DomainsAt(l Level) []Domain {
	if l >= c.NodeLevel() {
		out := make([]Domain, len(c.names))
		for i := range out {
			out[i] = Domain{Level: c.NodeLevel(), Lo: NodeID(i), Hi: NodeID(i + 1)}
		}
		return out
	}
	l = max(l, WholeCluster)
	out := make([]Domain, 0, len(c.byLevel[l]))
	for _, i := range c.byLevel[l] {
		out = append(out, c.domain(i))
	}
	return out
}

func (c *Cluster) domain(i int32) Domain {
	return Domain{Level: c.domains[i].level, Lo: c.domains[i].lo, Hi: c.domains[i].hi}
}

// DomainName returns the value of the domain's label: the rack's name for a rack. The whole cluster
// is "cluster".
func (c *Cluster) DomainName(d Domain) string {
	if d.Level >= c.NodeLevel() {
		return c.names[d.Lo]
	}
	if d.Level > WholeCluster {
		return c.domains[c.at[d.Level][d.Lo]].name
	}
	return c.domains[0].name
}

// DomainOf names the innermost domain that holds all the nodes, as "level value", or "cluster" if
// only the whole cluster does.
func (c *Cluster) DomainOf(nodes []NodeID) string {
	var s span
	for _, n := range nodes {
		if n != NoNode {
			s.add(n)
		}
	}
	return c.domains[c.common(s)].title
}

// span is the nodes from the first to the last of some.
type span struct {
	lo, hi NodeID
	any    bool
}

func (s *span) add(n NodeID) {
	if !s.any {
		*s = span{n, n, true}
		return
	}
	s.lo, s.hi = min(s.lo, n), max(s.hi, n)
}

// common returns the innermost domain that holds a span, the whole cluster for an empty one.
func (c *Cluster) common(s span) int32 {
	if !s.any {
		return 0
	}
	d := c.leaf[s.lo]
	for c.domains[d].hi <= s.hi {
		d = c.domains[d].parent
	}
	return d
}

// within returns the domains of a level that lie in a range of nodes which no domain of that level
// crosses.
func (c *Cluster) within(l Level, lo, hi NodeID) []int32 {
	all := c.byLevel[l]
	from := sort.Search(len(all), func(i int) bool { return c.domains[all[i]].lo >= lo })
	to := from + sort.Search(len(all)-from, func(i int) bool { return c.domains[all[from+i]].lo >= hi })
	return all[from:to]
}

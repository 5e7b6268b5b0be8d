package planner

// Domain is a topology domain, or a single node: the nodes from Lo up to but not including Hi.
type Domain struct {
	Level  Level
	Lo, Hi NodeID
}

// Room is how far a domain goes towards a gang.
type Room struct {
	Domain
	// Members is how many of the needed members would fit, in rank order.
	Members int
}

// Whole returns the domain of all nodes.
func (c *Cluster) Whole() Domain { return Domain{Level: WholeCluster, Hi: NodeID(len(c.names))} }

// Around returns the domain of a level that a node is in. A node outside the level is in none.
func (c *Cluster) Around(node NodeID, l Level) (Domain, bool) {
	if l >= c.NodeLevel() {
		return Domain{Level: c.NodeLevel(), Lo: node, Hi: node + 1}, true
	}
	for i := c.leaf[node]; i >= 0; i = c.domains[i].parent {
		if c.domains[i].level == l {
			return c.domain(i), true
		}
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
		for i := c.leaf[d.Lo]; i >= 0; i = c.domains[i].parent {
			if c.domains[i].level == d.Level {
				return c.domains[i].name
			}
		}
	}
	return "cluster"
}

// best returns the domain of the level that the gang requires in which the most of its needed
// members have room: the one around the placed members, if there are any.
func (c *Cluster) best(d *Demand, l *learned) Room {
	c.countSlots(d, l, c.classOrder(d, d.counts(d.Min)))
	domains := c.DomainsAt(d.Required)
	if len(d.Placed) > 0 {
		domains = domains[:0]
		if around, ok := c.Around(d.Placed[0].Node, d.Required); ok {
			domains = append(domains, around)
		}
	}
	var best Room
	for i, domain := range domains {
		if fits := c.roomFor(d, domain); i == 0 || fits > best.Members {
			best = Room{domain, fits}
		}
	}
	return best
}

// roomFor returns how many of the needed members, in rank order, have room in a domain if every
// class had it to itself.
func (c *Cluster) roomFor(d *Demand, domain Domain) int {
	left := make([]int64, len(d.Classes))
	for class := range left {
		left[class] = -1
	}
	for i, m := range d.Members[:d.Min] {
		if left[m.Class] < 0 {
			left[m.Class] = c.work.sums[m.Class][domain.Hi] - c.work.sums[m.Class][domain.Lo]
		}
		if left[m.Class] == 0 {
			return i
		}
		left[m.Class]--
	}
	return d.Min
}

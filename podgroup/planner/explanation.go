package planner

import (
	"math"
	"slices"
)

// podsResource counts the pods on a node; every member takes one, which goes without saying.
const podsResource = "pods"

// Explanation says why a gang is not placed: what it needs, the best place found, what is short
// there and by how much, which nodes are of no use and why, and what would help. It is data that
// stays true of the moment it was made, whatever happens to the Cluster; String and Sentence put it
// into words.
type Explanation struct {
	// Need are the members that must be placed together, by class.
	Need []ClassNeed
	// Constraints are what topology must hold of them: those of the gang first, then of its sets.
	Constraints []Constraint
	// Placed is how many members have their place already.
	Placed int
	// Asked is how many of the members the rest of the explanation is about: all that are needed, or
	// those of the set that keeps the gang from its place.
	Asked int
	// Placeable is how many of the asked members would fit now, in rank order, in the best domain.
	Placeable int
	// Within is the node label of the level one domain of which must hold the asked members, "" if
	// they may be anywhere.
	Within string
	// Best is the domain of that level in which the most of the asked members have room: the one
	// around the placed members, if there are any. It has no nodes if the level has no domain for them.
	Best Room
	// Domain is the name of the best domain, "" if they may be anywhere, or if there is none.
	Domain string
	// Domains is how many domains the level has, and Outside how many nodes are in none of them.
	Domains, Outside int
	// Nodes is how many nodes the best domain has, and ClusterNodes how many the cluster has.
	Nodes, ClusterNodes int
	// Short are the resources of which the usable nodes of the best domain have too little left for
	// the asked members, even added up.
	Short []Shortage
	// Fragmented are the resources that suffice when added up, but not on whole nodes; only filled
	// when nothing is Short and no node refused the gang for another cause.
	Fragmented []Shortage
	// Slots is how many of the asked members have room in the best domain if slices are left aside.
	// More than Placeable in a gang with slices means that there is room, but not for whole slices.
	Slots int64
	// SliceRoom is how many members of one slice have room in the domain of the slices' level that has
	// the most of it; only filled when no slice has a place.
	SliceRoom int64
	// TooLarge are the resources of which a member asks for more than any node of the cluster has.
	TooLarge []TooLarge
	// Causes count the nodes of the best domain that take no member of the class that is worst off, or
	// fewer than they have room for; the most frequent first.
	Causes []Cause
	// MinResources are the shortages against spec.minResources, if that is what the gang fails on.
	MinResources []Shortage
	// Learned is set if checks beyond arithmetic refused nodes to the gang.
	Learned bool
	// Undecided is set if the planner gave up on a gang that arithmetic would let in.
	Undecided bool
	// Advice is what would help; nil until Advise was asked.
	Advice *Advice

	learned *learned
}

// ClassNeed is a number of members and what each of them requests.
type ClassNeed struct {
	Members  int
	Requests []ResourceAmount
}

// Constraint is what topology must hold of a number of members.
type Constraint struct {
	// Members that it is about, 0 for the whole gang.
	Members int
	// Within is the node label of the level one domain of which must hold them, or "".
	Within string
	// SliceSize members at a time must be in one domain of the level with the label SliceWithin; 0 if
	// there are no slices.
	SliceSize   int
	SliceWithin string
}

// ResourceAmount is a resource and an amount in the scheduler's units.
type ResourceAmount struct {
	Name  string
	Value int64
}

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

// explain describes why the first Min members do not fit. The blocks must have been counted.
func (c *Cluster) explain(d *Demand, l *learned) *Explanation {
	e := &Explanation{ClusterNodes: len(c.names), Placed: len(d.Placed), Learned: !l.empty(), learned: l.clone()}
	d = c.needed(c.clamped(d), l)
	counts := d.counts(d.Min)
	for class, n := range counts {
		if n > 0 {
			e.Need = append(e.Need, ClassNeed{int(n), c.resourceAmounts(d.Classes[class].Requests)})
		}
	}
	e.Constraints = c.constraints(d)
	asked, best := c.asked(d, l)
	c.describePlace(e, asked, best)
	if e.Nodes == 0 {
		return e
	}
	counts = asked.counts(asked.Min)
	worst, found := c.worst(asked, l, counts, best.Domain)
	shortages := c.shortages(asked, counts, best.Domain)
	for _, s := range shortages {
		if s.Needed > s.Free {
			e.Short = append(e.Short, s)
		}
	}
	e.Slots, e.Causes = found.slots, found.causes(c, &asked.Classes[worst])
	if e.Placeable == 0 && found.slots > 0 {
		e.SliceRoom = c.sliceRoom(asked, l, worst, best.Domain)
	}
	if found.slots == 0 {
		e.TooLarge = c.tooLarge(&asked.Classes[worst])
	}
	if len(e.Short)+len(e.TooLarge) == 0 && l.empty() && (found.slots < counts[worst] || len(e.Need) > 1) {
		e.Fragmented = c.fragmented(asked, counts, best.Domain, shortages)
	}
	return e
}

// sliceRoom returns the most slots of a class in any domain of the level of the slices.
func (c *Cluster) sliceRoom(d *Demand, l *learned, class int, in Domain) int64 {
	level := d.slicing()
	if level <= in.Level {
		return 0
	}
	most := int64(0)
	for _, domain := range c.DomainsAt(level) {
		if in.Lo <= domain.Lo && domain.Hi <= in.Hi {
			most = max(most, c.find(d, l, class, domain).slots)
		}
	}
	return most
}

// clamped returns the demand with every level that is asked for being one of the cluster's, as it is
// planned.
func (c *Cluster) clamped(d *Demand) *Demand {
	out := *d
	out.Required, out.Preferred = c.clamp(d.Required), c.clamp(d.Preferred)
	for i, s := range d.Sets {
		if c.clamp(s.Required) == s.Required && c.clamp(s.SliceLevel) == s.SliceLevel {
			continue
		}
		if &out.Sets[0] == &d.Sets[0] {
			out.Sets = slices.Clone(d.Sets)
		}
		out.Sets[i].Required, out.Sets[i].SliceLevel = c.clamp(s.Required), c.clamp(s.SliceLevel)
	}
	return &out
}

// needed returns the demand without the members that are not needed. A slice is needed whole. The
// blocks must have been counted, and are again for what it returns.
func (c *Cluster) needed(d *Demand, l *learned) *Demand {
	if d.Min == len(d.Members) {
		return d
	}
	n := *d
	n.Members = d.Members[:d.Min:d.Min]
	for i := d.Min; i < len(d.Members); i++ {
		if int(c.work.first[i]) < d.Min {
			n.Members = append(n.Members, d.Members[i])
		}
	}
	if n.Min = len(n.Members); n.Min > d.Min {
		c.prepare(&n)
		c.countBlocks(&n, l)
	}
	return &n
}

// asked returns, of a demand of needed members, what keeps the gang from its place, and how far the
// best domain for it goes: usually the gang's own, with the level that its only set requires. Of a gang of several sets
// it is the first set that has no place even by itself.
func (c *Cluster) asked(d *Demand, l *learned) (*Demand, Room) {
	room := c.roomFor(d, l)
	switch len(d.Sets) {
	case 0:
		return d, room
	case 1:
		only := *d
		only.Required = max(d.Required, d.Sets[0].Required)
		return &only, room
	}
	for set := range d.Sets {
		if d.Sets[set].Required <= d.Required || d.Required > WholeCluster && len(d.Placed) > 0 {
			continue // the gang is tied to a domain that the set by itself knows nothing of
		}
		alone := d.alone(set)
		if alone.Min == 0 {
			continue
		}
		c.prepare(alone)
		c.countBlocks(alone, l)
		if room := c.roomFor(alone, l); room.Members < alone.Min {
			return alone, room
		}
	}
	return d, room
}

// roomFor is best, with what fits together where blocks compete for the same slots. The blocks must
// have been counted.
func (c *Cluster) roomFor(d *Demand, l *learned) Room {
	w := &c.work
	room := c.best(d, l)
	if len(w.parts) == 1 && len(w.groups) == 1 {
		return room
	}
	if n := c.placeable(d, l); n < room.Members {
		room.Members = n
		if first := slices.IndexFunc(w.nodes[:min(n, len(w.nodes))], func(at NodeID) bool { return at != NoNode }); first >= 0 {
			room.Domain, _ = c.Around(w.nodes[first], room.Level)
		}
	}
	return room
}

// alone is the demand of the needed members of one set, as if it were a gang.
func (d *Demand) alone(set int) *Demand {
	s := d.Sets[set]
	a := &Demand{Classes: d.Classes, Sets: []Set{s}, Required: s.Required, Preferred: max(s.Preferred, s.Required)}
	for _, m := range d.Members[:d.Min] {
		if m.Set == set {
			m.Set = 0
			a.Members = append(a.Members, m)
		}
	}
	for _, p := range d.Placed {
		if p.Set == set {
			p.Set = 0
			a.Placed = append(a.Placed, p)
		}
	}
	a.Min = len(a.Members)
	return a
}

// describePlace fills in the best domain and how far it goes.
func (c *Cluster) describePlace(e *Explanation, asked *Demand, best Room) {
	e.Asked, e.Best, e.Nodes, e.Placeable = asked.Min, best, int(best.Hi-best.Lo), best.Members
	if asked.Required == WholeCluster {
		return
	}
	e.Within = c.LevelName(asked.Required)
	if e.Nodes > 0 {
		e.Domain = c.DomainName(best.Domain)
	}
	if asked.Required >= c.NodeLevel() {
		e.Domains = len(c.names)
		return
	}
	e.Domains, e.Outside = len(c.byLevel[asked.Required]), len(c.names)
	for _, i := range c.byLevel[asked.Required] {
		e.Outside -= int(c.domains[i].hi - c.domains[i].lo)
	}
}

func (c *Cluster) constraints(d *Demand) []Constraint {
	var out []Constraint
	gang := Constraint{Within: c.labelOf(d.Required)}
	if len(d.Sets) == 1 {
		s := &d.Sets[0]
		gang.Within = c.labelOf(max(d.Required, s.Required))
		gang.SliceSize, gang.SliceWithin = c.slicing(s)
	}
	if gang != (Constraint{}) {
		out = append(out, gang)
	}
	for i := range d.Sets {
		s, of := &d.Sets[i], Constraint{}
		if s.Required > d.Required {
			of.Within = c.labelOf(s.Required)
		}
		of.SliceSize, of.SliceWithin = c.slicing(s)
		if len(d.Sets) == 1 || of == (Constraint{}) {
			continue
		}
		for _, m := range d.Members[:d.Min] {
			if m.Set == i {
				of.Members++
			}
		}
		if of.Members > 0 {
			out = append(out, of)
		}
	}
	return out
}

func (c *Cluster) labelOf(l Level) string {
	if l == WholeCluster {
		return ""
	}
	return c.LevelName(l)
}

// slicing returns the size and the label of a set's slices, if they constrain anything.
func (c *Cluster) slicing(s *Set) (size int, label string) {
	if s.SliceSize <= 1 || s.SliceLevel == WholeCluster {
		return 0, ""
	}
	return s.SliceSize, c.LevelName(s.SliceLevel)
}

// Refused describes a gang that was found not to fit by other means than Plan: placeable members
// have a place, and causes says for each node why it does not take the next one.
func (c *Cluster) Refused(d *Demand, placeable int, causes []string) *Explanation {
	l := &c.work.learned
	l.reset(len(d.Classes))
	c.prepare(d)
	c.countBlocks(d, l)
	e := c.explain(d, l)
	e.Placeable, e.Slots, e.Short, e.Fragmented, e.TooLarge, e.Learned = placeable, int64(placeable), nil, nil, nil, true
	e.Causes = countCauses(causes[min(int(e.Best.Lo), len(causes)):min(int(e.Best.Hi), len(causes))])
	return e
}

func (c *Cluster) resourceAmounts(amounts []Amount) []ResourceAmount {
	out := make([]ResourceAmount, 0, len(amounts))
	for _, a := range amounts {
		if c.resources[a.Resource] != podsResource {
			out = append(out, ResourceAmount{c.resources[a.Resource], a.Value})
		}
	}
	return out
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
		if counts[class] > 0 && (d.Classes[class].Blocked == nil || d.Classes[class].Blocked[node] == 0) {
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

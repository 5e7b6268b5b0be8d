package planner

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
	// Kept is free room that the gang would have fitted into and that is kept for another; empty until the caller
	// adds it.
	Kept []Kept
	// Learned is set if checks beyond arithmetic refused nodes to the gang.
	Learned bool
	// Undecided is set if the planner gave up on a gang that arithmetic would let in.
	Undecided bool
	// Advice is what would help; nil until Advise was asked.
	Advice *Advice

	learned *learned
}

// Kept is an amount of a resource that is free, or becomes free, and is kept for somebody.
type Kept struct {
	ResourceAmount
	// Where it is, as "rack r1".
	Where string
	// For says for whom, and until when if that is known.
	For string
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
	c.work.picks = c.work.picks[:0]
	t := &c.localTallies(1)[0]
	t.resize(len(c.names))
	c.countClass(t.slots, d, l, class, in.Lo, in.Hi)
	most := sum(t.sums, t.slots, in.Lo, in.Hi)
	if level == c.NodeLevel() {
		return most
	}
	most = 0
	for _, i := range c.within(level, in.Lo, in.Hi) {
		most = max(most, t.sums[c.domains[i].hi]-t.sums[c.domains[i].lo])
	}
	return most
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
	if len(d.Sets) < 2 {
		return out
	}
	members := make([]int, len(d.Sets))
	for _, m := range d.Members[:d.Min] {
		members[m.Set]++
	}
	for i := range d.Sets {
		s, of := &d.Sets[i], Constraint{Members: members[i]}
		if s.Required > d.Required {
			of.Within = c.labelOf(s.Required)
		}
		of.SliceSize, of.SliceWithin = c.slicing(s)
		if of.Members > 0 && of != (Constraint{Members: of.Members}) {
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
	if s.SliceSize < 1 || s.SliceLevel == WholeCluster {
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

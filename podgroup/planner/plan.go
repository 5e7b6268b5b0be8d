package planner

// maxRounds bounds how often a plan is repaired after a Verifier refused it. Every round learns a
// limit for at least one node of the plan, and checks only the nodes that the plan names.
const maxRounds = 32

// maxEffort bounds how often the nodes of the cluster are looked at to find out how many members fit,
// which only a gang of very many classes takes: then fewer are placed than could be.
const maxEffort = 1000

// scratch holds what a plan needs, kept between plans so that they allocate nothing.
type scratch struct {
	// What the demand is made of; see prepare.
	sets       []Set
	required   Level // of the gang
	groups     []group
	groupOf    []int32 // by set
	blocks     []block
	parts      []part
	latest     []int32        // by set: its latest block of members that are in no slice
	bySlice    []int32        // members in slices, by set, slice, class and rank
	placed     []PlacedMember // by set, slice and node, if there are slices
	blockOf    []int32        // by member
	first      []int32        // by member: the first member of its unit
	order      []int32        // blocks by group, those with the largest units first
	firstItems []int32        // what is packed, in the first order: a block, or ^ of a group
	device     Resource
	scored     bool

	// How much fits where.
	base, local []tally
	devices     []int64 // running sums of the free devices, or empty
	learned     learned

	// Who is where; see gather.
	gathering gathering

	// What all classes have room for together; see boundTogether.
	bounded      bool // whether bounds were asked for since the slots were counted
	bounds       []bound
	competitions []competition
	members      []int64 // by class
	requesting   []int32 // parts, by resource
	most         []int64 // by free units; see table

	// Choosing and packing.
	targets   []target
	places    []place
	items     []int32
	partOrder []int32
	picks     []pick
	unit      int32
	tight     bool
	retries   int // left
	effort    int // nodes looked at for blocks
	filler    filler

	// How far domains go; see best.
	unitsFrom  []int32 // by block: where its units begin in firsts
	firsts     []int32
	pinnedRoom []int64 // by block

	// How many members of the gang are where, in place or packed.
	onNode, inDomain []int32

	next  []int32 // by block
	nodes []NodeID
	plan  Plan
}

// Plan places the gang, or explains why it does not fit. Exactly one of the plan and the
// explanation is returned unless the demand is invalid (see Validate) or the Verifier fails. A nil
// Verifier accepts every plan. The plan is valid until the next call.
//
// An explanation that is Undecided means the Verifier refused maxRounds plans in a row, so that
// the question needs an exact answer; arithmetic alone would have let the gang in.
func (c *Cluster) Plan(d *Demand, v Verifier) (*Plan, *Explanation, error) {
	w := &c.work
	learned := &w.learned
	if err := c.Validate(d); err != nil {
		return nil, nil, err
	}
	learned.reset(len(d.Classes))
	c.prepare(d)
	for round := range maxRounds {
		c.countBlocks(d, learned)
		if !c.placeMost(d, learned) {
			return nil, c.explain(d, learned), nil
		}
		if round == 0 {
			if short := c.minResourcesShort(d); len(short) > 0 {
				e := c.explain(d, learned)
				e.MinResources, e.Fragmented = short, nil
				return nil, e, nil
			}
		}
		if v == nil {
			return c.plan(), nil, nil
		}
		limits, err := v.Verify(d, w.nodes)
		if err != nil {
			return nil, nil, err
		}
		if len(limits) == 0 {
			return c.plan(), nil, nil
		}
		learned.add(limits)
	}
	e := c.explain(d, learned)
	e.Undecided = true
	return nil, e, nil
}

func (c *Cluster) plan() *Plan {
	w := &c.work
	all := w.groups[0].placed
	for _, node := range w.nodes {
		if node != NoNode {
			all.add(node)
		}
	}
	w.plan = Plan{Nodes: w.nodes, Domain: c.domains[c.common(all)].title}
	return &w.plan
}

// placeMost places all members if it can, otherwise as many beyond the minimum as it finds room
// for, in rank order and in one required domain. It reports whether the minimum fits.
func (c *Cluster) placeMost(d *Demand, l *learned) bool {
	c.work.retries, c.work.effort = maxRetries, 0
	if c.place(d, l, len(d.Members)) {
		return true
	}
	if d.Min >= len(d.Members) || !c.place(d, l, d.Min) {
		return false
	}
	c.halve(d, l, d.Min, len(d.Members))
	return true
}

// halve returns the largest number of members that is found to fit, of which the one number is known
// to and the other known not to: room for k members is room for k-1. A search that has become too long
// ends with less than the largest.
func (c *Cluster) halve(d *Demand, l *learned, fits, fails int) int {
	for fails-fits > 1 && (fits == 0 || c.effortLeft()) {
		if k := (fits + fails) / 2; c.place(d, l, k) {
			fits = k
		} else {
			fails = k
		}
	}
	return fits
}

// effortLeft reports whether a search for the most members may go on.
func (c *Cluster) effortLeft() bool { return c.work.effort < maxEffort*len(c.names) }

// place finds nodes for the first k members, slices only whole, in the lowest domain that holds
// them. If there is none, the nodes found by an earlier call stay.
func (c *Cluster) place(d *Demand, l *learned, k int) bool {
	w := &c.work
	c.setUnits(d, k)
	gang, root := &w.groups[0], c.target(0)
	w.targets, w.unit = w.targets[:0], 0
	bounded := len(w.bounds) > 0
	for level, to := c.levelsFor(gang, &root); level >= to; level-- {
		c.appendTargets(d, level, gang, &root, w.order)
		c.dropHopeless(k)
		for c.heapTargets(0); len(w.targets) > 0; {
			t := c.popTarget(0)
			if c.pack(d, l, &t, k) {
				c.assign(d, k)
				w.targets = w.targets[:0]
				return true
			}
			if !bounded && len(w.bounds) > 0 {
				bounded = true
				c.dropHopeless(k)
				c.heapTargets(0)
			}
		}
	}
	return false
}

// placeable returns the largest number of needed members, in rank order and at most so many, that
// would fit; for several classes, that are found to fit at the first attempt. The blocks must have
// been counted.
func (c *Cluster) placeable(d *Demand, l *learned, atMost int) int {
	c.work.retries, c.work.effort = 0, 0
	// What was computed as the most is mostly it, or nearly.
	fails := atMost + 1
	for step := 1; fails > 1 && c.effortLeft(); step *= 8 {
		k := max(fails-step, 1)
		if c.place(d, l, k) {
			return c.halve(d, l, k, fails)
		}
		fails = k
	}
	return c.halve(d, l, 0, fails)
}

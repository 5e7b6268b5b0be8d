package planner

import (
	"fmt"
	"slices"
)

// Advice is what would let a refused gang in, as the planner's own arithmetic has confirmed. Every
// part of it suffices by itself.
type Advice struct {
	// Nodes is a number of nodes to add; nil if no number of them would do.
	Nodes *MoreNodes
	// End are tenants whose end would do, none of which could stay; empty if there are none, or too
	// many to name.
	End []Tenant
	// Looser is a constraint with which the gang fits now; nil if there is none.
	Looser *Looser
}

// MoreNodes are new, empty nodes like one that exists.
type MoreNodes struct {
	// Count is the least number of nodes that does.
	Count int
	// Like is the existing node, and Shape what it has of the resources that the members request.
	Like  string
	Shape []ResourceAmount
	// Together is how many of them at a time must be in one domain of the level with the label
	// TogetherIn, as the members' slices need; 0 if it does not matter.
	Together   int
	TogetherIn string
}

// Looser is a level to ask for instead of the one that is asked for.
type Looser struct {
	// Slices is set if it is the level of the slices that has to change.
	Slices bool
	// Within is the node label of the level, "" if the whole cluster.
	Within string
}

// Advise adds to the explanation of a refusal who uses what is short, and what would help. The
// cluster and the demand must be as Plan saw them. Without Tenants it says what would help besides
// tenants that end.
//
// It costs a few plans, and a look at the tenants of the best domain: not for every refusal, but for
// those that somebody reads.
func (c *Cluster) Advise(d *Demand, e *Explanation, tenants Tenants) {
	l := e.learned
	if l == nil {
		l = newLearned(len(d.Classes))
	}
	e.Advice = &Advice{}
	if len(e.TooLarge) > 0 {
		return
	}
	d = c.clamped(d)
	c.prepare(d)
	c.countBlocks(d, l)
	asked, best := c.asked(c.needed(d, l), l)
	if len(e.MinResources) > 0 {
		best = Room{Domain: c.Whole()}
	}
	var occupants []occupant
	if tenants != nil {
		occupants = c.occupants(asked, best.Domain, tenants)
		c.fillUsers(e.Short, occupants)
		c.fillUsers(e.Fragmented, occupants)
		c.fillUsers(e.MinResources, occupants)
	}
	if e.Undecided || e.Learned && l.empty() {
		return // what refused the gang is not arithmetic
	}
	e.Advice.Nodes = c.moreNodes(d, asked, l, best.Domain)
	if tenants != nil {
		e.Advice.End = c.ends(d, asked, l, best.Domain, occupants, tenants)
	}
	e.Advice.Looser = c.looser(d, l)
}

// fits reports whether Plan would find places for the needed members of the gang now.
func (c *Cluster) fits(d *Demand, l *learned) bool {
	if len(c.minResourcesShort(d)) > 0 {
		return false
	}
	c.prepare(d)
	c.countBlocks(d, l)
	return c.placeMost(d, l)
}

// looser returns the innermost level, outside the required one, in which the gang fits now; failing
// that, such a level for its slices.
func (c *Cluster) looser(d *Demand, l *learned) *Looser {
	required, slicing := d.Required, WholeCluster
	for _, s := range d.Sets {
		required = max(required, s.Required)
		if s.SliceSize > 1 {
			slicing = max(slicing, s.SliceLevel)
		}
	}
	for level := required - 1; level >= WholeCluster; level-- {
		loose := d.loosened(level, c.NodeLevel())
		if c.fits(loose, l) {
			return &Looser{Within: c.labelOf(level)}
		}
	}
	for level := slicing - 1; level >= WholeCluster; level-- {
		loose := d.loosened(required, level)
		if c.fits(loose, l) {
			return &Looser{Slices: true, Within: c.labelOf(level)}
		}
	}
	return nil
}

// loosened is the demand with no level required inside the given one, and no slices inside theirs.
func (d *Demand) loosened(required, slicing Level) *Demand {
	out := *d
	out.Required = min(d.Required, required)
	out.Sets = slices.Clone(d.Sets)
	for i := range out.Sets {
		s := &out.Sets[i]
		s.Required = min(s.Required, required)
		s.SliceLevel = min(s.SliceLevel, slicing)
	}
	return &out
}

// moreNodes returns how many more nodes of the best shape in a domain would let the gang in.
func (c *Cluster) moreNodes(d, asked *Demand, l *learned, in Domain) *MoreNodes {
	if in.Lo == in.Hi && len(c.names) > 0 || len(d.Placed) > 0 && in.Level >= c.NodeLevel() {
		return nil
	}
	if in.Lo < in.Hi && !c.mayGrow(d, in) {
		return nil
	}
	shape := c.shape(asked, in)
	if shape == NoNode {
		return nil
	}
	m := &MoreNodes{Like: c.names[shape]}
	for class := range asked.Classes {
		for _, a := range asked.Classes[class].Requests {
			has := ResourceAmount{c.resources[a.Resource], c.capacity[a.Resource][shape]}
			if has.Name != podsResource && !slices.Contains(m.Shape, has) {
				m.Shape = append(m.Shape, has)
			}
		}
	}
	if class, ok := d.uniform(); ok {
		m.Count = c.moreForOne(d, class, l, in, shape)
	} else if x := c.extend(d, l, in, shape); x != nil {
		m.Count = x.fewest()
		if x.together > 0 {
			m.Together, m.TogetherIn = x.together, c.LevelName(x.level)
		}
	}
	if m.Count <= 0 {
		return nil
	}
	return m
}

// mayGrow reports whether new nodes of a domain would be in a domain of every shallower level that is
// asked for.
func (c *Cluster) mayGrow(d *Demand, in Domain) bool {
	inside := !c.outside(in.Lo, min(d.Required, in.Level))
	for _, s := range d.Sets {
		inside = inside && !c.outside(in.Lo, min(s.Required, in.Level))
		if s.SliceSize > 0 {
			inside = inside && !c.outside(in.Lo, min(s.SliceLevel, in.Level))
		}
	}
	return inside
}

// uniform returns the only class of the needed members, if there is only one and no set to keep
// apart: a domain holds such a gang if it has enough slots.
func (d *Demand) uniform() (class int, ok bool) {
	if len(d.Sets) > 1 || len(d.Sets) == 1 && d.Sets[0].SliceSize > 0 {
		return 0, false
	}
	class = d.Members[0].Class
	for _, m := range d.Members[:d.Min] {
		if m.Class != class {
			return 0, false
		}
	}
	return class, true
}

// moreForOne returns how many nodes like shape a domain lacks for a uniform gang, or 0 if no number
// of them would do.
func (c *Cluster) moreForOne(d *Demand, class int, l *learned, in Domain, shape NodeID) int {
	slots := c.emptySlots(&d.Classes[class], shape)
	need := int64(d.Min)
	if in.Level < c.NodeLevel() {
		f := c.find(d, l, class, in)
		need -= f.slots
	} else if slots < need {
		return 0 // a new node is a domain of its own
	}
	if l.nowhere[class] != "" {
		return 0
	}
	k := max((need+slots-1)/slots, 0)
	for _, s := range c.minResourcesShort(d) {
		has := c.capacity[c.columns[s.Name]][shape]
		if has == 0 {
			return 0
		}
		k = max(k, (s.Needed-s.Free-1)/has+1)
	}
	return int(k)
}

// shape returns the node of the domain that would hold the most members if it were empty: of those
// that the classes may use, and that have room for one of each.
func (c *Cluster) shape(d *Demand, in Domain) NodeID {
	counts := d.counts(d.Min)
	best, most := NoNode, int64(0)
	for node := in.Lo; node < in.Hi; node++ {
		if c.outside(node, d.slicing()) {
			continue
		}
		holds := int64(maxSlots)
		for class := range d.Classes {
			if counts[class] > 0 {
				holds = min(holds, c.emptySlots(&d.Classes[class], node))
			}
		}
		if holds > most || holds == most && best != NoNode && c.larger(d, node, best) {
			best, most = node, holds
		}
	}
	return best
}

// larger reports whether a node has more than another of the first resource of which they have
// different amounts, in the order in which the members request them.
func (c *Cluster) larger(d *Demand, a, b NodeID) bool {
	for class := range d.Classes {
		for _, request := range d.Classes[class].Requests {
			if x, y := c.capacity[request.Resource][a], c.capacity[request.Resource][b]; x != y {
				return x > y
			}
		}
	}
	return false
}

// emptySlots returns how many members of a class would have room on a node without pods.
func (c *Cluster) emptySlots(class *Class, node NodeID) int64 {
	if !class.mayUse(node) {
		return 0
	}
	slots := int64(maxSlots)
	for _, a := range class.Requests {
		slots = min(slots, c.capacity[a.Resource][node]/a.Value)
	}
	return slots
}

// extension is a copy of a part of a cluster, with room for more nodes in one of its domains.
type extension struct {
	*Cluster
	demand  *Demand
	learned *learned
	// added are the new nodes, without capacity until they are counted, and like what each has then.
	added []NodeID
	like  []Amount
	// together nodes share a domain of level; 0 if it does not matter.
	together int
	level    Level
}

// maxAdded bounds how many nodes an advice may ask for.
const maxAdded = 4096

// extend copies the domain of the level that the whole gang requires around the given one, and puts
// new nodes like shape into the given one.
func (c *Cluster) extend(d *Demand, l *learned, in Domain, shape NodeID) *extension {
	x := &extension{Cluster: NewCluster(c.levels)}
	region, required := c.Whole(), d.Required
	if len(d.Sets) == 1 {
		required = max(required, d.Sets[0].Required)
	}
	switch {
	case len(d.MinResources) > 0:
	case in.Level >= c.NodeLevel() && required >= c.NodeLevel():
		region = Domain{} // a new node is a domain of its own
	case in.Level >= c.NodeLevel() && required > WholeCluster:
		return nil
	case required > WholeCluster:
		region, _ = c.Around(in.Lo, min(required, in.Level))
	}
	for _, p := range d.Placed {
		if p.Node < region.Lo || p.Node >= region.Hi {
			return nil // the gang is tied to other nodes
		}
	}
	x.level = d.innermost()
	wanted := d.Min
	if x.level > in.Level && x.level < c.NodeLevel() {
		around, ok := c.Around(shape, x.level)
		if !ok {
			return nil // the shape is outside the level that slices need
		}
		x.together = int(around.Hi - around.Lo)
		wanted *= x.together
	}
	nodes := make([]Node, 0, int(region.Hi-region.Lo)+min(wanted, maxAdded))
	for node := region.Lo; node < region.Hi; node++ {
		nodes = append(nodes, Node{c.names[node], c.values(node)})
	}
	within := make([]string, len(c.levels))
	if in.Level < c.NodeLevel() && in.Lo < in.Hi {
		copy(within, c.values(in.Lo)[:in.Level])
	}
	for i := range min(wanted, maxAdded) {
		values := slices.Clone(within)
		for level := int(in.Level % c.NodeLevel()); level < len(values); level++ {
			values[level] = fmt.Sprintf("\x00%d", i/max(x.together, 1)*min(x.together, 1))
		}
		nodes = append(nodes, Node{fmt.Sprintf("\x00%d", i), values})
	}
	x.SetNodes(nodes)
	x.copyFrom(c, d, l, region, nodes)
	for r := range c.resources {
		if has := c.capacity[r][shape]; has > 0 {
			x.like = append(x.like, Amount{x.Resource(c.resources[r]), has})
		}
	}
	return x
}

// copyFrom takes over capacity, demand and limits for the nodes of the region, which are the first
// of the given nodes; the others are new.
func (x *extension) copyFrom(c *Cluster, d *Demand, l *learned, region Domain, nodes []Node) {
	for _, name := range c.resources {
		x.Resource(name)
	}
	ids := make([]NodeID, len(nodes))
	for i := range nodes {
		ids[i], _ = x.Node(nodes[i].Name)
	}
	old := int(region.Hi - region.Lo)
	x.added = ids[old:]
	for r := range c.resources {
		for i := range old {
			x.free[r][ids[i]] = c.free[r][int(region.Lo)+i]
			x.capacity[r][ids[i]] = c.capacity[r][int(region.Lo)+i]
		}
	}
	copy(x.totals, c.totals) // what is hard to place is so by the measure of the whole cluster
	demand := *d
	demand.Classes = slices.Clone(d.Classes)
	for class := range demand.Classes {
		k := &demand.Classes[class]
		k.Blocked = carry(k.Blocked, region, ids)
		k.Score = carry(k.Score, region, ids)
	}
	demand.Placed = slices.Clone(d.Placed)
	for i := range demand.Placed {
		demand.Placed[i].Node = ids[demand.Placed[i].Node-region.Lo]
	}
	x.demand, x.learned = &demand, newLearned(len(d.Classes))
	copy(x.learned.nowhere, l.nowhere)
	for class, limits := range l.byClass {
		for _, limit := range limits {
			if region.Lo <= limit.Node && limit.Node < region.Hi {
				limit.Node = ids[limit.Node-region.Lo]
				x.learned.byClass[class] = append(x.learned.byClass[class], limit)
			}
		}
	}
}

// carry takes over what is known of the nodes of a region for their new places, the first of ids.
func carry[T uint16 | int32](known []T, region Domain, ids []NodeID) []T {
	if known == nil {
		return nil
	}
	out := make([]T, len(ids))
	for i, value := range known[region.Lo:region.Hi] {
		out[ids[i]] = value
	}
	return out
}

// fewest returns the least number of new nodes with which the gang fits, 0 if no number does: with
// one node less it does not.
func (x *extension) fewest() int {
	there := 0
	fits := func(k int) bool {
		for ; there < k; there++ {
			x.SetNode(x.added[there], x.like, nil)
		}
		for ; there > k; there-- {
			x.SetNode(x.added[there-1], nil, nil)
		}
		return x.fits(x.demand, x.learned)
	}
	lo, hi := 0, 1
	for !fits(min(hi, len(x.added))) {
		if hi >= len(x.added) {
			return 0
		}
		lo, hi = hi, 2*hi
	}
	hi = min(hi, len(x.added))
	for hi-lo > 1 {
		if k := (lo + hi) / 2; fits(k) {
			hi = k
		} else {
			lo = k
		}
	}
	return hi
}

// innermost returns the innermost level that constrains any member.
func (d *Demand) innermost() Level {
	level := d.Required
	for _, s := range d.Sets {
		level = max(level, s.Required)
		if s.SliceSize > 1 {
			level = max(level, s.SliceLevel)
		}
	}
	return level
}

func newLearned(classes int) *learned {
	l := &learned{}
	l.reset(classes)
	return l
}

// values returns the node's value for each level.
func (c *Cluster) values(node NodeID) []string {
	values := make([]string, len(c.levels))
	for i := c.leaf[node]; c.domains[i].level > WholeCluster; i = c.domains[i].parent {
		values[c.domains[i].level-1] = c.domains[i].name
	}
	return values
}

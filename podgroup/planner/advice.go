package planner

import (
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
	// Futile is set if no new node, whatever its shape, could let the gang in: its members must be on the
	// very node that holds some of them, or a check found that no node would be taken. Without Nodes and
	// without Futile it is not known: a node of a shape that the cluster does not have yet may do.
	Futile bool
}

// Looser is a level to ask for instead of the one that is asked for.
type Looser struct {
	// Slices is set if it is the level of the slices that has to change.
	Slices bool
	// Within is the node label of the level, "" if the whole cluster.
	Within string
}

// maxAdvised is how many classes, or sets, a gang may have for it to be searched what would help: a
// search takes many plans, and one for thousands of classes a second.
const maxAdvised = 64

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
	e.Advice = &Advice{Futile: c.futile(d, l)}
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
	if len(e.Need) > maxAdvised || len(d.Sets) > maxAdvised {
		return
	}
	e.Advice.Nodes = c.moreNodes(d, asked, l, best.Domain)
	if tenants != nil {
		e.Advice.End = c.ends(d, asked, l, best.Domain, occupants, tenants)
	}
	e.Advice.Looser = c.looser(d, l)
}

// futile reports whether it is certain that no new node could let the gang in.
func (c *Cluster) futile(d *Demand, l *learned) bool {
	required := d.Required
	if len(d.Sets) == 1 {
		required = max(required, d.Sets[0].Required)
	}
	if len(d.Placed) > 0 && required >= c.NodeLevel() {
		return true
	}
	for _, m := range d.Members[:d.Min] {
		if l.nowhere[m.Class] != "" {
			return true
		}
	}
	return false
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
		if s.SliceSize > 0 {
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

package planner

import (
	"slices"
	"sort"
)

// Preemption is what makes room for a gang.
type Preemption struct {
	// Plan is where the gang goes on the cluster without the victims. Unlike that of Cluster.Plan it stays
	// valid.
	Plan Plan
	// Victims are indices, in rising order. None if the gang fits as it is.
	Victims []int
}

// Preempt chooses a domain, victims and a place for every member together, or explains as Plan does why
// the gang does not fit; exactly one of the preemption and the explanation is returned unless the demand
// or a victim is invalid, or the Verifier fails. The gang fits whole into what is free and what the victims
// free, and none of them can stay. Members beyond Demand.Min have places as far as they fit, but nobody goes
// for them. Of what is found that is chosen which has, in this order,
//   - the fewest disruptions beyond what PodDisruptionBudgets allow;
//   - the lowest priority of the victim with the highest;
//   - the fewest pods evicted;
//   - the least work lost;
//   - the lowest domain;
//   - the first place in topology order.
//
// Everyone in victims may go: who may be preempted by whom is the caller's to know. The Verifier is
// asked while the victims have left the Cluster, which is all that it is told of them; what it refuses counts
// with other victims too. Nobody goes for a gang of more than maxAdvised classes or sets, the search for which
// would be long. The cluster is as before afterwards. docs/planner.md says how good the choice is.
func (c *Cluster) Preempt(d *Demand, v Verifier, victims []Victim) (*Preemption, *Explanation, error) {
	if err := c.Validate(d); err != nil {
		return nil, nil, err
	}
	if err := c.validateVictims(victims); err != nil {
		return nil, nil, err
	}
	s := &c.clearance
	s.begin(c, d, victims)
	defer s.end()
	for rounds := maxRounds; rounds > 0 && len(d.Classes) <= maxAdvised && len(d.Sets) <= maxAdvised && s.choose(); {
		p, err := s.plan(v, &rounds)
		if err != nil {
			return nil, nil, err
		}
		if p != nil {
			return p, nil, nil
		}
	}
	p, e, err := c.Plan(d, v)
	if p == nil {
		return nil, e, err
	}
	return &Preemption{Plan: p.clone()}, nil, nil
}

func (p *Plan) clone() Plan { return Plan{Nodes: slices.Clone(p.Nodes), Domain: p.Domain} }

// end lets go of what belongs to the caller.
func (s *clearance) end() {
	s.victims, s.gang, s.d = nil, nil, nil
	clear(s.seats)
	clear(s.local[:cap(s.local)])
}

// plan plans the gang without the chosen victims, as often as the Verifier refuses it. What it refuses is
// learned; the victims that were best without knowing it are best as long as they suffice. It returns nil
// if they do not any more.
func (s *clearance) plan(v Verifier, rounds *int) (*Preemption, error) {
	c := s.c
	for _, i := range s.chosen {
		s.leaveAlone(i)
	}
	defer s.rollBack(0)
	for ; *rounds > 0; *rounds-- {
		c.prepare(s.gang)
		c.countBlocks(s.gang, &s.l)
		if !c.placeMost(s.gang, &s.l) {
			return nil, nil
		}
		if v != nil {
			limits, err := v.Verify(s.gang, c.work.nodes)
			if err != nil {
				return nil, err
			}
			if len(limits) > 0 {
				s.l.add(limits)
				continue
			}
		}
		p := &Preemption{Plan: c.plan().clone()}
		for _, i := range s.chosen {
			p.Victims = append(p.Victims, int(i))
		}
		return p, nil
	}
	return nil, nil
}

// choose chooses victims with whom gone the gang fits, in rising order. It reports false if there are none.
// Who may go is widened step by step: first nobody whose end violates a budget, and of those only the
// lowest priorities that suffice.
func (s *clearance) choose() bool {
	s.chosen = s.chosen[:0]
	if s.fits() {
		return true
	}
	s.listPriorities()
	all := len(s.priorities)
	if all == 0 {
		return false
	}
	suffices := func(i int, violating bool) bool { return s.suffice(s.priorities[i], violating) }
	if suffices(all-1, false) {
		lowest := sort.Search(all-1, func(i int) bool { return suffices(i, false) })
		if s.search(s.priorities[lowest], false) {
			return true
		}
	}
	if !suffices(all-1, true) || !s.search(s.priorities[all-1], true) {
		return false
	}
	// With the fewest violations there may be a way that spares the highest priorities.
	fewest := s.least.violations
	lowest := sort.Search(all-1, func(i int) bool {
		return suffices(i, true) && s.search(s.priorities[i], true) && s.least.violations <= fewest
	})
	return s.search(s.priorities[lowest], true)
}

// fits reports whether Plan would find places for the needed members as things are.
func (s *clearance) fits() bool {
	return len(s.c.minResourcesShort(s.gang)) == 0 && s.placed()
}

func (s *clearance) placed() bool {
	s.c.prepare(s.d)
	s.c.countBlocks(s.d, &s.l)
	return s.c.placeMost(s.d, &s.l)
}

// listPriorities lists the priorities of victims that could help, with those who go with them.
func (s *clearance) listPriorities() {
	s.priorities = s.priorities[:0]
	for i := range s.victims {
		if s.useful[i] {
			s.priorities = append(s.priorities, s.roster.loss[i].priority)
		}
	}
	slices.Sort(s.priorities)
	s.priorities = slices.Compact(s.priorities)
}

// allow says who may go.
func (s *clearance) allow(priority int32, violating bool) {
	for i := range s.victims {
		l := &s.roster.loss[i]
		s.may[i] = s.useful[i] && l.priority <= priority && (violating || l.violations == 0)
	}
}

// suffice reports whether the gang fits once all have left who may go.
func (s *clearance) suffice(priority int32, violating bool) bool {
	s.allow(priority, violating)
	defer s.rollBack(0)
	s.leaveAll()
	return s.fits()
}

func (s *clearance) leaveAll() {
	s.lo, s.hi = 0, 0
	for i := range s.victims {
		if s.may[i] && !s.gone[i] {
			s.leave(int32(i))
		}
	}
}

package gangplan

import (
	"context"
	"errors"
	"iter"
	"slices"

	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/podgroup/planner"
)

const (
	// maxDomains bounds how many domains of one level are tried as candidates for the whole gang.
	maxDomains = 4
	// maxOrders bounds how often the members are placed inside one candidate domain: in rank order,
	// then with the kind first that found no place.
	maxOrders = 3
	// checksPerItem bounds a search as a whole: it runs the Filter plugins at most this many times for
	// each member of the gang and each node of the cluster.
	checksPerItem = 16
)

// search is the exact way to place a gang: one member after another, each on the first node that all
// of the profile's plugins accept with the members before it in place. It sees what arithmetic cannot,
// at the price of a check for each member and, until one accepts it, each node.
//
// Of the domains that could hold the gang, the planner's first choices at each level are tried. Inside one, a member
// goes to the node that arithmetic has for it, or else to the next one from where its kind went last.
// A node that refused a kind for a reason that more members on the nodes cannot remove is not asked
// again. No member is moved once it has its place, except together with its slice or its set, which
// try every domain that they may use, or when the whole gang is tried again in another order. So a
// gang that fits only in some other way may be refused; what is found is always right.
type search struct {
	*trial
	planned []planner.NodeID
	sets    []memberSet
	// closed holds by kind, then node, why the node takes no member of the kind; log is what is in it.
	closed [][]string
	log    []closing
	// passed are the refusals of the member that is being placed that may not last.
	passed map[planner.NodeID]string
	// last is, by kind, the node that took the last member.
	last   []planner.NodeID
	failed failure
	best   failure
	budget int
}

// placeOneByOne searches for places for the demand, given what arithmetic would do.
func placeOneByOne(ctx context.Context, fw framework.Framework, c *Cluster, d *Demand, planned []planner.NodeID) (plan *planner.Plan, e *planner.Explanation, err error) {
	t, err := newTrial(ctx, fw, c, d)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, t.undo(0)) }()
	s := &search{
		trial: t, planned: planned, sets: setsOf(d), closed: make([][]string, t.kinds.n),
		last: make([]planner.NodeID, t.kinds.n), best: failure{placed: -1},
		budget: checksPerItem * (len(d.Pods) + c.NumNodes()),
	}
	for domain := range s.candidates() {
		first := -1
		for range maxOrders {
			placed, err := s.fill(domain, first)
			if err == nil && placed {
				placed, err = s.again()
			}
			if err != nil {
				return nil, nil, err
			}
			if placed {
				d.Allocations = t.allocations()
				return s.plan(), nil, nil
			}
			if err := s.back(0); err != nil {
				return nil, nil, err
			}
			again := t.kinds.of[s.failed.member]
			if again == first || t.kinds.n == 1 || s.spent() {
				break
			}
			first = again
		}
		if s.spent() {
			break
		}
	}
	return nil, c.Refused(&d.Demand, max(s.best.placed, 0), s.best.causes), nil
}

// candidates yields the domains to place the gang in, the first choice first.
func (s *search) candidates() iter.Seq[planner.Domain] {
	return func(yield func(planner.Domain) bool) {
		level, tried := planner.Level(-1), 0
		for domain := range s.cluster.Candidates(&s.demand.Demand) {
			if domain.Level != level {
				level, tried = domain.Level, 0
			}
			if tried++; tried <= maxDomains && !yield(domain) {
				return
			}
		}
	}
}

func (s *search) plan() *planner.Plan {
	nodes := make([]planner.NodeID, len(s.demand.Pods))
	for i := range nodes {
		nodes[i] = planner.NoNode
	}
	all := make([]planner.NodeID, 0, len(s.placed)+len(s.demand.Placed))
	for _, p := range s.placed {
		nodes[p.member] = p.node
		all = append(all, p.node)
	}
	for _, p := range s.demand.Placed {
		all = append(all, p.Node)
	}
	return &planner.Plan{Nodes: nodes, Domain: s.cluster.DomainOf(all)}
}

func (s *search) spent() bool { return s.checks >= s.budget }

// again places the members in rank order where they are, if they were placed in another: members follow
// a plan in rank order, and each must be accepted when its turn comes.
func (s *search) again() (bool, error) {
	if slices.IsSortedFunc(s.placed, func(a, b placedMember) int { return a.member - b.member }) {
		return true, nil
	}
	found := slices.Clone(s.placed)
	slices.SortFunc(found, func(a, b placedMember) int { return a.member - b.member })
	if err := s.back(0); err != nil {
		return false, err
	}
	for _, p := range found {
		clear(s.passed)
		if placed, err := s.try(p.member, p.node); err != nil {
			return false, err
		} else if !placed {
			s.fail(p.member, planner.Domain{Level: s.cluster.NodeLevel(), Lo: p.node, Hi: p.node + 1})
			return false, nil
		}
	}
	return true, nil
}

// place puts a member on a node of the domain that takes it.
func (s *search) place(member int, in planner.Domain) (bool, error) {
	kind := s.kinds.of[member]
	clear(s.passed)
	planned := s.planned[member]
	if in.Lo <= planned && planned < in.Hi {
		if placed, err := s.try(member, planned); placed || err != nil {
			return placed, err
		}
	}
	size := in.Hi - in.Lo
	start := max(s.last[kind]-in.Lo, 0)
	for i := range size {
		node := in.Lo + (start+i)%size
		if node == planned {
			continue
		}
		if placed, err := s.try(member, node); placed || err != nil {
			return placed, err
		}
		if s.spent() {
			break
		}
	}
	s.fail(member, in)
	return false, nil
}

// try puts a member on a node if it takes it, and notes why not.
func (s *search) try(member int, node planner.NodeID) (bool, error) {
	kind := s.kinds.of[member]
	if s.closed[kind] != nil && s.closed[kind][node] != "" || s.blocked(member, node) != "" {
		return false, nil
	}
	status, err := s.check(member, node)
	if err != nil {
		return false, err
	}
	if status == nil {
		if status, err = s.put(member, node); err != nil {
			return false, err
		}
	}
	if status == nil {
		s.last[kind] = node
		return true, nil
	}
	if lasts(status) {
		if s.closed[kind] == nil {
			s.closed[kind] = make([]string, s.cluster.NumNodes())
		}
		s.closed[kind][node] = RefusedBy(status)
		s.log = append(s.log, closing{kind, node, len(s.placed)})
	} else {
		if s.passed == nil {
			s.passed = map[planner.NodeID]string{}
		}
		s.passed[node] = RefusedBy(status)
	}
	return false, nil
}

// back undoes the members after the first mark of them, and forgets what was learned with them there.
func (s *search) back(mark int) error {
	for n := len(s.log); n > 0 && s.log[n-1].at > mark; n-- {
		s.closed[s.log[n-1].kind][s.log[n-1].node] = ""
		s.log = s.log[:n-1]
	}
	return s.undo(mark)
}

package gangplan

import (
	"context"
	"errors"
	"iter"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

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

type closing struct {
	kind int
	node planner.NodeID
	at   int // members in place
}

// failure is how far an attempt came: members in place, the member that found none, and why each node
// refused it.
type failure struct {
	member, placed int
	causes         []string
}

// memberSet and slice are the members of a set, in rank order, and their parts that belong together.
type memberSet struct {
	set    int
	slices []memberSlice
}

type memberSlice struct {
	slice   int
	members []int
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

// setsOf divides the members of a demand into sets and slices, each in rank order.
func setsOf(d *Demand) []memberSet {
	var sets []memberSet
	for i, m := range d.Members {
		n := slices.IndexFunc(sets, func(s memberSet) bool { return s.set == m.Set })
		if n < 0 {
			n = len(sets)
			sets = append(sets, memberSet{set: m.Set})
		}
		slice := 0
		if len(d.Sets) > 0 && d.Sets[m.Set].SliceSize > 0 {
			slice = m.Slice
		}
		of := &sets[n].slices
		k := slices.IndexFunc(*of, func(s memberSlice) bool { return s.slice == slice })
		if k < 0 {
			k = len(*of)
			*of = append(*of, memberSlice{slice: slice})
		}
		(*of)[k].members = append((*of)[k].members, i)
	}
	return sets
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

// fill places the gang inside a domain, members of the kind first before the others of their slice.
func (s *search) fill(domain planner.Domain, first int) (bool, error) {
	for k := range s.last {
		s.last[k] = domain.Lo
	}
	for i := range s.sets {
		set := planner.Set{}
		if len(s.demand.Sets) > 0 {
			set = s.demand.Sets[s.sets[i].set]
		}
		placed, err := s.inOne(s.inside(domain, set.Required, s.sets[i].slices[0].members[0], func(p planner.PlacedMember) bool {
			return p.Set == s.sets[i].set
		}), func(in planner.Domain) (bool, error) { return s.fillSet(&s.sets[i], set, in, first) })
		if !placed || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (s *search) fillSet(m *memberSet, set planner.Set, in planner.Domain, first int) (bool, error) {
	for i := range m.slices {
		part, level := &m.slices[i], planner.WholeCluster
		if set.SliceSize > 0 {
			level = set.SliceLevel
		}
		placed, err := s.inOne(s.inside(in, level, part.members[0], func(p planner.PlacedMember) bool {
			return p.Set == m.set && p.Slice == part.slice
		}), func(in planner.Domain) (bool, error) { return s.fillSlice(part.members, set.SliceSize > 0, in, first) })
		if err != nil {
			return false, err
		}
		if !placed && part.members[0] < s.demand.Min {
			return false, nil
		}
	}
	return true, nil
}

func (s *search) fillSlice(members []int, whole bool, in planner.Domain, first int) (bool, error) {
	order := members
	if first >= 0 {
		order = slices.Clone(members)
		slices.SortStableFunc(order, func(a, b int) int {
			return boolToInt(s.kinds.of[b] == first) - boolToInt(s.kinds.of[a] == first)
		})
	}
	for _, member := range order {
		placed, err := s.place(member, in)
		if err != nil {
			return false, err
		}
		if !placed && (whole || member < s.demand.Min) {
			return false, nil
		}
	}
	return true, nil
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// inOne places something inside the first of the domains that holds it.
func (s *search) inOne(domains []planner.Domain, place func(planner.Domain) (bool, error)) (bool, error) {
	mark := len(s.placed)
	for _, in := range domains {
		placed, err := place(in)
		if placed || err != nil {
			return placed, err
		}
		if err := s.back(mark); err != nil || s.spent() {
			return false, err
		}
	}
	return false, nil
}

// inside lists the domains of a level inside another that may hold what belongs together: the one
// with the members that are placed already, or else all of them, first the one that arithmetic has for
// the given member.
func (s *search) inside(outer planner.Domain, l planner.Level, member int, together func(planner.PlacedMember) bool) []planner.Domain {
	if l <= outer.Level {
		return []planner.Domain{outer}
	}
	for _, p := range s.demand.Placed {
		if together(p) {
			around, ok := s.cluster.Around(p.Node, l)
			if !ok || around.Lo < outer.Lo || around.Hi > outer.Hi {
				return nil
			}
			return []planner.Domain{around}
		}
	}
	domains := slices.DeleteFunc(s.cluster.DomainsAt(l), func(d planner.Domain) bool { return d.Lo < outer.Lo || d.Hi > outer.Hi })
	if node := s.planned[member]; node != planner.NoNode {
		at := slices.IndexFunc(domains, func(d planner.Domain) bool { return d.Lo <= node && node < d.Hi })
		if at > 0 {
			best := domains[at]
			copy(domains[1:], domains[:at])
			domains[0] = best
		}
	}
	return domains
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

// blocked says why arithmetic keeps a member off a node, or returns "".
func (s *search) blocked(member int, node planner.NodeID) string {
	class := &s.demand.Classes[s.demand.Members[member].Class]
	if class.Blocked != nil && class.Blocked[node] != 0 {
		return class.Causes[class.Blocked[node]-1]
	}
	for _, a := range class.Requests {
		if s.cluster.Free(node, a.Resource) < a.Value {
			return "too little " + s.cluster.ResourceName(a.Resource) + " left"
		}
	}
	return ""
}

// fail notes the member that found no place, and the reasons if no attempt came further; of two that
// came as far the later one had the larger domain.
func (s *search) fail(member int, in planner.Domain) {
	s.failed = failure{member: member, placed: len(s.placed)}
	if s.failed.placed < s.best.placed {
		return
	}
	s.best = s.failed
	s.best.causes = make([]string, s.cluster.NumNodes())
	kind := s.kinds.of[member]
	for node := in.Lo; node < in.Hi; node++ {
		cause := s.passed[node]
		if cause == "" && s.closed[kind] != nil {
			cause = s.closed[kind][node]
		}
		if cause == "" {
			cause = s.blocked(member, node)
		}
		s.best.causes[node] = cause
	}
}

// back undoes the members after the first mark of them, and forgets what was learned with them there.
func (s *search) back(mark int) error {
	for n := len(s.log); n > 0 && s.log[n-1].at > mark; n-- {
		s.closed[s.log[n-1].kind][s.log[n-1].node] = ""
		s.log = s.log[:n-1]
	}
	return s.undo(mark)
}

// lasts reports whether a node that refused a member keeps refusing it, and those like it, when more
// members have their places. Pods that attract the member, or that even out a spread, may come;
// everything else only becomes less. Of plugins that are not Kubernetes' own nothing is known.
func lasts(status *fwk.Status) bool {
	switch status.Plugin() {
	case names.InterPodAffinity:
		return status.Code() == fwk.Unschedulable // kept away, rather than not attracted
	case names.PodTopologySpread:
		return status.Code() == fwk.UnschedulableAndUnresolvable // the node has not the label
	case names.NodeResourcesFit, names.NodePorts, names.NodeName, names.NodeUnschedulable, names.NodeAffinity, names.TaintToleration,
		names.NodeDeclaredFeatures, names.NodeVolumeLimits, names.VolumeRestrictions, names.VolumeZone, names.VolumeBinding, names.DynamicResources:
		return true
	}
	return false
}

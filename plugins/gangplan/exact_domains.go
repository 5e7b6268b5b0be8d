package gangplan

import (
	"slices"

	"github.com/muster-sched/muster/podgroup/planner"
)

// memberSet and slice are the members of a set, in rank order, and their parts that belong together.
type memberSet struct {
	set    int
	slices []memberSlice
}

type memberSlice struct {
	slice   int
	members []int
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

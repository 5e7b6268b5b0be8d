package podgroup

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Arrangement is a gang divided into the sets and slices that its topology is asked for.
//
// A set is the pods made from one template: those of one replicated Job of a JobSet, else of one Job, else all
// pods of the gang, in each case only as far as their annotations agree; or all pods of one Kueue podset group.
// A slice is SliceSize consecutive ranks of a set. A rank is a pod's position in its set by its index, not by
// which pods exist, so that a slice stays the same while pods are missing and are replaced.
type Arrangement struct {
	// Gang is what the PodGroup asks for all members together.
	Gang Topology

	// Sets are what the pods ask for their sets, in the order of each set's first member. Slices that the
	// PodGroup asks for are in each set that asks for none. Empty if nothing is asked for anywhere.
	Sets []Arranged

	places map[types.UID]place
}

// Arranged is one set of a gang.
type Arranged struct {
	Topology

	// Of names who asks, as in: pod "worker-0". SlicedBy names who asks for slices, which can be the PodGroup.
	Of, SlicedBy string
}

type place struct{ set, slice int }

// Place returns the index of a member's set in Sets, and the number of its slice in there. It is 0, 0 for a gang
// without sets and for a pod that is not among the members.
func (a *Arrangement) Place(uid types.UID) (set, slice int) {
	p := a.places[uid]
	return p.set, p.slice
}

// Arrange divides a gang by what the annotations of its PodGroup and of its members ask for. The members are all
// of the gang's pods, as Membership.Members returns them; those that failed or are being deleted have no place.
// An error is a *TopologyError that names the annotation and who carries it.
func Arrange(annotations map[string]string, minMember int, members []Member) (*Arrangement, error) {
	gang, err := ParseTopology(annotations)
	if err != nil {
		return nil, blame(podGroupDescription, err)
	}
	a := &Arrangement{Gang: gang}
	asked := gang != Topology{}
	for i := range members {
		m := &members[i]
		if i > 0 && m.topology == members[i-1].topology && m.takesPart() == members[i-1].takesPart() {
			continue
		}
		topology, err := m.Topology()
		if err != nil && m.takesPart() {
			return nil, blame(describe(m), err)
		}
		asked = asked || topology != Topology{}
	}
	if !asked {
		return a, nil
	}
	sets, err := divide(members)
	if err != nil {
		return nil, err
	}
	size := gangSize{minMember: minMember, sets: len(sets), places: places(sets)}
	a.places = make(map[types.UID]place, len(members))
	for i, s := range sets {
		who := describe(s.members[0])
		set := Arranged{Topology: s.topology, Of: who, SlicedBy: who}
		if set.SliceSize == 0 && gang.SliceSize > 0 {
			set.SliceLevel, set.SliceSize, set.sizeFrom, set.SlicedBy = gang.SliceLevel, gang.SliceSize, gang.sizeFrom, podGroupDescription
		}
		a.Sets = append(a.Sets, set)
		if set.SliceSize == 0 {
			for _, m := range s.members {
				a.places[m.UID] = place{set: i}
			}
			continue
		}
		if err := a.slice(i, s, size); err != nil {
			return nil, blame(set.SlicedBy, err)
		}
	}
	return a, nil
}

// setKey tells the sets of a gang apart.
type setKey struct {
	group                       string
	jobSet, replicatedJob       string
	job                         types.UID
	required, preferred, sliced string
	sliceSize                   int
}

func setKeyOf(m *Member, t Topology) setKey {
	if t.group != "" {
		return setKey{group: t.group}
	}
	key := setKey{required: t.Required.Label, preferred: t.Preferred.Label, sliced: t.SliceLevel.Label, sliceSize: t.SliceSize}
	switch {
	case m.order.replicatedJob != "":
		key.jobSet, key.replicatedJob = m.order.jobSet, m.order.replicatedJob
	case m.Owner.Kind == "Job":
		key.job = m.Owner.UID
	}
	return key
}

// memberSet is the members of a set in rank order.
type memberSet struct {
	topology Topology
	members  []*Member
	// parallelism is how many indices each Job of a replicated Job has, as far as its pods show.
	parallelism int
}

// divide returns the sets of a gang, without members that have no place in it.
func divide(members []Member) ([]*memberSet, error) {
	var sets []*memberSet
	index := map[setKey]*memberSet{}
	for i := range members {
		m := &members[i]
		topology, _ := m.Topology()
		key := setKeyOf(m, topology)
		s, known := index[key]
		if !known {
			s = &memberSet{}
			index[key] = s
		}
		if m.order.completionIndex != absent {
			s.parallelism = max(s.parallelism, m.order.completionIndex+1)
		}
		if !m.takesPart() {
			continue
		}
		if len(s.members) == 0 {
			s.topology = topology
			sets = append(sets, s)
		}
		if !s.topology.sameLevels(topology) {
			return nil, blame(describe(m), wrong(kueueGroup, "%q has members that ask for another topology, %s for one", key.group, describe(s.members[0])))
		}
		s.members = append(s.members, m)
	}
	return sets, nil
}

// takesPart is whether a member needs a place or has one.
func (m *Member) takesPart() bool { return m.State != Gone && m.State != Failed }

// gangSize is what is known of how large a gang and its sets are.
type gangSize struct {
	minMember, sets int
	// places that members take in the gang.
	places int
}

func places(sets []*memberSet) int {
	taken := map[Identity]bool{}
	for _, s := range sets {
		for _, m := range s.members {
			taken[m.Identity] = true
		}
	}
	return len(taken)
}

// slice gives the members of a set the numbers of their slices.
func (a *Arrangement) slice(set int, s *memberSet, gang gangSize) error {
	t := &a.Sets[set].Topology
	alone := gang.sets == 1
	if alone && gang.minMember%t.SliceSize != 0 {
		return t.sliceError("does not divide spec.minMember, which is %d", gang.minMember)
	}
	parallelism := max(s.parallelism, 1)
	if jobs := s.members[0].jobs; alone && jobs > 0 && gang.minMember%jobs == 0 {
		parallelism = max(parallelism, gang.minMember/jobs)
	}
	byRank := make(map[int]*Member, len(s.members))
	for _, m := range s.members {
		rank, ok := m.rankInSet(parallelism)
		if !ok {
			return t.sliceError("makes slices by rank, and %s has no index: an Indexed Job gives it one, or a name that ends in a number", describe(m))
		}
		if other, taken := byRank[rank]; taken && other.Identity != m.Identity {
			return t.sliceError("makes slices by rank, and %s and %s have the same index %d", describe(other), describe(m), rank)
		}
		byRank[rank] = m
		a.places[m.UID] = place{set, rank / t.SliceSize}
	}
	if gang.places == gang.minMember && len(byRank)%t.SliceSize != 0 {
		return t.sliceError("does not divide the %d members of the set of %s", len(byRank), describe(s.members[0]))
	}
	return nil
}

// rankInSet returns the member's position in its set. A Job of a replicated Job has so many indices.
func (m *Member) rankInSet(parallelism int) (int, bool) {
	if m.order.replicatedJob == "" {
		return m.index, m.index >= 0
	}
	if m.order.jobIndex == absent {
		return 0, false
	}
	// A Job without indices is good for one pod; two of them are found out by having the same rank.
	return m.order.jobIndex*parallelism + max(m.index, 0), true
}

func describe(m *Member) string { return fmt.Sprintf("pod %q", m.Name) }

// blame names who carries the annotation that an error is about.
func blame(who string, err error) error {
	var e *TopologyError
	if !errors.As(err, &e) {
		return err
	}
	named := *e
	named.Of = who
	return &named
}

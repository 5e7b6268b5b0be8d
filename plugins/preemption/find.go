package preemption

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup/planner"
)

const (
	// maxBudgetRounds bounds how often victims are chosen anew because together they exceed a budget that
	// each of them respects.
	maxBudgetRounds = 4
	// maxChecks bounds how often the profile's plugins are asked which victims can stay.
	maxChecks = 512
)

// Room is what preemption makes for a gang.
type Room struct {
	// Nodes is the place of each member of the demand, planner.NoNode for one beyond the minimum without a place.
	Nodes []planner.NodeID
	// Domain names the innermost topology domain that holds the places.
	Domain string
	// Victims are to be evicted. None if the pods suffice that are on their way out.
	Victims []*Unit
	// Awaited are pods on their way out, on nodes of the plan.
	Awaited []fwk.PodInfo
	// Violations is by how many disruptions the victims exceed PodDisruptionBudgets.
	Violations int
}

// finder looks for room.
type finder struct {
	ctx    context.Context
	fw     framework.Framework
	c      *gangplan.Cluster
	d      *gangplan.Demand
	claims []gangplan.Claim
	cand   *Candidates
	*gangplan.Absence
	checks int
}

// Room is Find among the candidates for a preemptor of a priority, which own tells the pods of.
func (c *Census) Room(ctx context.Context, fw framework.Framework, d *gangplan.Demand, claims []gangplan.Claim, priority int32, own func(*corev1.Pod) bool) (*Room, error) {
	candidates, err := c.Take(priority, own)
	if err != nil {
		return nil, err
	}
	return Find(ctx, fw, c.Cluster, d, claims, candidates)
}

// Find returns how a gang gets its places that has just been refused on the snapshot as it is: by pods that
// are on their way out, or else by evicting the units that cost least. It returns nil if it would not fit even
// then; nothing must be evicted in that case.
func Find(ctx context.Context, fw framework.Framework, c *gangplan.Cluster, d *gangplan.Demand, claims []gangplan.Claim, cand *Candidates) (room *Room, err error) {
	f := &finder{ctx: ctx, fw: fw, c: c, d: d, claims: claims, cand: cand, Absence: c.BeginAbsence(fw)}
	defer func() { err = errors.Join(err, f.End()) }()
	if len(cand.Going) > 0 {
		if err := f.Remove(ctx, cand.Going); err != nil {
			return nil, err
		}
		if room, err := f.wait(); err != nil || room != nil {
			return room, err
		}
	}
	if len(cand.Units) == 0 {
		return nil, nil
	}
	victims, err := f.cheapest()
	if err != nil || victims == nil {
		return nil, err
	}
	if err := f.Show(ctx); err != nil {
		return nil, err
	}
	room, err = f.without(victims)
	if err == nil && room == nil {
		return f.byRules()
	}
	return room, err
}

// wait returns the room that there is when the pods are gone that are on their way out.
func (f *finder) wait() (*Room, error) {
	if fits, err := f.fits(); !fits || err != nil {
		return nil, err
	}
	if err := f.Show(f.ctx); err != nil {
		return nil, err
	}
	return f.plan(nil)
}

// fits reports whether arithmetic has a place for the gang as things stand.
func (f *finder) fits() (bool, error) {
	defer f.c.Hold(f.claims)()
	plan, _, err := f.c.Plan(&f.d.Demand, nil)
	return plan != nil, err
}

// cheapest returns the victims that arithmetic chooses, nil if even all of them would not do. Budgets are counted for each unit by
// itself first, and anew if the chosen ones together exceed one.
func (f *finder) cheapest() ([]int, error) {
	defer f.c.Hold(f.claims)()
	victims := f.cand.victims()
	var best []int
	fewest := 0
	for range maxBudgetRounds {
		found, _, err := f.c.Preempt(&f.d.Demand, nil, victims)
		if err != nil || found == nil {
			return best, err
		}
		each, together := 0, f.exceeded(found.Victims)
		for _, i := range found.Victims {
			each += victims[i].Violations
		}
		if best == nil || together < fewest {
			best, fewest = slices.Clone(found.Victims), together
			if best == nil {
				best = []int{} // what is in the way is no matter of arithmetic
			}
		}
		if together <= each {
			break
		}
		// The last ones exceed what the first ones leave of the budgets.
		for n, i := range found.Victims {
			victims[i].Violations = max(victims[i].Violations, f.exceeded(found.Victims[:n+1])-f.exceeded(found.Victims[:n]))
		}
	}
	return best, nil
}

func (f *finder) exceeded(units []int) int {
	members := make([][]fwk.PodInfo, len(units))
	for n, i := range units {
		members[n] = f.cand.Units[i].Members
	}
	return f.cand.budgets.exceeded(members...)
}

// without plans the gang on the cluster without the victims, with all of the profile's plugins.
func (f *finder) without(victims []int) (*Room, error) {
	for _, i := range victims {
		if err := f.Remove(f.ctx, f.cand.Units[i].Members); err != nil {
			return nil, err
		}
	}
	room, err := f.plan(victims)
	if err != nil || room != nil {
		return room, err
	}
	for _, i := range victims {
		if err := f.Restore(f.cand.Units[i].Members); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (f *finder) plan(victims []int) (*Room, error) {
	plan, _, err := gangplan.Plan(f.ctx, f.fw, f.c, f.d, f.claims)
	if err != nil || plan == nil {
		return nil, err
	}
	return f.room(slices.Clone(plan.Nodes), plan.Domain, victims), nil
}

func (f *finder) room(nodes []planner.NodeID, domain string, victims []int) *Room {
	r := &Room{Nodes: nodes, Domain: domain, Violations: f.exceeded(victims)}
	for _, i := range victims {
		r.Victims = append(r.Victims, &f.cand.Units[i])
	}
	planned := sets.New(nodes...)
	for _, info := range f.cand.Going {
		if node, known := f.c.Node(info.GetPod().Spec.NodeName); known && planned.Has(node) {
			r.Awaited = append(r.Awaited, info)
		}
	}
	return r
}

// byRules finds victims for a gang that other rules than arithmetic keep out: pods that keep it away, for
// example. The gang is planned without the candidates up to the lowest level that suffices, and as many of them are left in
// peace as the plugins accept beside it, the most important first.
func (f *finder) byRules() (*Room, error) {
	levels := f.levels()
	var room *Room
	var err error
	lowest := sort.Search(len(levels), func(n int) bool {
		if err != nil {
			return true
		}
		var found *Room
		if err = f.removeOnly(levels[:n+1]); err == nil {
			found, err = f.plan(nil)
		}
		if found != nil {
			room = found
		}
		return err != nil || found != nil
	})
	if err != nil || room == nil {
		return nil, err
	}
	if err := f.removeOnly(levels[:lowest+1]); err != nil {
		return nil, err
	}
	out := sets.New[int]()
	for _, list := range f.asked(room.Nodes, slices.Concat(levels[:lowest+1]...)) {
		if err := f.spare(room.Nodes, list, out); err != nil {
			return nil, err
		}
	}
	if f.checks > maxChecks {
		return nil, nil
	}
	return f.room(room.Nodes, room.Domain, sets.List(out)), nil
}

// levels divides the units by what their end costs: those whose end violates no budget first, and of each kind
// the lowest priorities. A core is in no lower level than its surplus.
func (f *finder) levels() [][]int {
	type cost struct {
		violates bool
		priority int32
	}
	of := make([]cost, len(f.cand.Units))
	compare := func(a, b cost) int {
		return cmp.Or(compareBools(a.violates, b.violates), cmp.Compare(a.priority, b.priority))
	}
	for i := range f.cand.Units {
		u := &f.cand.Units[i]
		of[i] = cost{u.Violations > 0, u.Priority}
		for _, surplus := range u.With {
			if c := (cost{f.cand.Units[surplus].Violations > 0, f.cand.Units[surplus].Priority}); compare(of[i], c) < 0 {
				of[i] = c
			}
		}
	}
	units := make([]int, len(of))
	for i := range units {
		units[i] = i
	}
	slices.SortStableFunc(units, func(a, b int) int { return compare(of[a], of[b]) })
	return slices.Collect(func(yield func([]int) bool) {
		for from, i := 0, 1; i <= len(units); i++ {
			if i == len(units) || of[units[i]] != of[units[from]] {
				if !yield(units[from:i]) {
					return
				}
				from = i
			}
		}
	})
}

// removeOnly removes the units of these levels and puts all others back.
func (f *finder) removeOnly(levels [][]int) error {
	removed := sets.New(slices.Concat(levels...)...)
	for i := range f.cand.Units {
		change := f.Restore
		if removed.Has(i) {
			change = func(pods []fwk.PodInfo) error { return f.Remove(f.ctx, pods) }
		}
		if err := change(f.cand.Units[i].Members); err != nil {
			return err
		}
	}
	return nil
}

// asked lists units in the order in which it is asked whether they can stay: first those that have nothing
// on the gang's nodes, and of each kind the most important first.
func (f *finder) asked(nodes []planner.NodeID, units []int) [2][]int {
	planned := sets.New(nodes...)
	leader, near := make([]int, len(f.cand.Units)), make([]bool, len(f.cand.Units))
	for i := range f.cand.Units {
		leader[i] = i
	}
	for i := range f.cand.Units {
		for _, surplus := range f.cand.Units[i].With {
			leader[surplus] = i
		}
	}
	for _, i := range units {
		near[leader[i]] = near[leader[i]] || slices.ContainsFunc(f.cand.Units[i].On, func(o planner.Occupancy) bool { return planned.Has(o.Node) })
	}
	var out [2][]int
	for _, i := range units {
		list := &out[0]
		if near[leader[i]] {
			list = &out[1]
		}
		*list = append(*list, i)
	}
	// The surplus of a gang follows its core, without which it does not stay.
	for _, list := range out {
		slices.SortFunc(list, func(a, b int) int {
			return cmp.Or(
				f.cand.Units[leader[a]].moreImportant(&f.cand.Units[leader[b]]), cmp.Compare(leader[a], leader[b]),
				compareBools(a != leader[a], b != leader[b]), cmp.Compare(a, b))
		})
	}
	return out
}

// spare puts units back beside the gang as far as the plugins accept it, many at a time, and notes the others.
func (f *finder) spare(nodes []planner.NodeID, units []int, out sets.Set[int]) error {
	units = slices.DeleteFunc(slices.Clone(units), func(i int) bool {
		// The core of the gang does not stay.
		lost := f.cand.Units[i].Surplus && f.coreOut(i, out)
		if lost {
			out.Insert(i)
		}
		return lost
	})
	if len(units) == 0 || f.checks > maxChecks {
		return nil
	}
	for _, i := range units {
		if err := f.Restore(f.cand.Units[i].Members); err != nil {
			return err
		}
	}
	f.checks++
	holds, err := gangplan.Holds(f.ctx, f.fw, f.c, f.d, nodes)
	if err != nil || holds {
		return err
	}
	for _, i := range units {
		if err := f.Remove(f.ctx, f.cand.Units[i].Members); err != nil {
			return err
		}
	}
	if len(units) == 1 {
		out.Insert(units[0])
		return nil
	}
	half := len(units) / 2
	if err := f.spare(nodes, units[:half], out); err != nil {
		return err
	}
	return f.spare(nodes, units[half:], out)
}

// coreOut reports whether the core of a surplus member's gang is among the victims.
func (f *finder) coreOut(surplus int, out sets.Set[int]) bool {
	for i := range out {
		if slices.Contains(f.cand.Units[i].With, surplus) {
			return true
		}
	}
	return false
}

// moreImportant orders units by what their end costs, the dearest first.
func (u *Unit) moreImportant(v *Unit) int {
	return cmp.Or(
		cmp.Compare(v.Violations, u.Violations),
		cmp.Compare(v.Priority, u.Priority),
		cmp.Compare(v.Pods, u.Pods),
		cmp.Compare(v.Lost, u.Lost),
	)
}

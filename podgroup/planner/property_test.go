package planner

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func checkPlan(t *rapid.T, w *world, d *Demand) {
	before := slices.Clone(w.free[w.gpu])
	p, e, err := w.Plan(d, nil)
	switch {
	case err != nil:
		t.Fatal(err)
	case (p == nil) == (e == nil):
		t.Fatalf("plan %v and explanation %v", p, e)
	case p != nil:
		if err := replay(w, d, p.Nodes); err != nil {
			t.Fatal(err)
		}
	case e.Placeable >= d.Min:
		t.Fatalf("refused with room for %d of %d", e.Placeable, d.Min)
	case e.String() == "":
		t.Fatal("no words")
	}
	if !slices.Equal(before, w.free[w.gpu]) {
		t.Fatalf("free GPUs changed from %v to %v", before, w.free[w.gpu])
	}
}

func TestEveryPlanHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 20)
		checkPlan(t, w, drawDemand(t, w, 3, 30))
	})
}

func TestEveryPlanKeepsItsConstraints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 16)
		checkPlan(t, w, drawGang(t, w, gangShape{classes: 3, sets: 3, members: 16, mixed: true, scattered: true}))
	})
}

func TestPlanIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 16)
		d := drawGang(t, w, gangShape{classes: 3, sets: 3, members: 16, mixed: true})
		p1, e1, _ := w.Plan(d, nil)

		// The same nodes told in another order, to a cluster that has seen other plans.
		again := &world{Cluster: NewCluster(w.Levels())}
		columns := map[Resource]Resource{}
		for r := len(w.resources) - 1; r >= 0; r-- {
			columns[Resource(r)] = again.Resource(w.resources[r])
		}
		again.SetNodes(rapid.Permutation(w.nodes).Draw(t, "order"))
		for id := range NodeID(w.NumNodes()) {
			var capacity, used []Amount
			for r := range w.resources {
				capacity = append(capacity, Amount{columns[Resource(r)], w.capacity[r][id]})
				used = append(used, Amount{columns[Resource(r)], w.capacity[r][id] - w.free[r][id]})
			}
			again.SetNode(id, capacity, used)
		}
		swapped := *d
		swapped.Classes = slices.Clone(d.Classes)
		for i := range swapped.Classes {
			swapped.Classes[i].Requests = nil
			for _, a := range d.Classes[i].Requests {
				swapped.Classes[i].Requests = append(swapped.Classes[i].Requests, Amount{columns[a.Resource], a.Value})
			}
		}
		_, _, _ = again.Plan(&Demand{Classes: swapped.Classes, Members: make([]Member, 3), Min: 2}, nil)
		p2, e2, _ := again.Plan(&swapped, nil)
		if (p1 == nil) != (p2 == nil) || p1 != nil && !slices.Equal(p1.Nodes, p2.Nodes) {
			t.Fatalf("plans differ: %v and %v", p1, p2)
		}
		if e1 != nil && e1.String() != e2.String() {
			t.Fatalf("explanations differ:\n%s\n%s", e1, e2)
		}
	})
}

// One class in one set is placed if and only if there is any way to place it: in slices, beside
// placed members, in any required level.
func TestOneClassIsPlacedWheneverItFits(t *testing.T) {
	found := 0
	check := func(t *rapid.T) {
		w := drawWorld(t, 6)
		d := drawGang(t, w, gangShape{classes: 1, sets: 1, members: 8, scattered: true})
		finish(t, d)
		p, e, _ := w.Plan(d, nil)
		if want := evenSlices(d) && feasible(w, d, d.Min); want != (p != nil) && evenSlices(d) {
			t.Fatalf("feasible: %v; plan %v, explanation %v", want, p, e)
		}
		if p == nil {
			return
		}
		found++
		// As many as possible of those beyond the minimum, in rank order.
		placed := 0
		for placed < len(p.Nodes) && p.Nodes[placed] != NoNode {
			placed++
		}
		if evenSlices(d) && placed < len(d.Members) && feasible(w, d, placed+1) {
			t.Fatalf("placed %d of %d members, one more fits: %v", placed, len(d.Members), p.Nodes)
		}
	}
	for range 10 {
		rapid.Check(t, check)
	}
	t.Logf("%d plans", found)
	if found < 20 { // of several hundred
		t.Errorf("only %d plans to judge", found)
	}
}

// finish takes members away, as if they had finished, so that slices of other sizes are left.
func finish(t *rapid.T, d *Demand) {
	if !rapid.Bool().Draw(t, "some finished") {
		return
	}
	d.Members = slices.DeleteFunc(d.Members, func(Member) bool {
		return len(d.Members) > 1 && rapid.IntRange(0, 3).Draw(t, "finished") == 0
	})
	d.Members = append(d.Members, Member{Slice: 99}) // never none at all
	d.Min = min(d.Min, len(d.Members))
}

// evenSlices reports whether the sizes of all slices to place that are not tied to a domain divide one
// another, which is when slices of one class are no bin packing.
func evenSlices(d *Demand) bool {
	if d.Sets[0].SliceSize == 0 {
		return true
	}
	sizes := map[int]int{}
	for _, m := range d.Members {
		sizes[m.Slice]++
	}
	for _, p := range d.Placed {
		delete(sizes, p.Slice)
	}
	for _, a := range sizes {
		for _, b := range sizes {
			if max(a, b)%min(a, b) != 0 {
				return false
			}
		}
	}
	return true
}

// More free capacity never turns a plan for one class into a refusal.
func TestMoreRoomNeverHurtsOneClass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 12)
		d := drawGang(t, w, gangShape{classes: 1, sets: 1, members: 12})
		if !evenSlices(d) || w.NumNodes() == 0 {
			return
		}
		p, _, _ := w.Plan(d, nil)
		if p == nil {
			return
		}
		before := p.Placed()
		for range rapid.IntRange(1, 4).Draw(t, "times") {
			w.Return(NodeID(rapid.IntRange(0, w.NumNodes()-1).Draw(t, "node")), []Amount{
				{w.gpu, rapid.Int64Range(1, 8).Draw(t, "gpus")}, {w.cpu, 1000}, {w.pods, 1},
			})
			p, e, _ := w.Plan(d, nil)
			if p == nil {
				t.Fatalf("refused with more room: %s", e)
			}
			if p.Placed() < before {
				t.Fatalf("placed %d with more room, %d before", p.Placed(), before)
			}
		}
	})
}

// Ranks run through the nodes in topology order, slices and members within them.
func TestRanksRunThroughNodesInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 12)
		d := drawGang(t, w, gangShape{classes: 2, sets: 2, members: 12})
		p, _, _ := w.Plan(d, nil)
		if p == nil || len(d.Placed) > 0 {
			return
		}
		last := map[[2]int]NodeID{}
		for i, m := range d.Members {
			kind := [2]int{m.Set, m.Class}
			if node, seen := last[kind]; seen && p.Nodes[i] != NoNode && p.Nodes[i] < node {
				t.Fatalf("member %d of set %d is on node %d, one before it on node %d", i, m.Set, p.Nodes[i], node)
			}
			last[kind] = max(last[kind], p.Nodes[i])
		}
	})
}

// fewest returns the smallest number of rooms that add up to need.
func fewest(rooms []int64, need int64) int {
	slices.SortFunc(rooms, func(a, b int64) int { return int(b - a) })
	n := 0
	for need > 0 {
		need -= rooms[n]
		n++
	}
	return n
}

func TestOneClassUsesTheFewestDomains(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 10)
		d := drawGang(t, w, gangShape{classes: 1, sets: 1, members: 10})
		d.Min, d.Placed, d.Sets = len(d.Members), nil, nil
		p, _, _ := w.Plan(d, nil)
		if p == nil {
			return
		}
		var all span
		var placed seats
		for _, n := range p.Nodes {
			all.add(n)
			placed = append(placed, PlacedMember{Node: n})
		}
		common := w.target(w.common(all))
		if all.lo == all.hi {
			return
		}
		slots := w.work.base[0].slots
		// No domain as low as the gang may ask for, and lower than the plan's, has room.
		from, _ := w.levelsFor(&w.work.groups[0], &target{})
		for l := from; l > common.level; l-- {
			for _, domain := range w.DomainsAt(l) {
				if domain.Lo < domain.Hi && total(slots[domain.Lo:domain.Hi]) >= int64(d.Min) && insideAll(w, domain, d.Required) {
					t.Fatalf("%s %s holds the gang, which is in %s", w.LevelName(l), w.DomainName(domain), p.Domain)
				}
			}
		}
		// Of the preferred level's domains, or else of the sub-domains, as few as can be.
		level := d.Preferred
		if level <= common.level {
			level = common.level + 1
		}
		var rooms []int64
		for n := common.lo; n < common.hi; n++ {
			if domain, ok := w.Around(n, level); !ok {
				rooms = append(rooms, slots[n])
			} else if domain.Lo == n {
				rooms = append(rooms, total(slots[domain.Lo:domain.Hi]))
			}
		}
		used := len(placed.domains(w, level, func(m PlacedMember) bool { _, ok := w.Around(m.Node, level); return ok }))
		outside := seats{}
		for _, m := range placed {
			if _, ok := w.Around(m.Node, level); !ok {
				outside = append(outside, m)
			}
		}
		used += len(outside.domains(w, w.NodeLevel(), nil))
		// Nodes outside the level can share a domain of a deeper one, which then counts once.
		if want := fewest(rooms, int64(d.Min)); used > want && len(outside) == 0 {
			t.Fatalf("uses %d domains of %s, %d would do: %v", used, w.LevelName(level), want, p.Nodes)
		}
	})
}

func total(slots []int64) int64 {
	n := int64(0)
	for _, s := range slots {
		n += s
	}
	return n
}

func insideAll(w *world, domain Domain, l Level) bool {
	_, ok := w.Around(domain.Lo, l)
	return ok
}

func TestNaturalOrderIsTotal(t *testing.T) {
	name := rapid.StringMatching(`[a-b0-1]{0,4}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := name.Draw(t, "a"), name.Draw(t, "b"), name.Draw(t, "c")
		if (compareNatural(a, b) == 0) != (a == b) || compareNatural(a, b) != -compareNatural(b, a) {
			t.Fatalf("%q and %q: %d and %d", a, b, compareNatural(a, b), compareNatural(b, a))
		}
		if compareNatural(a, b) < 0 && compareNatural(b, c) < 0 && compareNatural(a, c) >= 0 {
			t.Fatalf("%q < %q < %q, but not %q < %q", a, b, c, a, c)
		}
	})
	if compareNatural("rack-9", "rack-10") >= 0 {
		t.Error("rack-9 comes after rack-10")
	}
}

// limits is a Verifier that lets a class have only so many members on a node.
type limits struct {
	w   *world
	max map[[2]int]int // by class and node
}

func (v *limits) Verify(d *Demand, nodes []NodeID) ([]Limit, error) {
	var out []Limit
	for class := range d.Classes {
		for node := range NodeID(v.w.NumNodes()) {
			most, limited := v.max[[2]int{class, int(node)}]
			count := 0
			for i, n := range nodes {
				if n == node && d.Members[i].Class == class {
					count++
				}
			}
			if limited && count > most {
				out = append(out, Limit{Class: class, Node: node, Max: most, Cause: "full of rules"})
			}
		}
	}
	return out, nil
}

// What a Verifier refuses is never planned again, in whatever sets and slices, and one class is still
// placed whenever it fits.
func TestPlansRespectWhatWasLearned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 6)
		d := drawGang(t, w, gangShape{classes: 2, sets: 2, members: 8, mixed: true})
		v := &limits{w: w, max: map[[2]int]int{}}
		for class := range d.Classes {
			for node := range w.NumNodes() {
				if rapid.Bool().Draw(t, "limited") {
					v.max[[2]int{class, node}] = rapid.IntRange(0, 2).Draw(t, "max")
				}
			}
		}
		p, e, _ := w.Plan(d, v)
		if p != nil {
			if err := replay(w, d, p.Nodes); err != nil {
				t.Fatal(err)
			}
			if refused, _ := v.Verify(d, p.Nodes); len(refused) > 0 {
				t.Fatalf("plan %v against %v", p.Nodes, refused)
			}
			return
		}
		if e.Undecided || len(d.Classes) > 1 || len(d.Sets) > 1 || !evenSlices(d) {
			return
		}
		// The same limits told as capacity of a resource of their own.
		rule := w.Resource("example.com/rule")
		w.column(rule)
		for node := range NodeID(w.NumNodes()) {
			most, limited := v.max[[2]int{0, int(node)}]
			if !limited {
				most = 100
			}
			w.free[rule][node] = int64(most)
		}
		d.Classes[0].Requests = append(d.Classes[0].Requests, Amount{rule, 1})
		if feasible(w, d, d.Min) {
			t.Fatalf("refused what fits within the limits: %s", e)
		}
	})
}

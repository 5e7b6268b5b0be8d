package planner

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// world is a random cluster with random free GPUs and blocked nodes.
type world struct {
	*Cluster
	gpu, pods Resource
	nodes     []Node
}

func drawWorld(t *rapid.T, maxNodes int) *world {
	levels := rapid.SampledFrom([][]string{nil, {"rack"}, {"zone", "rack"}}).Draw(t, "levels")
	w := &world{Cluster: NewCluster(levels)}
	n := rapid.IntRange(0, maxNodes).Draw(t, "nodes")
	for i := range n {
		node := Node{Name: fmt.Sprintf("n%d", i)}
		for l := range levels {
			// An empty value puts the node outside the level.
			node.Domains = append(node.Domains, rapid.SampledFrom([]string{"a", "b", "c1", "c10", ""}[:3+l]).Draw(t, "domain"))
		}
		w.nodes = append(w.nodes, node)
	}
	w.SetNodes(w.nodes)
	w.gpu, w.pods = w.Resource("nvidia.com/gpu"), w.Resource("pods")
	for _, node := range w.nodes {
		id, _ := w.Node(node.Name)
		w.SetNode(id, []Amount{{w.gpu, 8}, {w.pods, 10}},
			[]Amount{{w.gpu, rapid.Int64Range(0, 9).Draw(t, "used")}, {w.pods, rapid.Int64Range(0, 10).Draw(t, "pods")}})
	}
	return w
}

func drawDemand(t *rapid.T, w *world, classes, maxMembers int) *Demand {
	d := &Demand{}
	for range rapid.IntRange(1, classes).Draw(t, "classes") {
		class := Class{Requests: []Amount{{w.gpu, rapid.Int64Range(1, 8).Draw(t, "gpus")}, {w.pods, 1}}}
		if rapid.Bool().Draw(t, "choosy") {
			class.Causes = []string{"cordoned"}
			class.Blocked = make([]uint16, w.NumNodes())
			for i := range class.Blocked {
				class.Blocked[i] = uint16(rapid.IntRange(0, 3).Draw(t, "blocked") / 3)
			}
		}
		d.Classes = append(d.Classes, class)
	}
	for range rapid.IntRange(1, maxMembers).Draw(t, "members") {
		d.Members = append(d.Members, Member{Class: rapid.IntRange(0, len(d.Classes)-1).Draw(t, "class")})
	}
	d.Min = rapid.IntRange(1, len(d.Members)).Draw(t, "min")
	if w.NumNodes() > 0 && rapid.Bool().Draw(t, "has placed") {
		d.Placed = []PlacedMember{{Node: NodeID(rapid.IntRange(0, w.NumNodes()-1).Draw(t, "placed"))}}
	}
	return d
}

// replay puts the members on their nodes one by one and reports the first that does not fit.
func replay(w *world, d *Demand, nodes []NodeID) error {
	free := make([][]int64, len(w.free))
	for r := range free {
		free[r] = slices.Clone(w.free[r])
	}
	for m, node := range nodes {
		if node == NoNode {
			continue
		}
		class := d.Classes[d.Members[m].Class]
		if class.Blocked != nil && class.Blocked[node] != 0 {
			return fmt.Errorf("member %d is on node %d, which is blocked", m, node)
		}
		for _, a := range class.Requests {
			if free[a.Resource][node] -= a.Value; free[a.Resource][node] < 0 {
				return fmt.Errorf("member %d overfills node %d with %s", m, node, w.resources[a.Resource])
			}
		}
	}
	return nil
}

// feasible searches exhaustively for places for the first k members.
func feasible(w *world, d *Demand, k int) bool {
	if k == 0 {
		return true
	}
	class := &d.Classes[d.Members[k-1].Class]
	for node := range NodeID(w.NumNodes()) {
		if class.Blocked != nil && class.Blocked[node] != 0 {
			continue
		}
		fits := true
		for _, a := range class.Requests {
			fits = fits && w.free[a.Resource][node] >= a.Value
		}
		if !fits {
			continue
		}
		w.Take(node, class.Requests)
		found := feasible(w, d, k-1)
		w.Return(node, class.Requests)
		if found {
			return true
		}
	}
	return false
}

func TestEveryPlanHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 20)
		d := drawDemand(t, w, 3, 30)
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
			if p.Placed() < d.Min || slices.Contains(p.Nodes[:d.Min], NoNode) {
				t.Fatalf("min %d, placed %v", d.Min, p.Nodes)
			}
		case e.Placeable >= d.Min:
			t.Fatalf("refused with room for %d of %d", e.Placeable, d.Min)
		case e.String() == "":
			t.Fatal("no words")
		}
	})
}

func TestPlanIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 20)
		d := drawDemand(t, w, 3, 30)
		p1, e1, _ := w.Plan(d, nil)

		// The same nodes told in another order, to a cluster that has seen other plans.
		again := &world{Cluster: NewCluster(w.Levels())}
		again.pods, again.gpu = again.Resource("pods"), again.Resource("nvidia.com/gpu")
		again.SetNodes(rapid.Permutation(w.nodes).Draw(t, "order"))
		for id := range NodeID(w.NumNodes()) {
			again.SetNode(id, []Amount{{again.gpu, w.capacity[w.gpu][id]}, {again.pods, w.capacity[w.pods][id]}},
				[]Amount{{again.gpu, w.capacity[w.gpu][id] - w.free[w.gpu][id]}, {again.pods, w.capacity[w.pods][id] - w.free[w.pods][id]}})
		}
		swapped := *d
		swapped.Classes = slices.Clone(d.Classes)
		for i := range swapped.Classes {
			swapped.Classes[i].Requests = []Amount{{again.gpu, d.Classes[i].Requests[0].Value}, {again.pods, 1}}
		}
		_, _, _ = again.Plan(&Demand{Classes: swapped.Classes, Members: []Member{{}}, Min: 1}, nil)
		p2, e2, _ := again.Plan(&swapped, nil)
		if (p1 == nil) != (p2 == nil) || p1 != nil && !slices.Equal(p1.Nodes, p2.Nodes) {
			t.Fatalf("plans differ: %v and %v", p1, p2)
		}
		if e1 != nil && e1.String() != e2.String() {
			t.Fatalf("explanations differ:\n%s\n%s", e1, e2)
		}
	})
}

func TestOneClassIsPlacedWheneverItFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 5)
		d := drawDemand(t, w, 1, 6)
		d.Min = len(d.Members)
		p, e, _ := w.Plan(d, nil)
		if want := feasible(w, d, d.Min); want != (p != nil) {
			t.Fatalf("feasible: %v; plan %v, explanation %v", want, p, e)
		}
	})
}

func TestOneClassUsesTheFewestDomains(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 8)
		d := drawDemand(t, w, 1, 8)
		d.Min, d.Placed = len(d.Members), nil
		p, _, _ := w.Plan(d, nil)
		if p == nil {
			return
		}
		// Nodes are the innermost domains: no subset with fewer nodes may hold the gang unless the
		// plan was put into a lower domain than such a subset would allow.
		used := distinct(p.Nodes)
		var all span
		for _, n := range p.Nodes {
			all.add(n)
		}
		common := w.common(all)
		lo, hi := w.domains[common].lo, w.domains[common].hi
		slots := w.work.base[0].slots
		free := slices.Clone(slots[lo:hi])
		slices.SortFunc(free, func(a, b int64) int { return int(b - a) })
		need, fewest := int64(d.Min), 0
		for _, s := range free {
			if need <= 0 {
				break
			}
			need -= s
			fewest++
		}
		if len(w.domains[common].children) == 0 && len(used) != fewest {
			t.Fatalf("uses nodes %v, %d would do", used, fewest)
		}
	})
}

func distinct(nodes []NodeID) []NodeID {
	out := slices.Clone(nodes)
	slices.Sort(out)
	return slices.Compact(out)
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

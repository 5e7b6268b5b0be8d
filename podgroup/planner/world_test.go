package planner

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"
)

// world is a random cluster with random free GPUs.
type world struct {
	*Cluster
	gpu, cpu, pods Resource
	nodes          []Node
}

func drawWorld(t *rapid.T, maxNodes int) *world {
	levels := rapid.SampledFrom([][]string{nil, {"rack"}, {"zone", "rack"}, {"zone", "block", "rack"}}).Draw(t, "levels")
	w := &world{Cluster: NewCluster(levels)}
	for i := range rapid.IntRange(0, maxNodes).Draw(t, "nodes") {
		node := Node{Name: fmt.Sprintf("n%d", i)}
		for l := range levels {
			// An empty value puts the node outside the level.
			node.Domains = append(node.Domains, rapid.SampledFrom([]string{"a", "b", "c1", "", "c10", "d"}[:3+l]).Draw(t, "domain"))
		}
		w.nodes = append(w.nodes, node)
	}
	w.SetNodes(w.nodes)
	w.gpu, w.cpu, w.pods = w.Resource("nvidia.com/gpu"), w.Resource("cpu"), w.Resource("pods")
	for _, node := range w.nodes {
		id, _ := w.Node(node.Name)
		w.SetNode(id, []Amount{{w.gpu, 8}, {w.cpu, 8000}, {w.pods, 10}}, []Amount{
			{w.gpu, rapid.Int64Range(0, 9).Draw(t, "used")}, {w.cpu, 1000 * rapid.Int64Range(0, 4).Draw(t, "used cpu")}, {w.pods, rapid.Int64Range(0, 5).Draw(t, "pods")},
		})
	}
	return w
}

func drawClasses(t *rapid.T, w *world, atMost int) []Class {
	var classes []Class
	for range rapid.IntRange(1, atMost).Draw(t, "classes") {
		class := Class{Requests: []Amount{{w.gpu, rapid.Int64Range(1, 8).Draw(t, "gpus")}, {w.pods, 1}}}
		if rapid.Bool().Draw(t, "wants cpu") {
			class.Requests = append(class.Requests, Amount{w.cpu, 500 * rapid.Int64Range(1, 8).Draw(t, "cpu")})
		}
		if rapid.Bool().Draw(t, "choosy") {
			class.Causes = []string{"cordoned"}
			class.Blocked = make([]uint16, w.NumNodes())
			for i := range class.Blocked {
				class.Blocked[i] = uint16(rapid.IntRange(0, 3).Draw(t, "blocked") / 3)
			}
		}
		if rapid.Bool().Draw(t, "scores") {
			class.Score = make([]int32, w.NumNodes())
			for i := range class.Score {
				class.Score[i] = rapid.Int32Range(-1, 1).Draw(t, "score")
			}
		}
		classes = append(classes, class)
	}
	return classes
}

// drawDemand is a gang of one set without constraints.
func drawDemand(t *rapid.T, w *world, classes, maxMembers int) *Demand {
	d := &Demand{Classes: drawClasses(t, w, classes)}
	for range rapid.IntRange(1, maxMembers).Draw(t, "members") {
		d.Members = append(d.Members, Member{Class: rapid.IntRange(0, len(d.Classes)-1).Draw(t, "class")})
	}
	d.Min = rapid.IntRange(1, len(d.Members)).Draw(t, "min")
	if w.NumNodes() > 0 && rapid.Bool().Draw(t, "has placed") {
		d.Placed = []PlacedMember{{Node: NodeID(rapid.IntRange(0, w.NumNodes()-1).Draw(t, "placed"))}}
	}
	return d
}

// gangShape says how far drawGang may go.
type gangShape struct {
	classes, sets, members int
	mixed                  bool // members of one slice may be of different classes
	scattered              bool // members may have their places anywhere, even against the constraints
}

// drawGang is a gang of sets with constraints of every kind, some members of which have their place.
func drawGang(t *rapid.T, w *world, shape gangShape) *Demand {
	level := rapid.IntRange(0, int(w.NodeLevel()))
	d := &Demand{Classes: drawClasses(t, w, shape.classes)}
	d.Required, d.Preferred = Level(level.Draw(t, "required")), Level(level.Draw(t, "preferred"))
	sets := rapid.IntRange(1, shape.sets).Draw(t, "sets")
	for s := range sets {
		set := Set{Required: Level(level.Draw(t, "set required")), Preferred: Level(level.Draw(t, "set preferred"))}
		slice := 1
		if rapid.Bool().Draw(t, "sliced") {
			slice = rapid.IntRange(1, 4).Draw(t, "slice size")
			set.SliceSize, set.SliceLevel = slice, Level(level.Draw(t, "slice level"))
		}
		d.Sets = append(d.Sets, set)
		units := rapid.IntRange(1, max(shape.members/sets/slice, 1)).Draw(t, "units")
		class := rapid.IntRange(0, len(d.Classes)-1).Draw(t, "class")
		for i := range units * slice {
			if shape.mixed || i%slice == 0 && shape.classes > 1 {
				class = rapid.IntRange(0, len(d.Classes)-1).Draw(t, "class")
			}
			d.Members = append(d.Members, Member{Class: class, Set: s, Slice: i / slice})
		}
	}
	d.Min = len(d.Members)
	if rapid.Bool().Draw(t, "has placed") && w.NumNodes() > 0 {
		settle(t, w, d, shape.scattered)
	}
	if len(d.Members) > 1 && rapid.Bool().Draw(t, "elastic") {
		d.Min = rapid.IntRange(1, len(d.Members)).Draw(t, "min")
	}
	return d
}

// settle gives some members places that they had from a plan, or scattered ones.
func settle(t *rapid.T, w *world, d *Demand, scattered bool) {
	p, _, _ := w.Plan(d, nil)
	if p == nil && !scattered {
		return
	}
	var nodes []NodeID
	if p != nil {
		nodes = slices.Clone(p.Nodes)
	}
	var waiting []Member
	for i, m := range d.Members {
		if len(waiting) == 0 && i == len(d.Members)-1 || !rapid.Bool().Draw(t, "is placed") {
			waiting = append(waiting, m)
			continue
		}
		node := NodeID(rapid.IntRange(0, w.NumNodes()-1).Draw(t, "node"))
		if nodes != nil {
			node = nodes[i]
			w.Take(node, d.Classes[m.Class].Requests)
		}
		d.Placed = append(d.Placed, PlacedMember{Node: node, Set: m.Set, Slice: m.Slice})
	}
	d.Members, d.Min = waiting, len(waiting)
}

// seats are the members that have a place, those that had one before included.
type seats []PlacedMember

// domains of a level that the members are in, of those that the filter lets pass; -1 stands for none.
func (s seats) domains(w *world, l Level, only func(PlacedMember) bool) []int {
	var out []int
	for _, p := range s {
		if only != nil && !only(p) {
			continue
		}
		at := -1
		if domain, ok := w.Around(p.Node, l); ok {
			at = int(domain.Lo)
		}
		if !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	return out
}

// together reports whether the members are in one domain of a level.
func (s seats) together(w *world, l Level, only func(PlacedMember) bool) bool {
	domains := s.domains(w, l, only)
	return l <= WholeCluster || len(domains) == 0 || len(domains) == 1 && domains[0] >= 0
}

// violation says which constraint that concerns one of the members their places break, or returns "".
func violation(w *world, d *Demand, s seats, one PlacedMember) string {
	if !s.together(w, d.Required, nil) {
		return "the gang is not in one domain"
	}
	if len(d.Sets) == 0 {
		return ""
	}
	set := d.Sets[one.Set]
	if !s.together(w, set.Required, func(p PlacedMember) bool { return p.Set == one.Set }) {
		return fmt.Sprintf("set %d is not in one domain", one.Set)
	}
	if set.SliceSize > 0 && !s.together(w, set.SliceLevel, func(p PlacedMember) bool { return p.Set == one.Set && p.Slice == one.Slice }) {
		return fmt.Sprintf("slice %d of set %d is not in one domain", one.Slice, one.Set)
	}
	return ""
}

// replay puts the members on their nodes one by one and reports the first fault.
func replay(w *world, d *Demand, nodes []NodeID) error {
	free := make([][]int64, len(w.free))
	for r := range free {
		free[r] = slices.Clone(w.free[r])
	}
	s := seats(slices.Clone(d.Placed))
	for i, node := range nodes {
		m := d.Members[i]
		if node == NoNode {
			if i < d.Min {
				return fmt.Errorf("member %d has no place, of which %d are needed", i, d.Min)
			}
			continue
		}
		class := d.Classes[m.Class]
		if class.Blocked != nil && class.Blocked[node] != 0 {
			return fmt.Errorf("member %d is on node %d, which is blocked", i, node)
		}
		for _, a := range class.Requests {
			if free[a.Resource][node] -= a.Value; free[a.Resource][node] < 0 {
				return fmt.Errorf("member %d overfills node %d with %s", i, node, w.resources[a.Resource])
			}
		}
		one := PlacedMember{Node: node, Set: m.Set, Slice: m.Slice}
		s = append(s, one)
		if v := violation(w, d, s, one); v != "" {
			return fmt.Errorf("with member %d on node %d: %s", i, node, v)
		}
	}
	for i, node := range nodes {
		for j, other := range nodes {
			if sameUnit(d, i, j) && (node == NoNode) != (other == NoNode) {
				return fmt.Errorf("slice %d is placed in part", d.Members[i].Slice)
			}
		}
	}
	return nil
}

func sameUnit(d *Demand, i, j int) bool {
	a, b := d.Members[i], d.Members[j]
	return i == j || a.Set == b.Set && a.Slice == b.Slice && a.Set < len(d.Sets) && d.Sets[a.Set].SliceSize > 0
}

// feasible searches exhaustively for places for the first k members and the rest of their slices.
func feasible(w *world, d *Demand, k int) bool {
	var members []Member
	for i, m := range d.Members {
		needed := false
		for j := range k {
			needed = needed || sameUnit(d, i, j)
		}
		if needed {
			members = append(members, m)
		}
	}
	return search(w, d, slices.Clone(d.Placed), members)
}

func search(w *world, d *Demand, s seats, members []Member) bool {
	if len(members) == 0 {
		return true
	}
	m := members[0]
	class := &d.Classes[m.Class]
	for node := range NodeID(w.NumNodes()) {
		if class.Blocked != nil && class.Blocked[node] != 0 {
			continue
		}
		fits := true
		for _, a := range class.Requests {
			fits = fits && w.free[a.Resource][node] >= a.Value
		}
		one := PlacedMember{Node: node, Set: m.Set, Slice: m.Slice}
		next := append(s, one)
		if !fits || violation(w, d, next, one) != "" {
			continue
		}
		w.Take(node, class.Requests)
		found := search(w, d, next, members[1:])
		w.Return(node, class.Requests)
		if found {
			return true
		}
	}
	return false
}

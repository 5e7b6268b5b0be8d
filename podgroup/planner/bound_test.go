package planner

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// bounded counts the demand's blocks and makes the bounds.
func bounded(c *Cluster, d *Demand) {
	l := newLearned(len(d.Classes))
	c.prepare(d)
	c.countBlocks(d, l)
	c.boundTogether(d)
}

// drawAmounts changes the requests and what is free into amounts with other divisors, from single units
// to amounts whose sums are near the largest integer.
func drawAmounts(t *rapid.T, w *world, classes []Class) {
	times := rapid.SampledFrom([]int64{1, 3, 1000, 1<<30 + 1, 1 << 50}).Draw(t, "times")
	for r := range w.resources {
		for i := range w.free[r] {
			w.free[r][i] *= times
			if rapid.Bool().Draw(t, "odd") && w.free[r][i] > 0 {
				w.free[r][i] += rapid.Int64Range(0, times-1).Draw(t, "more")
			}
		}
	}
	for i := range classes {
		for j := range classes[i].Requests {
			classes[i].Requests[j].Value *= times
		}
	}
}

// What a cluster was filled with never counts as too much, for any of the first members and in any
// domain that holds them, however odd the amounts.
func TestBoundsLetInWhatFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 12)
		d := drawGang(t, w, gangShape{classes: 4, sets: 3, members: 12, mixed: true})
		drawAmounts(t, w, d.Classes)
		p, _, _ := w.Plan(d, nil)
		if p == nil {
			return
		}
		nodes := append([]NodeID(nil), p.Nodes...)
		bounded(w.Cluster, d)
		for k := range d.Members {
			var s span
			for i, n := range nodes {
				if int(w.work.first[i]) <= k && n != NoNode {
					s.add(n)
				}
			}
			if nodes[k] == NoNode {
				continue
			}
			for i := w.common(s); i >= 0; i = w.domains[i].parent {
				if in := w.target(i); !w.mayHold(&in, k+1) {
					t.Fatalf("%s is refused to the first %d of members on %v", w.domains[i].title, k+1, nodes)
				}
			}
		}
	})
}

func TestBoundsLetInWhatFillsTheNodes(t *testing.T) {
	judged := 0
	check := func(t *rapid.T) {
		w := drawWorld(t, 8)
		d := drawTight(t, w, 40)
		if len(d.Members) == 0 {
			return
		}
		drawAmounts(t, w, d.Classes)
		bounded(w.Cluster, d)
		judged += len(w.work.bounds)
		root := w.target(0)
		if !w.mayHold(&root, d.Min) || w.atMost(&root, d.Min) != d.Min {
			t.Fatalf("refused %d members that fill the nodes: %v", d.Min, w.work.bounds)
		}
	}
	for range 10 {
		rapid.Check(t, check)
	}
	if t.Logf("%d bounds", judged); judged < 100 { // of more than a thousand
		t.Errorf("only %d bounds to judge", judged)
	}
}

// So does what fills nodes with amounts that have no divisor and are too large for a table.
func TestBoundsLetInAmountsWithoutDivisor(t *testing.T) {
	judged := 0
	check := func(t *rapid.T) {
		c := NewCluster(nil)
		c.SetNodes([]Node{{Name: "a"}, {Name: "b"}, {Name: "c"}})
		memory := c.Resource("memory")
		d := &Demand{}
		for range rapid.IntRange(2, 4).Draw(t, "classes") {
			d.Classes = append(d.Classes, Class{Requests: []Amount{{memory, rapid.Int64Range(1000, 9999).Draw(t, "request")}}})
		}
		for id := range NodeID(3) {
			used := int64(0)
			for range rapid.IntRange(1, 5).Draw(t, "members") {
				m := Member{Class: rapid.IntRange(0, len(d.Classes)-1).Draw(t, "class")}
				d.Members = append(d.Members, m)
				used += d.Classes[m.Class].Requests[0].Value
			}
			c.SetNode(id, []Amount{{memory, used}}, nil)
		}
		d.Min = len(d.Members)
		bounded(c, d)
		judged += len(c.work.bounds)
		if whole := c.target(0); !c.mayHold(&whole, d.Min) {
			t.Fatalf("refused %+v", d)
		}
	}
	for range 10 {
		rapid.Check(t, check)
	}
	if judged < 100 {
		t.Errorf("only %d bounds to judge", judged)
	}
}

// A slice weighs what all its members weigh as soon as its first one counts; slices that are tied to a
// domain weigh nothing, since the slots of their classes are not counted.
func TestBoundsWeighSlices(t *testing.T) {
	c := testCluster(t, nil, racks("r", 1, 1)...)
	rack, _ := c.Level("rack")
	d := gang(c, 4, 2, 1, 1)
	d.Sets = []Set{{SliceSize: 2, SliceLevel: rack}, {}}
	copy(d.Members, []Member{{0, 0, 0}, {1, 0, 1}, {2, 0, 1}, {2, 1, 0}})
	d.Placed = []PlacedMember{{Node: 0, Slice: 0}}
	bounded(c, d)
	if len(c.work.bounds) == 0 {
		t.Fatal("no bounds")
	}
	if got, want := c.work.bounds[0].needs, []int64{0, 0, 3, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("weights of the first members %v, want %v", got, want)
	}
	if whole := c.target(0); !c.mayHold(&whole, d.Min) {
		t.Error("refused what fits")
	}
}

// What the bounds refuse fits in no way at all.
func TestBoundsRefuseOnlyWhatDoesNotFit(t *testing.T) {
	refused := 0
	for seed := range 3000 {
		rapid.Custom(func(t *rapid.T) int {
			w := drawWorld(t, 4)
			d := drawGang(t, w, gangShape{classes: 3, sets: 2, members: 8, mixed: true})
			d.Min, d.Required = len(d.Members), WholeCluster
			bounded(w.Cluster, d)
			if root := w.target(0); !w.mayHold(&root, d.Min) {
				refused++
				if feasible(w, d, d.Min) {
					panic(fmt.Sprintf("refused what fits: %+v", d))
				}
			}
			return 0
		}).Example(seed)
	}
	if t.Logf("%d refused", refused); refused < 100 {
		t.Errorf("only %d refusals to judge", refused)
	}
}

// Bounds see what the sums of free GPUs do not: that a member leaves too little for another class.
func TestBoundsSeeWhatMembersLeaveBehind(t *testing.T) {
	for _, tc := range []struct {
		name  string
		used  map[string]int64 // of two nodes with 8 GPUs
		gang  []int64
		holds bool
	}{
		{"5 leaves no 4", nil, []int64{5, 5, 4}, false},
		{"5 leaves a 3", nil, []int64{5, 5, 3, 3}, true},
		{"5 leaves one 3", nil, []int64{5, 5, 3, 3, 3}, false},
		{"pieces of 3 are of no use to 8, 4 and 2", map[string]int64{"r0/n0": 5, "r0/n1": 1}, []int64{4, 4}, false},
		{"two of 6 and 2 twice", nil, []int64{6, 6, 2, 2}, true},
		{"6 and 4 are more than a node", nil, []int64{6, 4, 4, 4}, false},
		{"7 beside 1", nil, []int64{7, 7, 1, 1}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := testCluster(t, tc.used, racks("r", 1, 2)...)
			d := gang(c, tc.gang...)
			bounded(c, d)
			whole := c.target(0)
			holds := c.mayHold(&whole, d.Min)
			for i := range c.work.blocks { // each class by itself
				b := &c.work.blocks[i]
				b.units = b.size
			}
			c.setUnits(d, d.Min)
			for i := range c.work.blocks {
				b := &c.work.blocks[i]
				holds = holds && c.room(c.work.base[b.tally:b.tally+1], b, &whole) >= b.units
			}
			if holds != tc.holds {
				t.Errorf("holds %v, want %v", holds, tc.holds)
			}
		})
	}
}

// A refusal of a gang of two classes packs nothing that a bound refuses.
func TestBoundsSparePacking(t *testing.T) {
	c := benchCluster(1024)
	rack, _ := c.Level("rack")
	d := &Demand{Classes: []Class{benchClass(c, 5), benchClass(c, 4)}, Required: rack, Min: 22}
	for i := range d.Min {
		d.Members = append(d.Members, Member{Class: min(i/10, 1)})
	}
	bounded(c, d)
	c.dropHopeless(d.Min)
	c.setUnits(d, d.Min)
	root := c.target(0)
	c.appendTargets(d, rack, &c.work.groups[0], &root, c.work.order)
	if len(c.work.targets) != 64 {
		t.Fatalf("%d racks have room for each class alone, want all 64", len(c.work.targets))
	}
	if c.dropHopeless(d.Min); len(c.work.targets) > 0 {
		t.Errorf("%d racks are left to pack", len(c.work.targets))
	}
	first := c.target(c.byLevel[rack][0])
	if n := c.atMost(&first, d.Min); n != 18 {
		t.Errorf("%d may be in a rack, want 18", n)
	}
	if _, e, _ := c.Plan(d, nil); e == nil || e.Placeable != 18 {
		t.Errorf("explanation %v, want room for 18: ten of 5 GPUs, and 8 of 4", e)
	}
}

// Amounts near the largest integer are added up without overflow.
func TestHugeAmountsAreNotRefused(t *testing.T) {
	const huge = math.MaxInt64 / 2
	c := NewCluster(nil)
	c.SetNodes([]Node{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}})
	gpu := c.Resource("nvidia.com/gpu")
	for id := range NodeID(4) {
		c.SetNode(id, []Amount{{gpu, huge}}, nil)
	}
	d := &Demand{Min: 3, Members: []Member{{}, {Class: 1}, {Class: 1}}, Classes: []Class{
		{Requests: []Amount{{gpu, huge - 1}}}, {Requests: []Amount{{gpu, huge}}},
	}}
	if p, e, _ := c.Plan(d, nil); p == nil {
		t.Error(e)
	}
	// The nodes at the end count although the sum of the first ones is as large as can be.
	for id := range NodeID(2) {
		c.SetNode(id, []Amount{{gpu, math.MaxInt64}}, nil)
	}
	small := &Demand{Required: c.NodeLevel(), Min: 2, Members: []Member{{}, {Class: 1}}, Classes: []Class{
		{Requests: []Amount{{gpu, 1}}, Blocked: []uint16{1, 1, 0, 0}, Causes: []string{"cordoned"}},
		{Requests: []Amount{{gpu, 2}}, Blocked: []uint16{1, 1, 0, 0}, Causes: []string{"cordoned"}},
	}}
	if p, e, _ := c.Plan(small, nil); p == nil || p.Nodes[0] != p.Nodes[1] {
		t.Errorf("plan %v, want both on one node; %v", p, e)
	}
}

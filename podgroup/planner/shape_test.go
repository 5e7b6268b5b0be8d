package planner

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestShapePrefersBlocksOfTheRequestsSize(t *testing.T) {
	for _, tc := range []struct {
		name    string
		request int64
		order   []int64 // free devices, from best to worst
	}{
		{"one device breaks the smallest block", 1, []int64{1, 2, 4, 8}},
		{"two devices are a block of their own", 2, []int64{2, 4, 8}},
		{"two devices leave a single one alone", 2, []int64{6, 5, 8}},
		{"four devices do not break a whole node", 4, []int64{4, 8}},
		{"three devices are one of two and one of one", 3, []int64{3, 4, 8}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for i := 1; i < len(tc.order); i++ {
				better, worse := tc.order[i-1], tc.order[i]
				if ShapeScore(better, 8, tc.request) <= ShapeScore(worse, 8, tc.request) {
					t.Errorf("a request for %d scores %d with %d free and %d with %d free", tc.request,
						ShapeScore(better, 8, tc.request), better, ShapeScore(worse, 8, tc.request), worse)
				}
			}
		})
	}
}

func TestShapeOfExactBlocks(t *testing.T) {
	// Whatever larger blocks are there besides, a request that has its own block costs the same.
	for _, request := range []int64{1, 2, 4, 8} {
		exact := ShapeCost(request, 16, request)
		for free := request; free < 16; free++ {
			cost := ShapeCost(free, 16, request)
			if has := free&request != 0; has != (cost == exact) || cost < exact {
				t.Errorf("request %d of %d: cost %d, exact %d", request, free, cost, exact)
			}
		}
	}
	if whole, broken := ShapeCost(6, 6, 2), ShapeCost(6, 8, 2); whole <= broken {
		t.Errorf("breaking a whole node of 6 costs %d, of 8 with 2 taken %d", whole, broken)
	}
}

func TestShapeIsDefinedForAllAmounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.OneOf(rapid.Int64Range(-2, 20), rapid.Int64())
		free, capacity, request := amount.Draw(t, "free"), amount.Draw(t, "capacity"), amount.Draw(t, "request")
		cost := ShapeCost(free, capacity, request)
		if score := ShapeScore(free, capacity, request); cost < 0 || score > 0 {
			t.Fatalf("cost %d, score %d", cost, score)
		}
		if 0 < request && request <= free && cost < request {
			t.Fatalf("a request for %d of %d costs %d", request, free, cost)
		}
	})
	if ShapeCost(math.MaxInt64, math.MaxInt64, math.MaxInt64) != math.MaxInt64 {
		t.Error("cost of everything overflows")
	}
}

// The choice by shape follows the gradient of the published measure: among the nodes of every pair,
// the one it prefers leaves no more devices unallocatable for a mix of all powers of two.
func TestShapeAgreesWithFragmentationGradient(t *testing.T) {
	mix := Mix{{1, 0.25}, {2, 0.25}, {4, 0.25}, {8, 0.25}}
	agree, total := 0, 0
	for _, request := range []int64{1, 2, 4, 8} {
		gradient := func(free int64) float64 { return mix.Unallocatable(free-request) - mix.Unallocatable(free) }
		for a := request; a <= 8; a++ {
			for b := a + 1; b <= 8; b++ {
				byShape := cmp.Compare(ShapeCost(a, 8, request), ShapeCost(b, 8, request))
				byGradient := cmp.Compare(gradient(a), gradient(b))
				if byShape != 0 && byGradient != 0 {
					total++
					if byShape == byGradient {
						agree++
					}
				}
			}
		}
	}
	t.Logf("%d of %d choices agree", agree, total)
	if agree*4 < total*3 {
		t.Errorf("only %d of %d choices agree", agree, total)
	}
}

// fleet is a number of nodes of 8 devices that requests come to and leave.
type fleet struct {
	free []int64
	mix  Mix
}

// place puts a request on the best node by a score, higher first, and reports whether one had room.
func (f *fleet) place(request int64, score func(free, capacity, request int64) int64) (int, bool) {
	best := -1
	for i, free := range f.free {
		if free >= request && (best < 0 || score(free, 8, request) > score(f.free[best], 8, request)) {
			best = i
		}
	}
	if best < 0 {
		return 0, false
	}
	f.free[best] -= request
	return best, true
}

func (f *fleet) unallocatable() (share float64) {
	free, lost := int64(0), 0.0
	for _, n := range f.free {
		free += n
		lost += f.mix.Unallocatable(n)
	}
	if free == 0 {
		return 0
	}
	return lost / float64(free)
}

// simulate lets pods come and go in 10,000 steps and returns the mean share of the free devices that
// a request could not have, and how many requests found no node. Pods leave while more than most
// devices are in use.
func simulate(seed uint64, most int64, score func(free, capacity, request int64) int64) (share float64, refused int) {
	f := &fleet{free: slices.Repeat([]int64{8}, 100), mix: Mix{{1, 0.4}, {2, 0.2}, {4, 0.2}, {8, 0.2}}}
	random := seed
	next := func(n int) int { // xorshift: the same numbers everywhere
		random ^= random << 13
		random ^= random >> 7
		random ^= random << 17
		return int(random % uint64(n))
	}
	type pod struct {
		node    int
		request int64
	}
	var pods []pod
	busy := int64(0)
	const steps = 10000
	for range steps {
		request := []int64{1, 1, 2, 4, 8}[next(5)]
		if node, ok := f.place(request, score); ok {
			pods = append(pods, pod{node, request})
			busy += request
		} else {
			refused++
		}
		for busy > most {
			i := next(len(pods))
			f.free[pods[i].node] += pods[i].request
			busy -= pods[i].request
			pods[i] = pods[len(pods)-1]
			pods = pods[:len(pods)-1]
		}
		share += f.unallocatable() / steps
	}
	return share, refused
}

// mostAllocated is what NodeResourcesFit's scoring of that name computes for one resource.
func mostAllocated(free, capacity, request int64) int64 {
	return (capacity - free + request) * 100 / capacity
}

func leastAllocated(free, capacity, request int64) int64 { return (free - request) * 100 / capacity }

// Where the cluster has room the two choices are alike; they differ where it is nearly full.
func TestShapeKeepsNodesWholeOverTime(t *testing.T) {
	const seeds, most = 8, 760 // of 800 devices
	mean := func(name string, score func(free, capacity, request int64) int64) float64 {
		share, refused := 0.0, 0
		for seed := range uint64(seeds) {
			s, r := simulate((seed+1)*7919, most, score)
			share, refused = share+s/seeds, refused+r
		}
		t.Logf("%-15s %.4f of the free devices unallocatable, %d of %d requests refused", name, share, refused, seeds*10000)
		return share
	}
	ours, packed := mean("shape", ShapeScore), mean("most allocated", mostAllocated)
	mean("least allocated", leastAllocated)
	if ours > packed {
		t.Errorf("%.4f unallocatable, most allocated leaves %.4f", ours, packed)
	}
}

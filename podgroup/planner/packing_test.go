package planner

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Classes whose requests are multiples of one another are placed if and only if there is any way,
// where one resource decides and all may use the same nodes (Coffman, Garey, Johnson 1987: packing
// in falling order is exact for divisible sizes). Whatever larger members were put where, the room
// for smaller ones is the same.
func TestDivisibleClassesArePlacedWheneverTheyFit(t *testing.T) {
	found, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 4)
		for id := range NodeID(w.NumNodes()) {
			w.free[w.pods][id] = 100
		}
		d := &Demand{Required: Level(rapid.IntRange(0, int(w.NodeLevel())).Draw(t, "required"))}
		for _, gpus := range rapid.SampledFrom([][]int64{{8, 4, 2, 1}, {6, 3, 1}, {8, 2}, {4, 2, 1}, {6, 2}}).Draw(t, "chain") {
			d.Classes = append(d.Classes, Class{Requests: []Amount{{w.gpu, gpus}, {w.pods, 1}}})
		}
		for range rapid.IntRange(1, 8).Draw(t, "members") {
			d.Members = append(d.Members, Member{Class: rapid.IntRange(0, len(d.Classes)-1).Draw(t, "class")})
		}
		d.Min = len(d.Members)
		p, e, _ := w.Plan(d, nil)
		if want := feasible(w, d, d.Min); want != (p != nil) {
			t.Fatalf("feasible: %v; plan %v, explanation %v", want, p, e)
		}
		if p != nil {
			found++
		} else {
			refused++
		}
	})
	t.Logf("%d placed, %d refused", found, refused)
}

// General mixes of classes are a bin packing in several dimensions; the planner tries a few orders.
// This is how often it finds a plan where there is one, in clusters that are just large enough.
func TestMixedClassesAreMostlyPlacedWhenTheyFit(t *testing.T) {
	for _, tc := range []struct {
		name  string
		draw  func(*rapid.T, *world) *Demand
		tries int
		floor float64
	}{
		{"classes", func(t *rapid.T, w *world) *Demand { return drawTight(t, w, 9) }, 3000, 0.98},
		{"sets and slices", func(t *rapid.T, w *world) *Demand {
			return drawGang(t, w, gangShape{classes: 3, sets: 3, members: 8, mixed: true})
		}, 6000, 0.98},
	} {
		feasibles, found := 0, 0
		for seed := range tc.tries {
			fits, plan := false, false
			rapid.Custom(func(t *rapid.T) int {
				w := drawWorld(t, 5)
				d := tc.draw(t, w)
				fits = mixed(d) && feasible(w, d, d.Min)
				if fits {
					p, _, _ := w.Plan(d, nil)
					plan = p != nil
				}
				return 0
			}).Example(seed)
			if fits {
				feasibles++
				if plan {
					found++
				}
			}
		}
		rate := float64(found) / float64(max(feasibles, 1))
		t.Logf("%s: found %d of %d plans there are: %.4f", tc.name, found, feasibles, rate)
		if feasibles < 100 || rate < tc.floor {
			t.Errorf("%s: found %.4f of %d, want %.2f", tc.name, rate, feasibles, tc.floor)
		}
	}
}

// drawTight draws a gang that just fits: it fills the nodes at random and takes what it filled them
// with for the demand.
func drawTight(t *rapid.T, w *world, maxMembers int) *Demand {
	d := &Demand{Classes: drawClasses(t, w, 4)}
	free := make([][]int64, len(w.free))
	for r := range free {
		free[r] = slices.Clone(w.free[r])
	}
	for node := range w.NumNodes() {
		for range 4 {
			m := Member{Class: rapid.IntRange(0, len(d.Classes)-1).Draw(t, "class")}
			fits := len(d.Members) < maxMembers && (d.Classes[m.Class].Blocked == nil || d.Classes[m.Class].Blocked[node] == 0)
			for _, a := range d.Classes[m.Class].Requests {
				fits = fits && free[a.Resource][node] >= a.Value
			}
			if !fits {
				continue
			}
			for _, a := range d.Classes[m.Class].Requests {
				free[a.Resource][node] -= a.Value
			}
			d.Members = append(d.Members, m)
		}
	}
	d.Min = len(d.Members)
	return d
}

// mixed reports whether several classes take part, so that there is something to decide.
func mixed(d *Demand) bool {
	classes := map[int]bool{}
	for _, m := range d.Members[:d.Min] {
		classes[m.Class] = true
	}
	return len(classes) > 1
}

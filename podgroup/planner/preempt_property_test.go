package planner

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawVictims fills a world without pods with victims: pods, gangs of up to three nodes, and gangs with a
// surplus, beside pods that stay.
func drawVictims(t *rapid.T, w *world, least, most int) []Victim {
	for node := range NodeID(w.NumNodes()) {
		w.SetNode(node, []Amount{{w.gpu, 8}, {w.cpu, 8000}, {w.pods, 10}}, []Amount{{w.gpu, rapid.Int64Range(0, 8).Draw(t, "kept") / 4 * 2}})
	}
	if w.NumNodes() == 0 {
		return nil
	}
	var victims []Victim
	for range rapid.IntRange(least, most).Draw(t, "victims") {
		v := Victim{
			Tenant:   Tenant{Name: fmt.Sprint("ns/", len(victims))},
			Priority: rapid.Int32Range(0, 2).Draw(t, "priority"),
			Lost:     rapid.Int64Range(0, 3).Draw(t, "lost"),
		}
		if rapid.IntRange(0, 3).Draw(t, "violates") == 0 {
			v.Violations = rapid.IntRange(1, 2).Draw(t, "violations")
		}
		for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "span") {
			node := NodeID(rapid.IntRange(0, w.NumNodes()-1).Draw(t, "node"))
			gpus := min(rapid.Int64Range(0, 8).Draw(t, "gpus"), max(w.Free(node, w.gpu), 0))
			if slices.ContainsFunc(v.On, func(o Occupancy) bool { return o.Node == node }) {
				continue
			}
			used := []Amount{{w.gpu, gpus}, {w.cpu, 500 * rapid.Int64Range(0, 3).Draw(t, "cpu")}, {w.pods, 1}}
			w.Take(node, used)
			v.On = append(v.On, Occupancy{node, used})
			v.Pods++
		}
		if n := len(victims); n > 0 && rapid.IntRange(0, 4).Draw(t, "core") == 0 {
			v.With = []int{n - 1}
		}
		victims = append(victims, v)
	}
	return victims
}

// closed reports whether a set of victims has all those who must go with any of it.
func closed(victims []Victim, set uint) bool {
	for i := range victims {
		for _, j := range victims[i].With {
			if set&(1<<i) != 0 && set&(1<<j) == 0 {
				return false
			}
		}
	}
	return true
}

func forEach(w *world, victims []Victim, set uint, by func(NodeID, []Amount)) {
	for s := set; s != 0; s &= s - 1 {
		for _, at := range victims[bits.TrailingZeros(s)].On {
			by(at.Node, at.Used)
		}
	}
}

func lossOf(victims []Victim, set uint) loss {
	l := noLoss
	for s := set; s != 0; s &= s - 1 {
		l.add(&victims[bits.TrailingZeros(s)])
	}
	return l
}

// fitsWithout reports whether Plan places the gang once some victims are gone.
func fitsWithout(w *world, d *Demand, v Verifier, victims []Victim, set uint) bool {
	forEach(w, victims, set, w.Return)
	p, _, _ := w.Plan(d, v)
	forEach(w, victims, set, w.Take)
	return p != nil
}

// cheapest searches all sets of victims for the least loss.
func cheapest(w *world, d *Demand, victims []Victim) (least loss, found bool) {
	for set := range uint(1) << len(victims) {
		l := lossOf(victims, set)
		if closed(victims, set) && (!found || compareLosses(&l, &least) < 0) && fitsWithout(w, d, nil, victims, set) {
			least, found = l, true
		}
	}
	return least, found
}

func setOf(victims []int) uint {
	set := uint(0)
	for _, i := range victims {
		set |= 1 << i
	}
	return set
}

// checkPreemption checks what must hold of every preemption, and returns the victims.
func checkPreemption(t *rapid.T, w *world, d *Demand, victims []Victim) (uint, bool) {
	before := fmt.Sprint(w.free)
	p, e, err := w.Preempt(d, nil, victims)
	if err != nil || (p == nil) == (e == nil) {
		t.Fatalf("preemption %v, explanation %v, error %v", p, e, err)
	}
	if after := fmt.Sprint(w.free); after != before {
		t.Fatalf("capacity changed from %s to %s", before, after)
	}
	if p == nil {
		if e.String() == "" {
			t.Fatal("no words")
		}
		return 0, false
	}
	set := setOf(p.Victims)
	if !slices.IsSorted(p.Victims) || bits.OnesCount(set) != len(p.Victims) || !closed(victims, set) {
		t.Fatalf("victims %v", p.Victims)
	}
	forEach(w, victims, set, w.Return)
	if err := replay(w, d, p.Plan.Nodes); err != nil {
		t.Fatalf("without %v: %v", p.Victims, err)
	}
	forEach(w, victims, set, w.Take)
	for i := range victims {
		if rest := set &^ (1 << i); rest != set && closed(victims, rest) && fitsWithout(w, d, nil, victims, rest) {
			t.Fatalf("of the victims %v %d can stay", p.Victims, i)
		}
	}
	return set, true
}

// A gang fits once its victims are gone, all that must go with them go, none of them can stay, and the
// cluster is as before.
func TestEveryPreemptionHolds(t *testing.T) {
	preempted := 0
	check := func(t *rapid.T) {
		w := drawWorld(t, 10)
		victims := drawVictims(t, w, 0, 12)
		if set, found := checkPreemption(t, w, drawGang(t, w, gangShape{classes: 3, sets: 3, members: 12, mixed: true}), victims); found && set != 0 {
			preempted++
		}
	}
	for range 10 {
		rapid.Check(t, check)
	}
	t.Logf("%d preemptions", preempted)
	if preempted < 50 { // of about 200
		t.Errorf("only %d preemptions to judge", preempted)
	}
}

// fullWorld is a cluster of two racks full of pods and gangs that may go, with one, two, four or eight GPUs on a node.
func fullWorld(r *rand.Rand, nodes, most int) (*world, []Victim) {
	w := &world{Cluster: NewCluster([]string{"rack"})}
	for i := range nodes {
		w.nodes = append(w.nodes, Node{Name: fmt.Sprint("n", i), Domains: []string{fmt.Sprint("r", i*2/nodes)}})
	}
	w.SetNodes(w.nodes)
	w.gpu, w.cpu, w.pods = w.Resource("nvidia.com/gpu"), w.Resource("cpu"), w.Resource("pods")
	for id := range NodeID(nodes) {
		w.SetNode(id, []Amount{{w.gpu, 8}, {w.cpu, 16000}, {w.pods, 20}}, []Amount{{w.gpu, int64(r.IntN(3))}})
	}
	var victims []Victim
	for len(victims) < most {
		v := Victim{Tenant: Tenant{Name: fmt.Sprint("ns/", len(victims))}, Priority: int32(r.IntN(2)), Lost: int64(r.IntN(20))}
		if r.IntN(6) == 0 {
			v.Violations = 1
		}
		gpus := int64(1) << r.IntN(4)
		for _, node := range r.Perm(nodes)[:1+max(r.IntN(5)-2, 0)] {
			if w.Free(NodeID(node), w.gpu) < gpus {
				continue
			}
			used := []Amount{{w.gpu, gpus}, {w.cpu, 1000 * int64(r.IntN(4))}, {w.pods, 1}}
			w.Take(NodeID(node), used)
			v.On = append(v.On, Occupancy{NodeID(node), used})
			v.Pods++
		}
		if n := len(victims); n > 0 && r.IntN(8) == 0 {
			v.With = []int{n - 1}
		}
		victims = append(victims, v)
	}
	return w, victims
}

// fullGang is a gang that needs a good part of a full world.
func fullGang(r *rand.Rand, w *world, classes int) *Demand {
	d := &Demand{Required: Level(r.IntN(2))}
	for range classes {
		d.Classes = append(d.Classes, Class{Requests: []Amount{{w.gpu, []int64{1, 2, 3, 4, 5, 8}[r.IntN(6)]}, {w.cpu, int64(500 * r.IntN(8))}, {w.pods, 1}}})
		if k := &d.Classes[len(d.Classes)-1]; k.Requests[1].Value == 0 {
			k.Requests = slices.Delete(k.Requests, 1, 2)
		}
	}
	set := Set{}
	if r.IntN(3) == 0 {
		set = Set{SliceSize: 2 + r.IntN(2), SliceLevel: Level(1 + r.IntN(2))}
	}
	d.Sets = []Set{set}
	if classes > 1 && r.IntN(2) == 0 {
		d.Sets = append(d.Sets, Set{Required: Level(1 + r.IntN(2))})
	}
	for i := range 2 + r.IntN(5) {
		d.Members = append(d.Members, Member{Class: r.IntN(classes), Slice: i / max(set.SliceSize, 1)})
		if len(d.Sets) > 1 && i > 2 {
			d.Members[i].Set = 1
		}
	}
	d.Min = len(d.Members)
	return d
}

// What a preemption costs does not depend on the order in which the victims are told, nor on what was asked
// before; with the same order it is the same one.
func TestPreemptionsDoNotDependOnOrderOrHistory(t *testing.T) {
	for seed := range uint64(150) {
		draw := func() (*world, []Victim, *Demand) {
			r := rand.New(rand.NewPCG(seed, 2))
			w, victims := fullWorld(r, 8, 14)
			for i := range victims {
				victims[i].With = nil
				victims[i].Lost = int64(1) << i // no two sets of victims lose the same
			}
			return w, victims, fullGang(r, w, 1)
		}
		w, victims, d := draw()
		first, _, _ := w.Preempt(d, nil, victims)
		again, _, _ := w.Preempt(d, nil, victims)
		if fmt.Sprint(first) != fmt.Sprint(again) {
			t.Fatalf("seed %d: %v and then %v", seed, first, again)
		}
		w2, shuffled, d := draw()
		_, _, _ = w2.Preempt(fullGang(rand.New(rand.NewPCG(seed, 3)), w2, 3), nil, shuffled)
		rand.New(rand.NewPCG(seed, 4)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		other, _, _ := w2.Preempt(d, nil, shuffled)
		if (first == nil) != (other == nil) {
			t.Fatalf("seed %d: %v, and in another order %v", seed, first, other)
		}
		if first == nil {
			continue
		}
		a, b := lossOf(victims, setOf(first.Victims)), lossOf(shuffled, setOf(other.Victims))
		if a != b || !slices.Equal(first.Plan.Nodes, other.Plan.Nodes) {
			t.Fatalf("seed %d: %v costs %v, and in another order %v", seed, first.Plan, a, b)
		}
	}
}

// How often a preemption is found where there is one, and how often it is the best there is.
func TestPreemptionsAreMostlyTheBest(t *testing.T) {
	for _, tc := range []struct {
		name        string
		classes     int
		tries       int
		found, best float64
	}{
		{"one class", 1, 1200, 1, 0.96},
		{"several classes", 3, 1200, 0.98, 0.88},
	} {
		possible, found, best := 0, 0, 0
		worse := map[string]int{}
		for seed := range tc.tries {
			r := rand.New(rand.NewPCG(uint64(seed), 1))
			w, victims := fullWorld(r, 6, 10)
			d := fullGang(r, w, tc.classes)
			least, some := cheapest(w, d, victims)
			if !some || least == noLoss {
				continue
			}
			possible++
			p, _, _ := w.Preempt(d, nil, victims)
			if p == nil {
				continue
			}
			found++
			switch l := lossOf(victims, setOf(p.Victims)); {
			case compareLosses(&l, &least) < 0:
				t.Fatalf("%v is better than the best, %v", l, least)
			case l.violations > least.violations:
				worse["violations"]++
			case l.priority > least.priority:
				worse["priority"]++
			case l.pods > least.pods:
				worse["pods"]++
			case l.lost > least.lost:
				worse["lost"]++
			default:
				best++
			}
		}
		t.Logf("%s: %d of %d found, %d the best, the others worse in %v", tc.name, found, possible, best, worse)
		if n := float64(possible); n < 200 || float64(found) < tc.found*n || float64(best) < tc.best*n {
			t.Errorf("%s: want %.2f found and %.2f the best", tc.name, tc.found, tc.best)
		}
	}
}

package planner

import (
	"fmt"
	"testing"
)

// bytesReader turns fuzzed bytes into small choices; past the end everything is 0.
type bytesReader []byte

func (r *bytesReader) next(n int) int {
	if len(*r) == 0 || n <= 0 {
		return 0
	}
	b := (*r)[0]
	*r = (*r)[1:]
	return int(b) % n
}

func (r *bytesReader) amount() int64 {
	switch r.next(8) {
	case 0:
		return -int64(r.next(100))
	case 1:
		return 1<<62 + int64(r.next(256))<<54
	}
	return int64(r.next(17))
}

// FuzzPlan plans whatever the bytes describe: it must neither panic nor break a constraint nor change
// the capacity.
func FuzzPlan(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x02\x0c0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))
	f.Add([]byte("\x03\x14\x01\x00\x02\x01\x01\x00\x00\x05\x07\x03\x02\x06\x04\x05\x02\x03\x01\x09\x0b\x0d\x11\x13\x02\x04\x08\x01\x02\x03\x04\x05\x06\x07"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytesReader(data)
		w := &world{Cluster: NewCluster([]string{"zone", "block", "rack"}[:r.next(4)])}
		w.nodes = make([]Node, r.next(24))
		for i := range w.nodes {
			w.nodes[i].Name = fmt.Sprint("n", i)
			for range w.Levels() {
				w.nodes[i].Domains = append(w.nodes[i].Domains, []string{"", "a", "b", "c"}[r.next(4)])
			}
		}
		w.SetNodes(w.nodes)
		resources := []Resource{w.Resource("nvidia.com/gpu"), w.Resource("cpu"), w.Resource("pods")}
		for id := range NodeID(len(w.nodes)) {
			var capacity, used []Amount
			for _, res := range resources {
				capacity, used = append(capacity, Amount{res, max(r.amount(), 0)}), append(used, Amount{res, int64(r.next(5))})
			}
			w.SetNode(id, capacity, used)
		}
		d := &Demand{Classes: make([]Class, 1+r.next(4)), Sets: make([]Set, r.next(4))}
		for i := range d.Classes {
			for _, res := range resources[:r.next(4)] {
				d.Classes[i].Requests = append(d.Classes[i].Requests, Amount{res, max(r.amount(), 1)})
			}
		}
		level := func() Level { return Level(r.next(7) - 1) }
		d.Required, d.Preferred = level(), level()
		for i := range d.Sets {
			d.Sets[i] = Set{Required: level(), Preferred: level(), SliceSize: r.next(5), SliceLevel: level()}
		}
		for range 1 + r.next(20) {
			set := r.next(len(d.Sets))
			d.Members = append(d.Members, Member{Class: r.next(len(d.Classes)), Set: set, Slice: r.next(4)})
			if len(w.nodes) > 0 && r.next(3) == 0 {
				d.Placed = append(d.Placed, PlacedMember{Node: NodeID(r.next(len(w.nodes))), Set: set, Slice: r.next(4)})
			}
		}
		d.Min = 1 + r.next(len(d.Members))
		var v Verifier
		if r.next(2) == 1 {
			v = contrary{}
		}
		before := fmt.Sprint(w.free)
		p, e, err := w.Plan(d, v)
		if err != nil || (p == nil) == (e == nil) {
			t.Fatalf("plan %v, explanation %v, error %v", p, e, err)
		}
		if after := fmt.Sprint(w.free); after != before {
			t.Fatalf("capacity changed from %s to %s", before, after)
		}
		if p != nil {
			if err := replay(w, d, p.Nodes); err != nil {
				t.Fatal(err)
			}
		} else {
			tenants := make(occupancies, len(w.nodes))
			for i := range tenants {
				tenants[i] = []Tenancy{{Tenant{Name: fmt.Sprint("ns/gang-", i%3)}, []Amount{{resources[0], int64(i % 5)}, {resources[2], 1}}}}
			}
			w.Advise(d, e, tenants)
			if after := fmt.Sprint(w.free); after != before {
				t.Fatalf("advice changed the capacity from %s to %s", before, after)
			}
			w.Watch(d, e).CouldHelp(Change{Node: "n0", Freed: []ResourceAmount{{"cpu", 1}}})
			if e.String() == "" {
				t.Fatal("no words")
			}
		}
		for range w.Candidates(d) {
			continue
		}
	})
}

// FuzzPreempt chooses victims among whatever the bytes describe: it must neither panic nor break a constraint nor
// change the capacity, and with the victims gone the plan holds.
func FuzzPreempt(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x02\x0c0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))
	f.Add([]byte("\x01\x08\x00\x01\x02\x03\x00\x01\x02\x03\x05\x04\x03\x02\x01\x05\x04\x03\x02\x01\x01\x02\x03\x04\x05\x06\x07\x08\x09\x01\x02\x03\x04\x05"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytesReader(data)
		w := &world{Cluster: NewCluster([]string{"zone", "rack"}[:r.next(3)])}
		w.nodes = make([]Node, r.next(12))
		for i := range w.nodes {
			w.nodes[i].Name = fmt.Sprint("n", i)
			for range w.Levels() {
				w.nodes[i].Domains = append(w.nodes[i].Domains, []string{"", "a", "b", "c"}[r.next(4)])
			}
		}
		w.SetNodes(w.nodes)
		w.gpu, w.cpu, w.pods = w.Resource("nvidia.com/gpu"), w.Resource("cpu"), w.Resource("pods")
		resources := []Resource{w.gpu, w.cpu, w.pods}
		for id := range NodeID(len(w.nodes)) {
			w.SetNode(id, []Amount{{w.gpu, max(r.amount(), 0)}, {w.cpu, max(r.amount(), 0)}, {w.pods, 20}}, []Amount{{w.gpu, int64(r.next(5))}})
		}
		victims := make([]Victim, r.next(16))
		for i := range victims {
			v := Victim{Priority: int32(r.next(4)), Pods: r.next(4), Lost: max(r.amount(), 0), Violations: r.next(3) / 2}
			if r.next(4) == 0 {
				v.With = []int{r.next(len(victims))}
			}
			for range r.next(4) {
				if len(w.nodes) == 0 {
					break
				}
				at := Occupancy{NodeID(r.next(len(w.nodes))), []Amount{{w.gpu, int64(r.next(9))}, {w.cpu, int64(r.next(9))}, {w.pods, 1}}}
				w.Take(at.Node, at.Used)
				v.On = append(v.On, at)
			}
			victims[i] = v
		}
		d := &Demand{Classes: make([]Class, 1+r.next(3)), Sets: make([]Set, r.next(3))}
		for i := range d.Classes {
			for _, res := range resources[:r.next(4)] {
				d.Classes[i].Requests = append(d.Classes[i].Requests, Amount{res, max(r.amount(), 1)})
			}
		}
		level := func() Level { return Level(r.next(6) - 1) }
		d.Required, d.Preferred = level(), level()
		for i := range d.Sets {
			d.Sets[i] = Set{Required: level(), Preferred: level(), SliceSize: r.next(4), SliceLevel: level()}
		}
		for range 1 + r.next(12) {
			set := r.next(len(d.Sets))
			d.Members = append(d.Members, Member{Class: r.next(len(d.Classes)), Set: set, Slice: r.next(4)})
			if len(w.nodes) > 0 && r.next(4) == 0 {
				d.Placed = append(d.Placed, PlacedMember{Node: NodeID(r.next(len(w.nodes))), Set: set, Slice: r.next(4)})
			}
		}
		d.Min = 1 + r.next(len(d.Members))
		if r.next(4) == 0 {
			d.MinResources = []Amount{{w.gpu, int64(r.next(40))}}
		}
		var v Verifier
		if r.next(3) == 1 {
			v = contrary{}
		}
		before := fmt.Sprint(w.free)
		p, e, err := w.Preempt(d, v, victims)
		if err != nil || (p == nil) == (e == nil) {
			t.Fatalf("preemption %v, explanation %v, error %v", p, e, err)
		}
		if after := fmt.Sprint(w.free); after != before {
			t.Fatalf("capacity changed from %s to %s", before, after)
		}
		if p == nil {
			return
		}
		set := setOf(p.Victims)
		if !closed(victims, set) {
			t.Fatalf("the victims %v leave some behind", p.Victims)
		}
		forEach(w, victims, set, w.Return)
		if err := replay(w, d, p.Plan.Nodes); err != nil {
			t.Fatal(err)
		}
	})
}

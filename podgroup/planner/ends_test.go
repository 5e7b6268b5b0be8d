package planner

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// Tenants of which so many use a node whole, and a gang that needs some of the nodes: the end of as many as may be named
// is advised, and no advice to wait for more.
func TestEndsOfAsManyAsMayBeNamed(t *testing.T) {
	for lacks := 1; lacks <= maxEnds+2; lacks++ {
		c := NewCluster(nil)
		var nodes []Node
		for i := range 20 {
			nodes = append(nodes, Node{Name: fmt.Sprintf("n%d", i)})
		}
		c.SetNodes(nodes)
		gpu := c.Resource("nvidia.com/gpu")
		tenants := make(occupancies, len(nodes))
		for i := range NodeID(20) {
			c.SetNode(i, []Amount{{gpu, 8}, {c.Resource("cpu"), 192000}, {c.Resource("memory"), 2 << 40}, {c.Resource("pods"), 110}}, nil)
		}
		for i := range NodeID(10) {
			tenants.put(c, i, Tenant{Name: fmt.Sprintf("ns/pod-%d", i), Pod: true}, []Amount{{gpu, 8}})
		}
		d := benchGang(c, 10+lacks, 8)
		_, e, err := c.Plan(d, nil)
		if err != nil || e == nil {
			t.Fatal("not refused", err)
		}
		c.Advise(d, e, tenants)
		want := lacks
		if lacks > maxEnds {
			want = 0
		}
		if got := len(e.Advice.End); got != want {
			t.Errorf("%d nodes are lacking, and the end of %d tenants is advised, want %d", lacks, got, want)
		}
	}
}

// Who is not searched for because few could not help would not have been found.
func TestFewThatCouldNotHelpAreNotFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 8)
		tenants := drawTenants(t, w)
		d := drawAny(t, w)
		_, e, err := w.Plan(d, nil)
		if err != nil || e == nil || len(e.TooLarge) > 0 {
			return
		}
		l := newLearned(len(d.Classes))
		d = w.clamped(d)
		w.prepare(d)
		w.countBlocks(d, l)
		asked, best := w.asked(w.needed(d, l), l)
		v := &eviction{c: w.Cluster, d: d, asked: asked, l: l, occupants: w.occupants(asked, best.Domain, tenants)}
		v.measure(best.Domain)
		if v.fewCouldHelp() {
			return
		}
		if ends := v.search(tenants); len(ends) > 0 {
			t.Fatalf("%v could help", ends)
		}
	})
}

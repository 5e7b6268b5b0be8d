package planner

import (
	"testing"

	"pgregory.net/rapid"
)

// The room that is named is there and no more is; what is short cannot hold the gang; the causes
// count no node twice.
func TestExplanationIsTrue(t *testing.T) {
	refused := 0
	check := func(t *rapid.T) {
		w := drawWorld(t, 10)
		d := drawAny(t, w)
		_, e, _ := w.Plan(d, nil)
		if e == nil {
			return
		}
		refused++
		nodes := 0
		for _, c := range e.Causes {
			nodes += c.Nodes
		}
		if nodes > e.Nodes || e.Nodes != int(e.Best.Hi-e.Best.Lo) || e.Nodes > e.ClusterNodes {
			t.Fatalf("%d nodes with causes of %d: %s", nodes, e.Nodes, e)
		}
		if e.Placeable > e.Asked || e.Placeable == e.Asked && e.Asked == e.members() && len(e.MinResources) == 0 {
			t.Fatalf("room for %d of %d: %s", e.Placeable, e.Asked, e)
		}
		for _, s := range e.Short {
			if s.Needed <= s.Free || s.Free > s.Capacity {
				t.Fatalf("short of %+v", s)
			}
			free := int64(0)
			for node := e.Best.Lo; node < e.Best.Hi; node++ {
				free += max(w.free[w.columns[s.Name]][node], 0)
			}
			if s.Free > free {
				t.Fatalf("%d free of %+v", free, s)
			}
		}
		if _, uniform := d.uniform(); !uniform || len(e.MinResources) > 0 {
			return
		}
		for k, want := range map[int]bool{e.Placeable: true, e.Placeable + 1: false} {
			part := *d
			part.Members, part.Min = d.Members[:k], k
			if k > 0 && fitsNow(t, w.Cluster, &part) != want {
				t.Fatalf("room for %d members: %v; %s", k, !want, e)
			}
		}
	}
	for range 10 {
		rapid.Check(t, check)
	}
	t.Logf("%d refusals", refused)
	if refused < 100 { // of several hundred
		t.Errorf("only %d refusals to judge", refused)
	}
}

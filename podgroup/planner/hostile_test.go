package planner

import (
	"math/rand/v2"
	"runtime"
	"testing"
)

// A gang of thousands of classes takes no memory for each of them and each node.
func TestManyClassesTakeLittleMemory(t *testing.T) {
	c := benchCluster(5000)
	d := hostileGangs[0].gang(c, 1024)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p, e, err := c.Plan(d, nil)
	runtime.ReadMemStats(&after)
	if p == nil {
		t.Fatal(e, err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Errorf("%d MiB allocated", used>>20)
	}
	w := &world{Cluster: c}
	if err := replay(w, d, p.Nodes); err != nil {
		t.Error(err)
	}
}

// Classes that no slots are kept of are placed and refused as all others are.
func TestManyClassesArePlacedAndRefused(t *testing.T) {
	for _, tc := range hostileGangs {
		t.Run(tc.name, func(t *testing.T) {
			c := benchCluster(512)
			d := tc.gang(c, 200)
			rand.New(rand.NewPCG(1, 2)).Shuffle(len(d.Members), func(i, j int) { d.Members[i], d.Members[j] = d.Members[j], d.Members[i] })
			p, e, err := c.Plan(d, nil)
			if p == nil {
				t.Fatal(e, err)
			}
			if err := replay(&world{Cluster: c}, d, p.Nodes); err != nil {
				t.Error(err)
			}
			for id := NodeID(8); id < 512; id++ {
				c.Take(id, []Amount{{c.Resource("nvidia.com/gpu"), 8}})
			}
			_, e, err = c.Plan(d, nil)
			if e == nil || err != nil {
				t.Fatalf("placed, or %v", err)
			}
			if e.Placeable == 0 || e.Placeable >= d.Min {
				t.Errorf("room for %d of %d", e.Placeable, d.Min)
			}
			c.Advise(d, e, benchTenants(c))
			t.Log(e)
		})
	}
}

// A request for more new nodes than anybody adds is no advice.
func TestNoAdviceForMillionsOfNodes(t *testing.T) {
	c := testCluster(t, nil, racks("r", 1, 2)...)
	d := gang(c, 1)
	d.MinResources = []Amount{{c.Resource("nvidia.com/gpu"), 8 * (2 + maxAdded)}}
	for more, want := range []int{maxAdded, 0} {
		d.MinResources[0].Value += int64(8 * more)
		_, e, _ := c.Plan(d, nil)
		c.Advise(d, e, nil)
		if got := e.Advice.Nodes; (got == nil) != (want == 0) || got != nil && got.Count != want {
			t.Errorf("advice to add %+v, want %d", got, want)
		}
	}
}

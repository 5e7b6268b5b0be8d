package planner

import (
	"fmt"
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

// Of a gang of very many classes, of which not all fit, some are placed in the time there is.
func TestManyClassesBeyondTheMinimum(t *testing.T) {
	c := benchCluster(128)
	d := hostileGangs[0].gang(c, 1024)
	d.Min = 1
	p, e, err := c.Plan(d, nil)
	if p == nil {
		t.Fatal(e, err)
	}
	if err := replay(&world{Cluster: c}, d, p.Nodes); err != nil {
		t.Error(err)
	}
	looked := c.work.effort / c.NumNodes()
	t.Logf("%d placed, all nodes looked at %d times", p.Placed(), looked)
	if p.Placed() < 200 || p.Placed() == 1024 || looked > maxEffort+2*1024 {
		t.Errorf("%d placed, all nodes looked at %d times", p.Placed(), looked)
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

// Names of resources that no node has, which anybody can make up, take no room for each node.
func TestMadeUpResourcesTakeLittleMemory(t *testing.T) {
	c := benchCluster(5000)
	gpu := c.Resource("nvidia.com/gpu")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d := benchGang(c, 1, 1)
	for i := range 5000 {
		d.MinResources = append(d.MinResources, Amount{c.Resource(fmt.Sprint("made.up/", i)), 1})
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Errorf("%d MiB allocated", used>>20)
	}
	none := d.MinResources[0].Resource
	if _, e, _ := c.Plan(d, nil); e == nil || len(e.MinResources) != 5000 || e.MinResources[0].Free != 0 {
		t.Errorf("explanation %v", e)
	} else {
		c.Advise(d, e, benchTenants(c))
	}
	// Once a node has it, it is there, on that node only, until the nodes are replaced.
	c.SetNode(7, []Amount{{gpu, 8}, {none, 3}}, []Amount{{none, 1}})
	c.Take(8, []Amount{{none, 1}})
	for id, want := range map[NodeID]int64{6: 0, 7: 2, 8: -1} {
		if got := c.Free(id, none); got != want {
			t.Errorf("%d free on node %d, want %d", got, id, want)
		}
	}
	for i := range 100 {
		if got := c.Free(7, d.MinResources[1+i].Resource); got != 0 {
			t.Errorf("%d free of another resource", got)
		}
	}
	c.SetNodes([]Node{{Name: "a"}})
	if free, capacity := c.TotalFree(none); free != 0 || capacity != 0 {
		t.Errorf("%d free of %d on new nodes", free, capacity)
	}
}

// Rules that have no words keep members out all the same.
func TestRulesWithoutWords(t *testing.T) {
	c := testCluster(t, nil, racks("r", 1, 3)...)
	d := gang(c, 1)
	d.Classes[0].Blocked, d.Classes[0].Causes = []uint16{1, 2, 9}, []string{"cordoned"}
	if got, want := mustRefuse(t, c, d, nil).String(), "gang needs 1 member (with nvidia.com/gpu 1), room for 0; of 3 nodes: 2 not allowed, 1 cordoned"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

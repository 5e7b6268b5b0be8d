package planner

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// occupancies are tenants by node, for tests.
type occupancies [][]Tenancy

func (o occupancies) On(node NodeID) []Tenancy { return o[node] }

// put books what a tenant uses of a node.
func (o occupancies) put(c *Cluster, node NodeID, t Tenant, used []Amount) {
	c.Take(node, used)
	for i := range o[node] {
		if o[node][i].Tenant == t {
			for r := range used {
				o[node][i].Used[r].Value += used[r].Value
			}
			return
		}
	}
	o[node] = append(o[node], Tenancy{t, used})
}

// tenantNames are the tenants of a random world.
var tenantNames = []Tenant{{Name: "a/one"}, {Name: "a/two"}, {Name: "b/one"}, {Name: "b/two"}, {Name: "a/one", Pod: true}, {Name: "c/x", Pod: true}}

// drawTenants fills a world without pods with tenants.
func drawTenants(t *rapid.T, w *world) occupancies {
	o := make(occupancies, w.NumNodes())
	free := slices.Clone(tenantNames) // without the pods that are on another node
	for node := range NodeID(w.NumNodes()) {
		w.SetNode(node, []Amount{{w.gpu, 8}, {w.cpu, 8000}, {w.pods, 10}}, nil)
		for range rapid.IntRange(0, 3).Draw(t, "tenants") {
			used := []Amount{
				{w.gpu, rapid.Int64Range(0, min(8, w.Free(node, w.gpu))).Draw(t, "gpus")},
				{w.cpu, 1000 * rapid.Int64Range(0, 2).Draw(t, "cpu")}, {w.pods, 1},
			}
			o.put(w.Cluster, node, rapid.SampledFrom(free).Draw(t, "tenant"), used)
		}
		free = slices.DeleteFunc(free, func(x Tenant) bool {
			return x.Pod && slices.ContainsFunc(o[node], func(on Tenancy) bool { return on.Tenant == x })
		})
	}
	return o
}

// drawAny is a gang with or without constraints.
func drawAny(t *rapid.T, w *world) *Demand {
	if rapid.Bool().Draw(t, "constrained") {
		return drawGang(t, w, gangShape{classes: 2, sets: 2, members: 12, mixed: true, scattered: true})
	}
	return drawDemand(t, w, 2, 12)
}

// more returns the world with k more nodes as the advice asks for them.
func more(w *world, e *Explanation, d *Demand, k int) (*Cluster, *Demand) {
	n := e.Advice.Nodes
	c := NewCluster(w.Levels())
	like, _ := w.Node(n.Like)
	nodes := slices.Clone(w.nodes)
	name := "new"
	if _, uniform := d.uniform(); !uniform {
		name = newName // where a mixture goes depends on the order of the nodes
	}
	within := make([]string, len(w.Levels()))
	if l := e.Best.Level; l > WholeCluster && l < w.NodeLevel() && len(e.MinResources) == 0 {
		copy(within, w.values(e.Best.Lo)[:l])
	}
	for i := range k {
		values := slices.Clone(within)
		for l := int(e.Best.Level % w.NodeLevel()); l < len(values); l++ {
			values[l] = fmt.Sprint(name, i/max(n.Together, 1)*min(n.Together, 1))
		}
		nodes = append(nodes, Node{fmt.Sprint(name, i), values})
	}
	c.SetNodes(nodes)
	for _, name := range w.resources {
		c.Resource(name)
	}
	moved := *d
	moved.Classes = slices.Clone(d.Classes)
	for class := range moved.Classes {
		if d.Classes[class].Blocked != nil {
			moved.Classes[class].Blocked = make([]uint16, len(nodes))
		}
		if d.Classes[class].Score != nil {
			moved.Classes[class].Score = make([]int32, len(nodes))
		}
	}
	moved.Placed = slices.Clone(d.Placed)
	for i, p := range d.Placed {
		moved.Placed[i].Node, _ = c.Node(w.NodeName(p.Node))
	}
	for _, node := range nodes {
		id, _ := c.Node(node.Name)
		old, known := w.Node(node.Name)
		if !known {
			c.SetNode(id, w.has(like), nil)
			continue
		}
		c.SetNode(id, w.has(old), w.uses(old))
		for class := range moved.Classes {
			if blocked := d.Classes[class].Blocked; blocked != nil {
				moved.Classes[class].Blocked[id] = blocked[old]
			}
			if score := d.Classes[class].Score; score != nil {
				moved.Classes[class].Score[id] = score[old]
			}
		}
	}
	return c, &moved
}

// has and uses are what SetNode is told of a node.
func (w *world) has(node NodeID) (out []Amount) {
	for r := range w.resources {
		out = append(out, Amount{Resource(r), w.capacity[r][node]})
	}
	return out
}

func (w *world) uses(node NodeID) (out []Amount) {
	for r := range w.resources {
		out = append(out, Amount{Resource(r), w.capacity[r][node] - w.free[r][node]})
	}
	return out
}

func fitsNow(t *rapid.T, c *Cluster, d *Demand) bool {
	p, _, err := c.Plan(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p != nil
}

func TestAdviceHelpsAndIsMinimal(t *testing.T) {
	said := map[string]int{}
	for range 20 {
		rapid.Check(t, func(t *rapid.T) { checkAdvice(t, said) })
	}
	for _, what := range []string{"nodes", "ends", "several ends", "looser"} {
		if said[what] == 0 {
			t.Errorf("never advised: %s; %v", what, said)
		}
	}
}

// checkAdvice follows each part of the advice on a random refusal, and a little less of it.
func checkAdvice(t *rapid.T, said map[string]int) {
	w := drawWorld(t, 8)
	tenants := drawTenants(t, w)
	d := drawAny(t, w)
	if rapid.IntRange(0, 3).Draw(t, "minResources") == 0 {
		d.MinResources = []Amount{{w.gpu, rapid.Int64Range(1, 40).Draw(t, "asked")}}
	}
	_, e, _ := w.Plan(d, nil)
	if e == nil {
		return
	}
	before := e.String()
	free := slices.Clone(w.free[w.gpu])
	w.Advise(d, e, tenants)
	if !slices.Equal(free, w.free[w.gpu]) {
		t.Fatalf("advice changed what is free from %v to %v", free, w.free[w.gpu])
	}
	if _, again, _ := w.Plan(d, nil); again.String() != before {
		t.Fatalf("the same demand is now refused with %s", again)
	}
	if n := e.Advice.Nodes; n != nil {
		said["nodes"]++
		if c, moved := more(w, e, d, n.Count); !fitsNow(t, c, moved) {
			t.Fatalf("does not fit with %d more nodes: %s", n.Count, e)
		}
		if c, moved := more(w, e, d, n.Count-1); fitsNow(t, c, moved) {
			t.Fatalf("fits with %d more nodes: %s", n.Count-1, e)
		}
	}
	if len(e.Advice.End) > 0 {
		said["ends"]++
		if len(e.Advice.End) > 1 {
			said["several ends"]++
		}
		end(w, tenants, e.Advice.End, 1)
		if !fitsNow(t, w.Cluster, d) {
			t.Fatalf("does not fit once they end: %s", e)
		}
		for i := range e.Advice.End {
			end(w, tenants, e.Advice.End[i:i+1], -1)
			if fitsNow(t, w.Cluster, d) {
				t.Fatalf("%s need not end: %s", e.Advice.End[i], e)
			}
			end(w, tenants, e.Advice.End[i:i+1], 1)
		}
		end(w, tenants, e.Advice.End, -1)
	}
	if looser := e.Advice.Looser; looser != nil {
		said["looser"]++
		level, _ := w.Level(looser.Within)
		loose, tight := d.loosened(level, w.NodeLevel()), d.loosened(level+1, w.NodeLevel())
		if looser.Slices {
			said["looser slices"]++
			loose, tight = d.loosened(w.NodeLevel(), level), d.loosened(w.NodeLevel(), level+1)
		}
		if !fitsNow(t, w.Cluster, loose) {
			t.Fatalf("does not fit with a looser level: %s", e)
		}
		if fitsNow(t, w.Cluster, tight) {
			t.Fatalf("fits within a tighter level: %s", e)
		}
	}
}

// end lets tenants give back what they use everywhere, or take it again.
func end(w *world, o occupancies, tenants []Tenant, sign int64) {
	for node := range o {
		for _, t := range o[node] {
			if slices.Contains(tenants, t.Tenant) {
				for _, a := range t.Used {
					w.free[a.Resource][node] += sign * a.Value
				}
			}
		}
	}
}

// A slice of one member still asks for a node inside its level, which is what keeps this gang out: the
// looser level is the next one, not none.
func TestLooserLevelForSlicesOfOne(t *testing.T) {
	c := NewCluster([]string{"zone", "rack"})
	c.SetNodes([]Node{{Name: "n", Domains: []string{"a", ""}}})
	c.SetNode(0, []Amount{{c.Resource("nvidia.com/gpu"), 8}, {c.Resource("pods"), 110}}, nil)
	d := gang(c, 1, 1, 1)
	d.Sets = []Set{{SliceSize: 2, SliceLevel: 1}, {SliceSize: 1, SliceLevel: 2}}
	d.Members[2].Set = 1
	_, e, _ := c.Plan(d, nil)
	if c.Advise(d, e, nil); e.Advice.Looser == nil || *e.Advice.Looser != (Looser{Slices: true, Within: "zone"}) {
		t.Errorf("looser %+v: %s", e.Advice.Looser, e)
	}
}

package planner

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// left lists what a node has left, for a Change.
func (w *world) left(node NodeID) []ResourceAmount {
	var out []ResourceAmount
	for r, name := range w.resources {
		out = append(out, ResourceAmount{name, w.free[r][node]})
	}
	return out
}

// free gives amounts back on a random node.
func (w *world) freeSome(t *rapid.T) Change {
	node := NodeID(rapid.IntRange(0, w.NumNodes()-1).Draw(t, "node"))
	freed := []ResourceAmount{{"pods", 1}}
	if gpus := rapid.Int64Range(0, 8).Draw(t, "freed"); gpus > 0 {
		freed = append(freed, ResourceAmount{"nvidia.com/gpu", gpus})
		w.free[w.gpu][node] += gpus
	}
	if cpu := 500 * rapid.Int64Range(0, 8).Draw(t, "freed cpu"); cpu > 0 {
		freed = append(freed, ResourceAmount{"cpu", cpu})
		w.free[w.cpu][node] += cpu
	}
	w.free[w.pods][node]++
	ch := Change{Node: w.NodeName(node), Freed: freed}
	if rapid.Bool().Draw(t, "free known") {
		ch.Free = w.left(node)
	}
	return ch
}

// takeSome takes what a new pod of somebody else uses: nobody is told.
func (w *world) takeSome(t *rapid.T) {
	node := NodeID(rapid.IntRange(0, w.NumNodes()-1).Draw(t, "node"))
	w.free[w.gpu][node] -= rapid.Int64Range(0, max(w.free[w.gpu][node], 0)).Draw(t, "taken")
	w.free[w.pods][node]--
}

// unblock opens a random node to all classes.
func (w *world) unblock(t *rapid.T, d *Demand) Change {
	node := NodeID(rapid.IntRange(0, w.NumNodes()-1).Draw(t, "node"))
	for class := range d.Classes {
		if d.Classes[class].Blocked != nil {
			d.Classes[class].Blocked[node] = 0
		}
	}
	return w.changed(t, node)
}

func (w *world) changed(t *rapid.T, node NodeID) Change {
	ch := Change{Node: w.NodeName(node), Changed: true}
	if rapid.Bool().Draw(t, "free known") {
		ch.Free = w.left(node)
	}
	if rapid.Bool().Draw(t, "domains known") {
		ch.Domains = w.values(node)
	}
	return ch
}

// join adds a node, or moves one to another domain, and carries the demand over.
func (w *world) join(t *rapid.T, d *Demand) Change {
	old, nodes := *w, slices.Clone(w.nodes)
	at := rapid.IntRange(0, len(nodes)).Draw(t, "joins or moves")
	if at == len(nodes) {
		nodes = append(nodes, Node{Name: fmt.Sprintf("x%d", at)})
	}
	nodes[at].Domains = nil
	for l := range w.Levels() {
		nodes[at].Domains = append(nodes[at].Domains, rapid.SampledFrom([]string{"a", "b", "c1", "", "c10", "d"}[:3+l]).Draw(t, "domain"))
	}
	c := NewCluster(w.Levels())
	c.SetNodes(nodes)
	*w = world{Cluster: c, gpu: c.Resource("nvidia.com/gpu"), cpu: c.Resource("cpu"), pods: c.Resource("pods"), nodes: nodes}
	blocked := make([][]uint16, len(d.Classes))
	for class := range d.Classes {
		d.Classes[class].Score = nil
		blocked[class] = d.Classes[class].Blocked
		if blocked[class] != nil {
			d.Classes[class].Blocked = make([]uint16, len(nodes))
		}
	}
	for i := range d.Placed {
		d.Placed[i].Node, _ = w.Node(old.NodeName(d.Placed[i].Node))
	}
	for id := range NodeID(len(nodes)) {
		was, known := old.Node(w.NodeName(id))
		if !known {
			w.SetNode(id, []Amount{{w.gpu, rapid.Int64Range(0, 8).Draw(t, "new")}, {w.cpu, 8000}, {w.pods, 10}}, nil)
			continue
		}
		w.SetNode(id, old.has(was), old.uses(was))
		for class := range d.Classes {
			if blocked[class] != nil {
				d.Classes[class].Blocked[id] = blocked[class][was]
			}
		}
	}
	id, _ := w.Node(nodes[at].Name)
	return w.changed(t, id)
}

// Whatever happens to the cluster: as long as every change is answered with no, the gang is still
// refused.
func TestWatchNeverMissesAChangeThatHelps(t *testing.T) {
	answers := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 6)
		if w.NumNodes() == 0 {
			return
		}
		d := drawAny(t, w)
		if rapid.IntRange(0, 3).Draw(t, "minResources") == 0 {
			d.MinResources = []Amount{{w.gpu, rapid.Int64Range(1, 40).Draw(t, "asked")}}
		}
		_, e, _ := w.Plan(d, nil)
		if e == nil {
			return
		}
		watch := w.Watch(d, e)
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			var ch Change
			switch rapid.IntRange(0, 7).Draw(t, "change") {
			case 0:
				ch = w.join(t, d)
			case 1:
				ch = w.unblock(t, d)
			case 2:
				if w.takeSome(t); len(d.Classes) > 1 {
					return // less room can make a mixture fit, where the way to pack it changes
				}
				continue
			default:
				ch = w.freeSome(t)
			}
			could := watch.CouldHelp(ch)
			fits := fitsNow(t, w.Cluster, d)
			if fits && !could {
				t.Fatalf("the gang fits after %+v, which was said not to help; it was refused: %s", ch, e)
			}
			if could {
				answers[fmt.Sprintf("yes, fits %v", fits)]++
				return
			}
			answers["no"]++
		}
	})
	t.Log(answers)
	if answers["no"] == 0 || answers["yes, fits true"] == 0 {
		t.Errorf("answers %v", answers)
	}
}

// A gang of one class without constraints is only woken when it fits, if all is known.
func TestWatchIsExactForOneClass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, 6)
		if w.NumNodes() == 0 {
			return
		}
		d := drawDemand(t, w, 1, 10)
		_, e, _ := w.Plan(d, nil)
		if e == nil {
			return
		}
		watch := w.Watch(d, e)
		for range 10 {
			ch := w.freeSome(t)
			node, _ := w.Node(ch.Node)
			ch.Free = w.left(node)
			could, fits := watch.CouldHelp(ch), fitsNow(t, w.Cluster, d)
			if could != fits {
				t.Fatalf("answer %v, the gang fits: %v", could, fits)
			}
			if fits {
				return
			}
		}
	})
}

func TestWatch(t *testing.T) {
	gpus := func(node string, freed, free int64) Change {
		ch := Change{Node: node, Freed: []ResourceAmount{{"nvidia.com/gpu", freed}, {"pods", 1}}}
		if free >= 0 {
			ch.Free = []ResourceAmount{{"nvidia.com/gpu", free}, {"pods", 100}}
		}
		return ch
	}
	type step struct {
		change Change
		want   bool
	}
	full := map[string]int64{"r0/n0": 8, "r0/n1": 8, "r1/n0": 8, "r1/n1": 8}
	for name, tc := range map[string]struct {
		demand func(*Cluster, *Demand)
		gpus   []int64
		steps  []step
	}{
		"a pod frees less than a member needs": {
			gpus:  repeat(1, 8),
			steps: []step{{gpus("r0/n0", 1, 1), false}, {gpus("r0/n0", 3, 4), false}, {gpus("r0/n0", 4, 8), true}},
		},
		"what is free is not known": {
			gpus:  repeat(1, 8),
			steps: []step{{gpus("r0/n0", 1, -1), true}},
		},
		"a pod frees something else": {
			gpus:  repeat(1, 8),
			steps: []step{{Change{Node: "r0/n0", Freed: []ResourceAmount{{"cpu", 4000}}}, false}},
		},
		"the last of four places": {
			gpus: repeat(4, 8),
			steps: []step{{gpus("r0/n0", 8, 8), false}, {gpus("r0/n1", 8, 8), false}, {gpus("r1/n0", 8, 8), false},
				{gpus("r1/n1", 8, 8), true}},
		},
		"a place that is taken again and freed again counts twice": {
			gpus:  repeat(2, 8),
			steps: []step{{gpus("r0/n0", 8, 8), false}, {gpus("r0/n0", 8, 8), true}},
		},
		"nodes come one by one": {
			gpus: repeat(2, 8),
			steps: []step{{Change{Node: "new0", Changed: true, Free: []ResourceAmount{{"nvidia.com/gpu", 4}, {"pods", 110}}}, false},
				{Change{Node: "new1", Changed: true, Free: []ResourceAmount{{"nvidia.com/gpu", 8}, {"pods", 110}}}, false},
				{Change{Node: "new2", Changed: true, Free: []ResourceAmount{{"nvidia.com/gpu", 8}, {"pods", 110}}}, true}},
		},
		"a node that the gang may not use": {
			gpus: repeat(1, 8),
			demand: func(_ *Cluster, d *Demand) {
				d.Classes[0].Causes, d.Classes[0].Blocked = []string{"cordoned"}, []uint16{1, 0, 0, 0}
			},
			steps: []step{{gpus("r0/n0", 8, 8), false}, {gpus("r0/n1", 8, 8), true}},
		},
		"until it may": {
			gpus: repeat(1, 8),
			demand: func(_ *Cluster, d *Demand) {
				d.Classes[0].Causes, d.Classes[0].Blocked = []string{"cordoned"}, []uint16{1, 0, 0, 0}
			},
			steps: []step{{Change{Node: "r0/n0", Changed: true, Free: []ResourceAmount{{"pods", 110}}}, false}, {gpus("r0/n0", 8, 8), true}},
		},
		"two places in different racks": {
			gpus:   repeat(2, 8),
			demand: func(c *Cluster, d *Demand) { d.Required = 1 },
			steps:  []step{{gpus("r0/n0", 8, 8), false}, {gpus("r1/n0", 8, 8), false}, {gpus("r1/n1", 8, 8), true}},
		},
		"another rack than that of the placed members": {
			gpus:   repeat(1, 8),
			demand: func(c *Cluster, d *Demand) { d.Required, d.Placed = 1, []PlacedMember{{Node: 0}} },
			steps: []step{{gpus("r1/n0", 8, 8), false},
				{Change{Node: "new", Changed: true, Domains: []string{"r1"}}, false}, {gpus("r0/n1", 8, 8), true}},
		},
		"a new node in the rack of the placed members": {
			gpus:   repeat(1, 8),
			demand: func(c *Cluster, d *Demand) { d.Required, d.Placed = 1, []PlacedMember{{Node: 0}} },
			steps:  []step{{Change{Node: "new", Changed: true, Domains: []string{"r0"}}, true}},
		},
		"all on one node": {
			gpus:   repeat(2, 4),
			demand: func(c *Cluster, d *Demand) { d.Required = c.NodeLevel() },
			steps:  []step{{gpus("r1/n0", 4, 4), false}, {gpus("r0/n0", 4, 4), false}, {gpus("r1/n0", 4, 8), true}},
		},
		"minResources": {
			gpus: repeat(1, 8),
			demand: func(c *Cluster, d *Demand) {
				c.SetNode(0, []Amount{{c.Resource("nvidia.com/gpu"), 8}, {c.Resource("pods"), 110}}, nil)
				d.MinResources = []Amount{{c.Resource("nvidia.com/gpu"), 12}}
			},
			steps: []step{{gpus("r1/n0", 1, 1), false}, {gpus("r1/n1", 3, 3), true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := testCluster(t, full, racks("r", 2, 2)...)
			d := gang(c, tc.gpus...)
			if tc.demand != nil {
				tc.demand(c, d)
			}
			watch := c.Watch(d, mustRefuse(t, c, d, nil))
			for i, s := range tc.steps {
				if got := watch.CouldHelp(s.change); got != s.want {
					t.Fatalf("step %d: %+v could help: %v", i, s.change, got)
				}
			}
		})
	}
}

// What is freed adds up without overflow.
func TestWatchAddsUpHugeAmounts(t *testing.T) {
	c := testCluster(t, map[string]int64{"r0/n0": 8, "r0/n1": 8}, racks("r", 1, 2)...)
	d := gang(c, 8, 8)
	_, e, _ := c.Plan(d, nil)
	w := c.Watch(d, e)
	huge := Change{Node: "r0/n0", Freed: []ResourceAmount{{"pods", math.MaxInt64}}}
	for range 3 {
		if !w.CouldHelp(huge) {
			t.Fatal("so much is no help")
		}
	}
}

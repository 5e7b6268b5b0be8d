package planner

import (
	"fmt"
	"testing"
)

// hall has 2 blocks of 3 racks of 4 nodes of 8 GPUs, a node in a block but in no rack, and a node in
// neither.
func hall(used map[string]int64) *Cluster {
	c := NewCluster([]string{"example.com/block", "example.com/rack"})
	nodes := []Node{{"loose-0", []string{"b0"}}, {"loose-1", nil}}
	for b := range 2 {
		for r := range 3 {
			for n := range 4 {
				rack := fmt.Sprintf("b%d-r%d", b, r)
				nodes = append(nodes, Node{fmt.Sprintf("%s-n%d", rack, n), []string{rack[:2], rack}})
			}
		}
	}
	c.SetNodes(nodes)
	gpu, pods := c.Resource("nvidia.com/gpu"), c.Resource("pods")
	for id, name := range c.names {
		c.SetNode(NodeID(id), []Amount{{gpu, 8}, {pods, 110}}, []Amount{{gpu, used[name]}})
	}
	return c
}

func TestExplanationSentenceWithLevels(t *testing.T) {
	const block, rack = Level(1), Level(2)
	some := map[string]int64{"b0-r0-n0": 8, "b0-r1-n0": 8, "b0-r2-n0": 8, "b1-r0-n0": 8, "b1-r1-n1": 8, "b1-r2-n2": 8}
	full := map[string]int64{}
	for _, name := range hall(nil).names {
		full[name] = 8
	}
	tenants := map[string]Tenant{"b0-r0-n0": {Name: "team-a/llm"}, "b0-r1-n0": {Name: "team-b/vision"}}
	within := func(n int, gpus int64, l Level) func(*Cluster) *Demand {
		return func(c *Cluster) *Demand {
			d := gang(c, repeat(n, gpus)...)
			d.Required = l
			return d
		}
	}
	sliced := func(n, size int, slicing, required Level) func(*Cluster) *Demand {
		return func(c *Cluster) *Demand {
			d := gang(c, repeat(n, 8)...)
			d.Required, d.Sets = required, []Set{{SliceSize: size, SliceLevel: slicing}}
			for i := range d.Members {
				d.Members[i].Slice = i / size
			}
			return d
		}
	}
	beside := func(n int, l Level, placed ...NodeID) func(*Cluster) *Demand {
		return func(c *Cluster) *Demand {
			d := within(n, 8, l)(c)
			for _, node := range placed {
				d.Placed = append(d.Placed, PlacedMember{Node: node})
			}
			return d
		}
	}
	for name, tc := range map[string]struct {
		used   map[string]int64
		demand func(*Cluster) *Demand
		want   string
	}{
		"one rack is too full": {
			used: some, demand: within(4, 8, rack),
			want: "gang needs 4 members (with nvidia.com/gpu 8) within one rack (example.com/rack); " +
				"the best of 6 racks, b0-r0, has room for 3; short there of nvidia.com/gpu: needed 32, free 24 of 32, 8 used by team-a/llm; " +
				"of its 4 nodes: 1 too little nvidia.com/gpu left; 2 nodes have no label example.com/rack; " +
				"would fit with 1 more node of nvidia.com/gpu 8 in rack b0-r0, or once team-a/llm ends, or now within one block (example.com/block)",
		},
		"no rack is large enough": {
			used: some, demand: within(6, 8, rack),
			want: "gang needs 6 members (with nvidia.com/gpu 8) within one rack (example.com/rack); " +
				"the best of 6 racks, b0-r0, has room for 3; short there of nvidia.com/gpu: needed 48, free 24 of 32, 8 used by team-a/llm; " +
				"of its 4 nodes: 1 too little nvidia.com/gpu left; 2 nodes have no label example.com/rack; " +
				"would fit with 3 more nodes of nvidia.com/gpu 8 in rack b0-r0, or now within one block (example.com/block)",
		},
		"two gangs of a block": {
			used: some, demand: within(12, 8, block),
			want: "gang needs 12 members (with nvidia.com/gpu 8) within one block (example.com/block); " +
				"the best of 2 blocks, b0, has room for 10; short there of nvidia.com/gpu: needed 96, free 80 of 104, 8 used by team-a/llm, 8 by team-b/vision; " +
				"of its 13 nodes: 3 too little nvidia.com/gpu left; 1 node has no label example.com/block; " +
				"would fit with 2 more nodes of nvidia.com/gpu 8 in block b0, or once team-a/llm and team-b/vision end, or now anywhere in the cluster",
		},
		"no room in any rack": {
			used: full, demand: within(1, 8, rack),
			want: "gang needs 1 member (with nvidia.com/gpu 8) within one rack (example.com/rack); " +
				"no rack has room for any member, for example b0-r0; short there of nvidia.com/gpu: needed 8, free 0 of 32, 8 used by team-a/llm; " +
				"of its 4 nodes: 4 too little nvidia.com/gpu left; 2 nodes have no label example.com/rack; " +
				"would fit with 1 more node of nvidia.com/gpu 8 in rack b0-r0, or once team-a/llm ends",
		},
		"the rack of the placed members is full": {
			used: full, demand: beside(2, rack, 1, 2),
			want: "gang needs 2 more members beside 2 placed (with nvidia.com/gpu 8) within one rack (example.com/rack); " +
				"the gang's rack b0-r0 is full; short there of nvidia.com/gpu: needed 16, free 0 of 32, 8 used by team-a/llm; " +
				"of its 4 nodes: 4 too little nvidia.com/gpu left; 2 nodes have no label example.com/rack; " +
				"would fit with 2 more nodes of nvidia.com/gpu 8 in rack b0-r0",
		},
		"the rack of the placed members is nearly full": {
			used: some, demand: beside(4, rack, 1, 2),
			want: "gang needs 4 more members beside 2 placed (with nvidia.com/gpu 8) within one rack (example.com/rack); " +
				"the gang's rack b0-r0 has room for 3; short there of nvidia.com/gpu: needed 32, free 24 of 32, 8 used by team-a/llm; " +
				"of its 4 nodes: 1 too little nvidia.com/gpu left; 2 nodes have no label example.com/rack; " +
				"would fit with 1 more node of nvidia.com/gpu 8 in rack b0-r0, or once team-a/llm ends, or now within one block (example.com/block)",
		},
		"placed members that are torn apart": {
			used: some, demand: beside(1, rack, 1, 5),
			want: "gang needs 1 more member beside 2 placed (with nvidia.com/gpu 8) within one rack (example.com/rack); " +
				"the placed members are not in one rack; 2 nodes have no label example.com/rack; would fit now within one block (example.com/block)",
		},
		"slices": {
			used: some, demand: sliced(8, 4, rack, WholeCluster),
			want: "gang needs 8 members (with nvidia.com/gpu 8) in slices of 4 per example.com/rack, " +
				"room for 0, no rack for more than 3 of a slice of 4; " +
				"of 26 nodes: 6 too little nvidia.com/gpu left, 2 without the label example.com/rack; " +
				"would fit with 8 more nodes of nvidia.com/gpu 8, each 4 of them in one rack (example.com/rack), " +
				"or once team-a/llm and team-b/vision end, or now with slices per example.com/block",
		},
		"slices of which some fit": {
			used: map[string]int64{"b0-r0-n0": 8, "b0-r1-n0": 8, "b0-r2-n0": 8}, demand: sliced(16, 4, rack, WholeCluster),
			want: "gang needs 16 members (with nvidia.com/gpu 8) in slices of 4 per example.com/rack, " +
				"room for 12, for more only if slices are torn apart; " +
				"of 26 nodes: 3 too little nvidia.com/gpu left, 2 without the label example.com/rack; " +
				"would fit with 4 more nodes of nvidia.com/gpu 8, all in one rack (example.com/rack), " +
				"or once team-a/llm ends, or now with slices per example.com/block",
		},
		"slices within a level": {
			used: some, demand: sliced(12, 4, rack, block),
			want: "gang needs 12 members (with nvidia.com/gpu 8) within one block (example.com/block) in slices of 4 per example.com/rack; " +
				"no block has room for any member, for example b0, no rack for more than 3 of a slice of 4; " +
				"short there of nvidia.com/gpu: needed 96, free 72 of 96, 8 used by team-a/llm, 8 by team-b/vision; " +
				"of its 13 nodes: 3 too little nvidia.com/gpu left, 1 without the label example.com/rack; 1 node has no label example.com/block; " +
				"would fit with 12 more nodes of nvidia.com/gpu 8 in block b0, each 4 of them in one rack (example.com/rack)",
		},
		"a set with a level of its own": {
			used: some,
			demand: func(c *Cluster) *Demand {
				d := gang(c, repeat(10, 8)...)
				d.Sets = []Set{{}, {Required: rack}}
				for i := range d.Members {
					d.Members[i].Set = min(1, i/4)
				}
				return d
			},
			want: "gang needs 10 members (with nvidia.com/gpu 8), 6 of them within one rack (example.com/rack); " +
				"the best of 6 racks, b0-r0, has room for 3 of 6; short there of nvidia.com/gpu: needed 48, free 24 of 32, 8 used by team-a/llm; " +
				"of its 4 nodes: 1 too little nvidia.com/gpu left; 2 nodes have no label example.com/rack; " +
				"would fit with 3 more nodes of nvidia.com/gpu 8 in rack b0-r0, or now within one block (example.com/block)",
		},
		"one node": {
			used: some, demand: within(3, 4, 3),
			want: "gang needs 3 members (with nvidia.com/gpu 4) within one node (kubernetes.io/hostname); " +
				"the best of 26 nodes, b0-r0-n1, has room for 2; short there of nvidia.com/gpu: needed 12, free 8 of 8; " +
				"would fit now within one rack (example.com/rack)",
		},
		"one more node": {
			used: full, demand: within(2, 4, 3),
			want: "gang needs 2 members (with nvidia.com/gpu 4) within one node (kubernetes.io/hostname); " +
				"no node has room for any member, for example b0-r0-n0; short there of nvidia.com/gpu: needed 8, free 0 of 8, 8 used by team-a/llm; " +
				"of its 1 node: 1 too little nvidia.com/gpu left; would fit with 1 more node of nvidia.com/gpu 8, or once team-a/llm ends",
		},
		"minResources beyond the members": {
			used: some,
			demand: func(c *Cluster) *Demand {
				d := within(2, 8, rack)(c)
				d.MinResources = []Amount{{c.Resource("nvidia.com/gpu"), 176}}
				return d
			},
			want: "gang needs 2 members (with nvidia.com/gpu 8) within one rack (example.com/rack); minResources asks for more than is free: " +
				"nvidia.com/gpu: needed 176, free 160 of 208, 8 used by team-a/llm, 8 by team-b/vision; 2 nodes have no label example.com/rack; " +
				"would fit with 2 more nodes of nvidia.com/gpu 8, or once team-a/llm and team-b/vision end",
		},
		"larger than any node": {
			used: some, demand: within(4, 16, rack),
			want: "gang needs 4 members (with nvidia.com/gpu 16) within one rack (example.com/rack); " +
				"no node has that much: a member needs nvidia.com/gpu 16, the largest node has 8",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := hall(tc.used)
			d := tc.demand(c)
			e := mustRefuse(t, c, d, nil)
			c.Advise(d, e, testTenants(c, tc.used, tenants))
			if got := e.String(); got != tc.want {
				t.Errorf("\n got %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestExplanationWithoutTheLabel(t *testing.T) {
	c := NewCluster([]string{"example.com/rack"})
	c.SetNodes([]Node{{Name: "n0"}, {Name: "n1"}})
	d := gang(c, 1)
	d.Required = 1
	e := mustRefuse(t, c, d, nil)
	c.Advise(d, e, nil)
	want := "gang needs 1 member (with nvidia.com/gpu 1) within one rack (example.com/rack); no node has the label example.com/rack"
	if got := e.String(); got != want {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
}

// The checks of the exact way are told of all nodes, and those of the best domain are named.
func TestRefusedNamesTheBestDomain(t *testing.T) {
	c := hall(map[string]int64{"b0-r0-n0": 8})
	d := gang(c, repeat(3, 8)...)
	d.Required = 2
	causes := make([]string, c.NumNodes())
	for i := range causes {
		causes[i] = "refused by InterPodAffinity"
	}
	e := c.Refused(d, 1, causes)
	want := "gang needs 3 members (with nvidia.com/gpu 8) within one rack (example.com/rack); " +
		"the best of 6 racks, b0-r0, has room for 1; of its 4 nodes: 4 refused by InterPodAffinity; 2 nodes have no label example.com/rack"
	if got := e.String(); got != want {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
	if !e.Learned || !c.Watch(d, e).CouldHelp(Change{Node: "b1-r0-n0"}) {
		t.Error("a check beyond arithmetic may change its mind with any change")
	}
}

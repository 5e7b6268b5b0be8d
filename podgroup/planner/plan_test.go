package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// testCluster builds a cluster of nodes named by their rack, "r1/n2", each with 8 GPUs and 110
// pods, of which used GPUs are taken.
func testCluster(t testing.TB, used map[string]int64, names ...string) *Cluster {
	t.Helper()
	c := NewCluster([]string{"rack"})
	nodes := make([]Node, len(names))
	for i, name := range names {
		rack, _, _ := strings.Cut(name, "/")
		nodes[i] = Node{Name: name, Domains: []string{rack}}
	}
	c.SetNodes(nodes)
	gpu, pods := c.Resource("nvidia.com/gpu"), c.Resource("pods")
	for _, name := range names {
		id, ok := c.Node(name)
		if !ok {
			t.Fatalf("node %s is not in the cluster", name)
		}
		c.SetNode(id, []Amount{{gpu, 8}, {pods, 110}}, []Amount{{gpu, used[name]}})
	}
	return c
}

func racks(prefix string, racks, nodes int) []string {
	var names []string
	for r := range racks {
		for n := range nodes {
			names = append(names, fmt.Sprintf("%s%d/n%d", prefix, r, n))
		}
	}
	return names
}

// gang is a demand of members with the given GPUs each, one class for each distinct number.
func gang(c *Cluster, gpus ...int64) *Demand {
	d := &Demand{Min: len(gpus)}
	var sizes []int64
	for _, g := range gpus {
		class := slices.Index(sizes, g)
		if class < 0 {
			class = len(sizes)
			sizes = append(sizes, g)
			d.Classes = append(d.Classes, Class{Requests: []Amount{{c.Resource("nvidia.com/gpu"), g}, {c.Resource("pods"), 1}}})
		}
		d.Members = append(d.Members, Member{Class: class})
	}
	return d
}

func repeat(n int, gpus int64) []int64 { return slices.Repeat([]int64{gpus}, n) }

func mustPlan(t *testing.T, c *Cluster, d *Demand, v Verifier) []string {
	t.Helper()
	p, e, err := c.Plan(d, v)
	if err != nil {
		t.Fatal(err)
	}
	if e != nil {
		t.Fatalf("refused: %s", e)
	}
	names := make([]string, len(p.Nodes))
	for i, id := range p.Nodes {
		if id != NoNode {
			names[i] = c.NodeName(id)
		}
	}
	return names
}

func mustRefuse(t *testing.T, c *Cluster, d *Demand, v Verifier) *Explanation {
	t.Helper()
	p, e, err := c.Plan(d, v)
	if err != nil {
		t.Fatal(err)
	}
	if p != nil {
		t.Fatalf("placed on %v", p.Nodes)
	}
	return e
}

func TestPlanTakesTheTightestDomain(t *testing.T) {
	for name, tc := range map[string]struct {
		used map[string]int64
		gpus []int64
		want []string
	}{
		"one node that fits exactly, before emptier ones": {
			used: map[string]int64{"r1/n2": 4},
			gpus: []int64{2, 2},
			want: []string{"r1/n2", "r1/n2"},
		},
		"the rack with the least room": {
			used: map[string]int64{"r2/n0": 8, "r3/n0": 8, "r3/n1": 8},
			gpus: repeat(2, 8),
			want: []string{"r3/n2", "r3/n3"},
		},
		"whole nodes in the first of equal racks": {
			gpus: repeat(3, 8),
			want: []string{"r0/n0", "r0/n1", "r0/n2"},
		},
		"two racks when none holds the gang": {
			gpus: repeat(5, 8),
			want: []string{"r0/n0", "r0/n1", "r0/n2", "r0/n3", "r1/n0"},
		},
		"the remainder goes where it fits best": {
			used: map[string]int64{"r2/n0": 8, "r2/n1": 8, "r2/n2": 8},
			gpus: repeat(5, 8),
			want: []string{"r0/n0", "r0/n1", "r0/n2", "r0/n3", "r2/n3"},
		},
		"classes see what the ones before them took": {
			used: map[string]int64{"r0/n0": 4, "r0/n1": 8, "r0/n2": 8, "r0/n3": 8},
			gpus: []int64{4, 1, 1},
			want: []string{"r1/n0", "r1/n0", "r1/n0"},
		},
		"large members are placed first, whatever their rank": {
			used: map[string]int64{"r0/n0": 4, "r0/n1": 0, "r0/n2": 8, "r0/n3": 8},
			gpus: []int64{1, 8, 3},
			want: []string{"r0/n0", "r0/n1", "r0/n0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := testCluster(t, tc.used, racks("r", 4, 4)...)
			if got := mustPlan(t, c, gang(c, tc.gpus...), nil); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestPlanRunsRanksThroughNodesInTopologyOrder(t *testing.T) {
	c := testCluster(t, nil, "r10/n1", "r9/n10", "r9/n9", "r10/n2")
	got := mustPlan(t, c, gang(c, repeat(4, 8)...), nil)
	if want := []string{"r9/n9", "r9/n10", "r10/n1", "r10/n2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPlanPlacesSurplusAsFarAsItFits(t *testing.T) {
	c := testCluster(t, nil, racks("r", 1, 4)...)
	d := gang(c, repeat(7, 8)...)
	d.Min = 2
	got := mustPlan(t, c, d, nil)
	if want := []string{"r0/n0", "r0/n1", "r0/n2", "r0/n3", "", "", ""}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	d.Min = 5
	if e := mustRefuse(t, c, d, nil); e.Placeable != 4 {
		t.Errorf("placeable %d, want 4", e.Placeable)
	}
}

func TestPlanStaysNearPlacedMembers(t *testing.T) {
	c := testCluster(t, map[string]int64{"r2/n0": 8}, racks("r", 4, 4)...)
	d := gang(c, repeat(3, 8)...)
	at, _ := c.Node("r2/n0")
	d.Placed = []PlacedMember{{Node: at}}
	got := mustPlan(t, c, d, nil)
	if want := []string{"r2/n1", "r2/n2", "r2/n3"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	d = gang(c, repeat(4, 8)...)
	d.Placed = []PlacedMember{{Node: at}}
	if got := mustPlan(t, c, d, nil); len(got) != 4 {
		t.Errorf("a preference kept the gang out: %v", got)
	}
}

// grumpy is a Verifier that refuses some nodes.
type grumpy struct {
	max   map[string]int
	calls int
	c     *Cluster
}

func (g *grumpy) Verify(d *Demand, nodes []NodeID) ([]Limit, error) {
	g.calls++
	counts := map[NodeID]int{}
	for _, n := range nodes {
		counts[n]++
	}
	var out []Limit
	for id := range NodeID(g.c.NumNodes()) {
		if most, limited := g.max[g.c.NodeName(id)]; limited && counts[id] > most {
			out = append(out, Limit{Class: 0, Node: id, Max: most, Cause: "of a bad mood"})
		}
	}
	return out, nil
}

func TestPlanLearnsFromRefusals(t *testing.T) {
	c := testCluster(t, nil, racks("r", 2, 4)...)
	v := &grumpy{c: c, max: map[string]int{"r0/n1": 0, "r1/n0": 1}}
	got := mustPlan(t, c, gang(c, repeat(6, 4)...), v)
	if want := []string{"r0/n0", "r0/n0", "r0/n2", "r0/n2", "r0/n3", "r0/n3"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if v.calls > 3 {
		t.Errorf("%d verifications for one bad node", v.calls)
	}
	e := mustRefuse(t, c, gang(c, repeat(15, 4)...), v)
	if e.Placeable != 13 || e.Undecided {
		t.Errorf("placeable %d, undecided %v: %s", e.Placeable, e.Undecided, e)
	}
	if want := "of 8 nodes: 1 of a bad mood, 1 with room for only 1: of a bad mood"; !strings.Contains(e.String(), want) {
		t.Errorf("%q does not contain %q", e, want)
	}
}

type nowhere struct{}

func (nowhere) Verify(*Demand, []NodeID) ([]Limit, error) {
	return []Limit{{Class: 0, Node: NoNode, Cause: "refused by VolumeBinding: no claim"}}, nil
}

func TestPlanGivesUpAtOnceWhenAClassIsRefusedEverywhere(t *testing.T) {
	c := testCluster(t, nil, racks("r", 1, 4)...)
	e := mustRefuse(t, c, gang(c, 8), nowhere{})
	if want := "4 refused by VolumeBinding: no claim"; !strings.Contains(e.String(), want) {
		t.Errorf("%q does not contain %q", e, want)
	}
}

// contrary refuses every plan, by one node at a time.
type contrary struct{}

func (contrary) Verify(_ *Demand, nodes []NodeID) ([]Limit, error) {
	return []Limit{{Class: 0, Node: nodes[0], Max: 0, Cause: "never"}}, nil
}

func TestPlanIsBounded(t *testing.T) {
	c := testCluster(t, nil, racks("r", 10, 10)...)
	if e := mustRefuse(t, c, gang(c, 8), contrary{}); !e.Undecided {
		t.Errorf("decided on %d nodes after %d rounds", e.Nodes, maxRounds)
	}
}

func TestPlanLeavesCapacityAlone(t *testing.T) {
	c := testCluster(t, map[string]int64{"r0/n0": 3, "r1/n1": 7}, racks("r", 3, 3)...)
	gpu := c.Resource("nvidia.com/gpu")
	before := slices.Clone(c.free[gpu])
	for _, gpus := range [][]int64{{8, 4, 2, 1}, {8, 8, 8, 8, 8, 8, 8, 5, 1}, {9}, {8, 7, 7, 7, 7, 7, 7, 7, 6, 1}} {
		if _, _, err := c.Plan(gang(c, gpus...), nil); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(c.free[gpu], before) {
			t.Fatalf("planning %v changed the free GPUs from %v to %v", gpus, before, c.free[gpu])
		}
	}
}

func TestPlanWithoutNodesOrRequests(t *testing.T) {
	c := NewCluster(nil)
	if e := mustRefuse(t, c, gang(c, 1), nil); !strings.Contains(e.String(), "no nodes") {
		t.Errorf("%q", e)
	}
	c = testCluster(t, nil, "r/n")
	d := &Demand{Classes: []Class{{}}, Members: make([]Member, 2), Min: 2}
	mustPlan(t, c, d, nil)
}

package planner

import (
	"fmt"
	"slices"
	"testing"
)

// Knavigator's benchmark of network topologies: 12 nodes in a tree of three layers of switches, five
// of them busy. The best places for a job of three replicas are known.
func TestKnownOptimumOfKnavigator(t *testing.T) {
	c := NewCluster([]string{"net-layer-3", "net-layer-2", "net-layer-1"})
	var nodes []Node
	for i := range 12 {
		nodes = append(nodes, Node{
			Name:    fmt.Sprintf("n%d", i+1),
			Domains: []string{"sw31", fmt.Sprintf("sw2%d", i/4+1), fmt.Sprintf("sw1%d", i/2+1)},
		})
	}
	c.SetNodes(nodes)
	gpu, pods := c.Resource("nvidia.com/gpu"), c.Resource("pods")
	d := gang(c, 8, 8, 8)
	d.Classes[0].Blocked, d.Classes[0].Causes = make([]uint16, 12), []string{"cordoned"}
	for i := range nodes {
		id := at(t, c, nodes[i].Name)
		c.SetNode(id, []Amount{{gpu, 8}, {pods, 110}}, nil)
		if slices.Contains([]string{"n1", "n3", "n6", "n11", "n12"}, nodes[i].Name) {
			d.Classes[0].Blocked[id] = 1
		}
	}
	for _, preferred := range []string{"", "net-layer-1", "net-layer-2"} {
		d.Preferred, _ = c.Level(preferred)
		if got, want := mustPlan(t, c, d, nil), []string{"n5", "n7", "n8"}; !slices.Equal(got, want) {
			t.Errorf("preferring %q: %v, want %v", preferred, got, want)
		}
	}
	d.Required, _ = c.Level("net-layer-2")
	if got, want := mustPlan(t, c, d, nil), []string{"n5", "n7", "n8"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	d.Required, _ = c.Level("net-layer-1")
	mustRefuse(t, c, d, nil)
}

// nvl72 is a row of GB200 NVL72 racks: 18 nodes of 4 GPUs share NVLink, in the same clique.
func nvl72(t testing.TB, racks int, busy map[string]int64) *Cluster {
	t.Helper()
	c := NewCluster([]string{"block", "nvidia.com/gpu.clique"})
	var nodes []Node
	for r := range racks {
		for n := range 18 {
			nodes = append(nodes, Node{
				Name:    fmt.Sprintf("rack%d-node%d", r, n),
				Domains: []string{fmt.Sprintf("block%d", r/4), fmt.Sprintf("clique.%d", r)},
			})
		}
	}
	c.SetNodes(nodes)
	gpu, pods := c.Resource("nvidia.com/gpu"), c.Resource("pods")
	for _, n := range nodes {
		c.SetNode(at(t, c, n.Name), []Amount{{gpu, 4}, {pods, 110}}, []Amount{{gpu, busy[n.Name]}})
	}
	return c
}

func TestKnownOptimumOfNVL72(t *testing.T) {
	const block, clique = Level(1), Level(2)
	// Rack 0 has a node in use, rack 1 two GPUs of a node, rack 5 half of its nodes.
	busy := map[string]int64{"rack0-node3": 4, "rack1-node0": 2}
	for n := range 9 {
		busy[fmt.Sprintf("rack5-node%d", n)] = 4
	}
	for name, tc := range map[string]struct {
		members, slice      int
		gpus                int64
		required, preferred Level
		want                map[string]int // nodes used by clique; nil: refused
	}{
		"18 nodes, one clique":                           {members: 18, gpus: 4, required: clique, want: map[string]int{"clique.2": 18}},
		"17 nodes, the fullest":                          {members: 17, gpus: 4, required: clique, want: map[string]int{"clique.0": 17}},
		"9 nodes, the half used rack":                    {members: 9, gpus: 4, required: clique, want: map[string]int{"clique.5": 9}},
		"72 single GPUs":                                 {members: 72, gpus: 1, required: clique, want: map[string]int{"clique.2": 18}},
		"70 single GPUs":                                 {members: 70, gpus: 1, required: clique, want: map[string]int{"clique.1": 18}},
		"19 nodes in one clique":                         {members: 19, gpus: 4, required: clique},
		"four cliques of one block, three of them whole": {members: 72, gpus: 4, slice: 18, required: block},
		"three slices of 18 in one block":                {members: 54, gpus: 4, slice: 18, required: block, want: map[string]int{"clique.4": 18, "clique.6": 18, "clique.7": 18}},
		"two slices of 18 in the tightest block":         {members: 36, gpus: 4, slice: 18, required: block, want: map[string]int{"clique.4": 18, "clique.6": 18}},
		"slices of 9, two to a clique":                   {members: 63, gpus: 4, slice: 9, required: block, want: map[string]int{"clique.4": 18, "clique.5": 9, "clique.6": 18, "clique.7": 18}},
		"36 nodes prefer few cliques":                    {members: 36, gpus: 4, preferred: clique, want: map[string]int{"clique.4": 18, "clique.6": 18}},
		"72 nodes of slices over both blocks":            {members: 72, gpus: 4, slice: 18, want: map[string]int{"clique.2": 18, "clique.4": 18, "clique.6": 18, "clique.7": 18}},
	} {
		t.Run(name, func(t *testing.T) {
			c := nvl72(t, 8, busy)
			d := gang(c, repeat(tc.members, tc.gpus)...)
			d.Required, d.Preferred = tc.required, tc.preferred
			if tc.slice > 0 {
				d = slicedGang(c, tc.members, tc.slice, clique, tc.gpus)
				d.Required = tc.required
			}
			if tc.want == nil {
				mustRefuse(t, c, d, nil)
				return
			}
			got := map[string]int{}
			for _, name := range distinctNames(mustPlan(t, c, d, nil)) {
				domain, _ := c.Around(at(t, c, name), clique)
				got[c.DomainName(domain)]++
			}
			if fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// lingjun counts the hosts of a real Clos fabric by aggregation switch and then by top-of-rack switch,
// in order of their numbers; 0 where a number is not used. Alibaba published the fabric with its
// Lingjun data set of 2023: 847 hosts below 119 top-of-rack switches below 3 aggregation switches.
var lingjun = map[int][]int64{
	8: {8, 8, 6, 7, 6, 7, 8, 7, 7, 6, 7, 4, 7, 6, 6, 0, 7, 8, 5, 0, 5, 4, 6, 0, 0, 8, 7, 5, 5, 5, 6, 6, 2},
	10: {
		9, 7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7, 8, 8, 8, 8, 7, 7, 8, 8, 7, 8, 8, 7, 5, 8, 8, 8, 8, 6, 6, 7, 8, 6, 8, 8, 8,
		8, 8, 7, 3, 8, 7, 8, 8,
	},
	12: {
		7, 8, 8, 8, 8, 8, 8, 8, 8, 6, 7, 8, 8, 5, 8, 8, 8, 6, 8, 8, 8, 8, 8, 7, 8, 8, 8, 8, 8, 8, 8, 8, 2, 2, 7, 7, 8, 6, 7, 7,
		6, 8,
	},
}

func TestKnownOptimumOfAClosFabric(t *testing.T) {
	var paths []string
	switches := 0
	for _, psw := range []int{8, 10, 12} {
		for i, hosts := range lingjun[psw] {
			for h := range hosts {
				paths = append(paths, fmt.Sprintf("G6/P%d/S%d/h%d", psw, i+1, h))
			}
			if hosts > 0 {
				switches++
			}
		}
	}
	if len(paths) != 847 || switches != 119 {
		t.Fatalf("%d hosts below %d switches", len(paths), switches)
	}
	c := treeCluster(t, []string{"dsw", "psw", "asw"}, nil, paths...)
	const psw, asw = Level(2), Level(3)

	// One switch of each size: the smallest that holds the gang.
	for members, want := range map[int]string{2: "G6/P8/S33", 3: "G6/P10/S44", 4: "G6/P8/S12", 5: "G6/P8/S19", 9: "G6/P10/S1"} {
		d := gang(c, repeat(members, 8)...)
		d.Required = asw
		if got := racksOf(mustPlan(t, c, d, nil)); !slices.Equal(got, []string{want}) {
			t.Errorf("%d hosts below %v, want %s", members, got, want)
		}
	}
	d := gang(c, repeat(10, 8)...)
	d.Required = asw
	if e := mustRefuse(t, c, d, nil); e.Best.Members != 9 || c.DomainName(e.Best.Domain) != "S1" {
		t.Errorf("best %+v", e.Best)
	}

	// Larger gangs: the smallest aggregation switch that holds them, and the fewest switches there.
	for _, members := range []int{10, 64, 100, int(total(lingjun[8])), int(total(lingjun[8])) + 1, int(total(lingjun[10]))} {
		below := 0
		for _, p := range []int{8, 12, 10} { // by rising size
			if total(lingjun[p]) >= int64(members) {
				below = p
				break
			}
		}
		d := gang(c, repeat(members, 8)...)
		d.Required, d.Preferred = psw, asw
		got := racksOf(mustPlan(t, c, d, nil))
		if want := fewest(slices.Clone(lingjun[below]), int64(members)); len(got) != want || !slices.ContainsFunc(got, func(s string) bool {
			return s[:len(fmt.Sprintf("G6/P%d/", below))] == fmt.Sprintf("G6/P%d/", below)
		}) {
			t.Errorf("%d hosts below %d switches %v, want %d below P%d", members, len(got), got, want, below)
		}
	}
	d = gang(c, repeat(int(total(lingjun[10]))+1, 8)...)
	d.Required = psw
	mustRefuse(t, c, d, nil)

	// Pipelines of 8 hosts, each below one switch: as many as there are switches with 8 hosts.
	whole := 0
	for _, p := range lingjun {
		for _, hosts := range p {
			if hosts >= 8 {
				whole++
			}
		}
	}
	mustPlan(t, c, slicedGang(c, 8*whole, 8, asw, 8), nil)
	mustRefuse(t, c, slicedGang(c, 8*whole+8, 8, asw, 8), nil)
}

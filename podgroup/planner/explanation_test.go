package planner

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestExplanationSentence(t *testing.T) {
	for name, tc := range map[string]struct {
		used    map[string]int64
		tenants map[string]Tenant // by node, using what is used there
		demand  func(*Cluster) *Demand
		want    string
	}{
		"short in all": {
			used:    map[string]int64{"r0/n0": 8, "r0/n1": 2},
			tenants: map[string]Tenant{"r0/n0": {Name: "team-a/llm"}, "r0/n1": {Name: "ns/notebook", Pod: true}},
			demand:  func(c *Cluster) *Demand { return gang(c, repeat(4, 8)...) },
			want: "gang needs 4 members (with nvidia.com/gpu 8), room for 2; " +
				"short of nvidia.com/gpu: needed 32, free 22 of 32, 8 used by team-a/llm, 2 by pod ns/notebook; " +
				"of 4 nodes: 2 too little nvidia.com/gpu left; " +
				"would fit with 2 more nodes of nvidia.com/gpu 8, or once team-a/llm and pod ns/notebook end",
		},
		"many tenants": {
			used: map[string]int64{"r0/n0": 8, "r0/n1": 7, "r1/n0": 6, "r1/n1": 5, "r2/n0": 4},
			tenants: map[string]Tenant{"r0/n0": {Name: "a/1"}, "r0/n1": {Name: "a/2"}, "r1/n0": {Name: "a/3"}, "r1/n1": {Name: "a/10"},
				"r2/n0": {Name: "a/20"}},
			demand: func(c *Cluster) *Demand { return gang(c, repeat(6, 8)...) },
			want: "gang needs 6 members (with nvidia.com/gpu 8), room for 1; " +
				"short of nvidia.com/gpu: needed 48, free 18 of 48, 8 used by a/1, 7 by a/2, 6 by a/3, 9 by 2 others; " +
				"of 6 nodes: 5 too little nvidia.com/gpu left; " +
				"would fit with 5 more nodes of nvidia.com/gpu 8, or once a/1, a/2, a/3, a/10 and a/20 end",
		},
		"fragmented": {
			used: map[string]int64{"r0/n0": 4, "r0/n1": 4, "r1/n0": 4, "r1/n1": 4},
			tenants: map[string]Tenant{"r0/n0": {Name: "a/wide"}, "r0/n1": {Name: "a/wide"},
				"r1/n0": {Name: "a/left"}, "r1/n1": {Name: "a/right"}},
			demand: func(c *Cluster) *Demand { return gang(c, 8, 8) },
			want: "gang needs 2 members (with nvidia.com/gpu 8), room for 0; enough is free in all, but not on whole nodes: " +
				"nvidia.com/gpu: needed 16, free 16 of 32, 16 of it on 4 nodes in pieces too small for a member, " +
				"8 used by a/wide, 4 by a/left, 4 by a/right; of 4 nodes: 4 too little nvidia.com/gpu left; " +
				"would fit with 2 more nodes of nvidia.com/gpu 8, or once a/wide ends",
		},
		"blocked nodes by cause": {
			used: map[string]int64{"r0/n0": 8},
			demand: func(c *Cluster) *Demand {
				d := gang(c, repeat(2, 8)...)
				d.Classes[0].Causes = []string{"cordoned", "with taint dedicated=infra:NoSchedule"}
				d.Classes[0].Blocked = []uint16{0, 2, 1, 2}
				return d
			},
			want: "gang needs 2 members (with nvidia.com/gpu 8), room for 0; short of nvidia.com/gpu: needed 16, free 0 of 8; " +
				"of 4 nodes: 2 with taint dedicated=infra:NoSchedule, 1 cordoned, 1 too little nvidia.com/gpu left; " +
				"would fit with 2 more nodes of nvidia.com/gpu 8",
		},
		"no node may be used": {
			demand: func(c *Cluster) *Demand {
				d := gang(c, 8)
				d.Classes[0].Causes, d.Classes[0].Blocked = []string{"cordoned"}, []uint16{1, 1, 1, 1}
				return d
			},
			want: "gang needs 1 member (with nvidia.com/gpu 8), room for 0; of 4 nodes: 4 cordoned",
		},
		"a resource nobody has": {
			demand: func(c *Cluster) *Demand {
				d := gang(c, 1)
				d.Classes[0].Requests[0].Resource = c.Resource("amd.com/gpu")
				return d
			},
			want: "gang needs 1 member (with amd.com/gpu 1); no node has amd.com/gpu",
		},
		"larger than a node": {
			used:   map[string]int64{"r0/n0": 8},
			demand: func(c *Cluster) *Demand { return gang(c, 9) },
			want: "gang needs 1 member (with nvidia.com/gpu 9); " +
				"no node has that much: a member needs nvidia.com/gpu 9, the largest node has 8",
		},
		"two classes beside placed members": {
			used: map[string]int64{"r0/n0": 8, "r0/n1": 8, "r1/n0": 8},
			demand: func(c *Cluster) *Demand {
				d := gang(c, 1, 8)
				d.Placed = []PlacedMember{{Node: 0}, {Node: 1}}
				return d
			},
			want: "gang needs 2 more members beside 2 placed (1 with nvidia.com/gpu 1; 1 with nvidia.com/gpu 8), room for 1; " +
				"short of nvidia.com/gpu: needed 9, free 8 of 32; of 4 nodes: 3 too little nvidia.com/gpu left; " +
				"would fit with 1 more node of nvidia.com/gpu 8",
		},
		"two classes that would each fit by themselves": {
			used:   map[string]int64{"r0/n0": 2, "r0/n1": 8, "r1/n0": 8, "r1/n1": 2},
			demand: func(c *Cluster) *Demand { return gang(c, 4, 4, 3) },
			want: "gang needs 3 members (2 with nvidia.com/gpu 4; 1 with nvidia.com/gpu 3), room for 2; " +
				"enough is free in all, but not on whole nodes: nvidia.com/gpu: needed 11, free 12 of 32; " +
				"of 4 nodes: 2 too little nvidia.com/gpu left; would fit with 1 more node of nvidia.com/gpu 8",
		},
		"minResources beyond the members": {
			used:    map[string]int64{"r0/n0": 8},
			tenants: map[string]Tenant{"r0/n0": {Name: "team-a/llm"}},
			demand: func(c *Cluster) *Demand {
				d := gang(c, 1)
				d.MinResources = []Amount{{c.Resource("nvidia.com/gpu"), 25}, {c.Resource("pods"), 2}}
				return d
			},
			want: "gang needs 1 member (with nvidia.com/gpu 1); minResources asks for more than is free: " +
				"nvidia.com/gpu: needed 25, free 24 of 32, 8 used by team-a/llm; of 4 nodes: 1 too little nvidia.com/gpu left; " +
				"would fit with 1 more node of nvidia.com/gpu 8, or once team-a/llm ends",
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := racks("r", 2, 2)
			if len(tc.used) > 4 {
				nodes = racks("r", 3, 2)
			}
			c := testCluster(t, tc.used, nodes...)
			d := tc.demand(c)
			e := mustRefuse(t, c, d, nil)
			c.Advise(d, e, testTenants(c, tc.used, tc.tenants))
			if got := e.String(); got != tc.want {
				t.Errorf("\n got %q\nwant %q", got, tc.want)
			}
		})
	}
}

// testTenants says who uses the GPUs of a testCluster.
func testTenants(c *Cluster, used map[string]int64, names map[string]Tenant) occupancies {
	o := make(occupancies, c.NumNodes())
	for node, tenant := range names {
		id, _ := c.Node(node)
		o[id] = []Tenancy{{tenant, []Amount{{c.Resource("nvidia.com/gpu"), used[node]}}}}
	}
	return o
}

// A request can be as large as a number gets, and a node can claim as much.
func TestAmountsDoNotOverflow(t *testing.T) {
	c := testCluster(t, nil, racks("r", 2, 2)...)
	e := mustRefuse(t, c, gang(c, repeat(3, math.MaxInt64)...), nil)
	if want := "a member needs nvidia.com/gpu 9223372036854775807, the largest node has 8"; !strings.Contains(e.String(), want) {
		t.Errorf("%q does not contain %q", e, want)
	}
	gpu := c.Resource("nvidia.com/gpu")
	for id := range NodeID(4) {
		c.SetNode(id, []Amount{{gpu, math.MaxInt64}, {c.Resource("pods"), 110}}, nil)
	}
	mustPlan(t, c, gang(c, repeat(4, math.MaxInt64)...), nil)
	d := gang(c, 1)
	d.MinResources = []Amount{{gpu, math.MaxInt64}}
	mustPlan(t, c, d, nil)
}

func TestExplanationNamesAFewCauses(t *testing.T) {
	c := testCluster(t, nil, racks("r", 5, 5)...)
	d := gang(c, 8)
	d.Classes[0].Blocked = make([]uint16, 25)
	for i := range 25 {
		d.Classes[0].Blocked[i] = uint16(i + 1)
		d.Classes[0].Causes = append(d.Classes[0].Causes, fmt.Sprintf("with taint owner=tenant-%02d:NoSchedule", i))
	}
	e := mustRefuse(t, c, d, nil)
	if want := "1 with taint owner=tenant-04:NoSchedule, 20 for other causes"; !strings.HasSuffix(e.String(), want) {
		t.Errorf("%q does not end with %q", e, want)
	}
}

func TestSentenceIsBounded(t *testing.T) {
	c := testCluster(t, map[string]int64{"r0/n0": 8}, racks("r", 5, 5)...)
	d := gang(c, repeat(25, 8)...)
	d.Classes[0].Blocked = make([]uint16, 25)
	for i := range 10 {
		d.Classes[0].Blocked[i+1] = uint16(i + 1)
		d.Classes[0].Causes = append(d.Classes[0].Causes, fmt.Sprintf("with taint %s/owner=ü%d:NoSchedule", strings.Repeat("ä", 150), i))
	}
	e := mustRefuse(t, c, d, nil)
	c.Advise(d, e, testTenants(c, map[string]int64{"r0/n0": 8}, map[string]Tenant{"r0/n0": {Name: "team-a/llm"}}))
	all := e.String()
	for limit := range len(all) + 2 {
		got := e.Sentence(limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("%d bytes for a limit of %d: %q", len(got), limit, got)
		}
	}
	// What matters least goes first.
	short := "gang needs 25 members (with nvidia.com/gpu 8), room for 14; " +
		"short of nvidia.com/gpu: needed 200, free 112 of 120, 8 used by team-a/llm"
	help := "; would fit with 11 more nodes of nvidia.com/gpu 8"
	for limit, want := range map[int]string{len(short + help): short + help, len(short+help) - 1: short, len(all): all} {
		if got := e.Sentence(limit); got != want {
			t.Errorf("limit %d:\n got %q\nwant %q", limit, got, want)
		}
	}
}

// The sentence does not change with every millicore that is freed somewhere.
func TestSentenceIsStable(t *testing.T) {
	c := NewCluster(nil)
	var nodes []Node
	for i := range 100 {
		nodes = append(nodes, Node{Name: fmt.Sprint("n", i)})
	}
	c.SetNodes(nodes)
	cpu, memory := c.Resource("cpu"), c.Resource("memory")
	said := map[string]bool{}
	for i := range int64(1000) {
		for id := range NodeID(100) {
			c.SetNode(id, []Amount{{cpu, 64000}, {memory, 256 << 30}}, []Amount{{cpu, 48123 - i%7}, {memory, 200<<30 - i<<10}})
		}
		d := &Demand{Classes: []Class{{Requests: []Amount{{cpu, 32000}, {memory, 128 << 30}}}}, Members: make([]Member, 60), Min: 60}
		e := mustRefuse(t, c, d, nil)
		said[e.String()] = true
	}
	want := "gang needs 60 members (with cpu 32, memory 128Gi), room for 0; " +
		"short of cpu: needed 1920, free 1500 of 6400; memory: needed 7680Gi, free 5600Gi of 25Ti; of 100 nodes: 100 too little cpu left"
	if len(said) != 1 || !said[want] {
		t.Errorf("%d sentences, not only %q: %v", len(said), want, said)
	}
}

func TestNoun(t *testing.T) {
	for label, want := range map[string]string{
		"example.com/rack":                       "rack (example.com/rack)",
		"rack":                                   "rack",
		"topology.kubernetes.io/zone":            "zone (topology.kubernetes.io/zone)",
		"cloud.google.com/gce-topology-subblock": "subblock (cloud.google.com/gce-topology-subblock)",
		"topology.k8s.aws/network-node-layer-1":  "network-node-layer-1 (topology.k8s.aws/network-node-layer-1)",
		"nvidia.com/gpu.clique":                  "clique (nvidia.com/gpu.clique)",
		"kubernetes.io/hostname":                 "node (kubernetes.io/hostname)",
		"odd-":                                   "odd-",
		"oci.oraclecloud.com/host.rack_id":       "host.rack_id (oci.oraclecloud.com/host.rack_id)",
	} {
		if got := level(label); got != want {
			t.Errorf("%s: %q, want %q", label, got, want)
		}
	}
}

func TestFormatAmount(t *testing.T) {
	for _, tc := range []struct {
		name  string
		value int64
		want  string
	}{
		{"cpu", 1500, "1500m"},
		{"cpu", 64000, "64"},
		{"memory", 256 << 30, "256Gi"},
		{"memory", 1<<30 + 1, "1073741825"},
		{"hugepages-2Mi", 4 << 20, "4Mi"},
		{"nvidia.com/gpu", 8, "8"},
	} {
		if got := FormatAmount(tc.name, tc.value); got != tc.want {
			t.Errorf("%s %d: got %s, want %s", tc.name, tc.value, got, tc.want)
		}
	}
}

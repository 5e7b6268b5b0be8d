package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// treeCluster builds a cluster of nodes named by their path, "z0/r1/n2", each with 8 GPUs, of which
// used ones are taken. A path element that is "-" leaves the node outside the level.
func treeCluster(t testing.TB, levels []string, used map[string]int64, paths ...string) *Cluster {
	t.Helper()
	c := NewCluster(levels)
	nodes := make([]Node, len(paths))
	for i, path := range paths {
		nodes[i].Name = path
		for _, value := range strings.Split(path, "/")[:len(levels)] {
			nodes[i].Domains = append(nodes[i].Domains, strings.Trim(value, "-"))
		}
	}
	c.SetNodes(nodes)
	gpu, pods := c.Resource("nvidia.com/gpu"), c.Resource("pods")
	for _, path := range paths {
		id, _ := c.Node(path)
		c.SetNode(id, []Amount{{gpu, 8}, {pods, 110}}, []Amount{{gpu, used[path]}})
	}
	return c
}

// grid names zones times racks times nodes.
func grid(zones, racks, nodes int) []string {
	var out []string
	for z := range zones {
		for r := range racks {
			for n := range nodes {
				out = append(out, fmt.Sprintf("z%d/r%d/n%d", z, r, n))
			}
		}
	}
	return out
}

func take(names []string, gpus int64) map[string]int64 {
	used := map[string]int64{}
	for _, name := range names {
		used[name] = gpus
	}
	return used
}

// slicedGang is a gang of one set in slices.
func slicedGang(c *Cluster, members, size int, l Level, gpus int64) *Demand {
	d := gang(c, repeat(members, gpus)...)
	d.Sets = []Set{{SliceSize: size, SliceLevel: l}}
	for i := range d.Members {
		d.Members[i].Slice = i / size
	}
	return d
}

func at(t testing.TB, c *Cluster, name string) NodeID {
	t.Helper()
	id, ok := c.Node(name)
	if !ok {
		t.Fatalf("no node %s", name)
	}
	return id
}

const (
	zone Level = 1
	rack Level = 2
	host Level = 3
)

var zoneRack = []string{"zone", "rack"}

// racksOf lists the racks that nodes are in, in the order of the members.
func racksOf(names []string) []string {
	var out []string
	for _, name := range names {
		if rack := name[:strings.LastIndex(name, "/")]; !slices.Contains(out, rack) {
			out = append(out, rack)
		}
	}
	return out
}

func TestRequiredLevelIsNeverLeft(t *testing.T) {
	c := treeCluster(t, zoneRack, take([]string{"z0/r0/n0", "z1/r0/n0", "z1/r0/n1"}, 8), grid(2, 2, 3)...)
	d := gang(c, repeat(3, 8)...)
	d.Required = rack
	if got, want := racksOf(mustPlan(t, c, d, nil)), []string{"z0/r1"}; !slices.Equal(got, want) {
		t.Errorf("racks %v, want %v", got, want)
	}
	d = gang(c, repeat(4, 8)...)
	d.Required = rack
	if e := mustRefuse(t, c, d, nil); e.Placeable != 3 || e.Best != (Room{Domain{rack, at(t, c, "z0/r1/n0"), at(t, c, "z0/r1/n2") + 1}, 3}) {
		t.Errorf("placeable %d, best %+v", e.Placeable, e.Best)
	}
	d.Required = zone
	if got, want := racksOf(mustPlan(t, c, d, nil)), []string{"z1/r0", "z1/r1"}; !slices.Equal(got, want) {
		t.Errorf("racks %v, want %v, the zone with the least room", got, want)
	}
	d = gang(c, repeat(2, 8)...)
	d.Required = host
	mustRefuse(t, c, d, nil)
	d = gang(c, repeat(2, 4)...)
	d.Required = host
	if got := distinctNames(mustPlan(t, c, d, nil)); len(got) != 1 {
		t.Errorf("one host is required: %v", got)
	}
}

func distinctNames(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	return slices.Compact(out)
}

func TestNodesOutsideARequiredLevelAreOfNoUse(t *testing.T) {
	c := treeCluster(t, zoneRack, nil, "z0/-/n0", "z0/-/n1", "-/r0/n0", "-/r0/n1", "z0/r1/n0")
	for _, tc := range []struct {
		required Level
		members  int
		want     []string // nil: refused
	}{
		{rack, 2, []string{"-/r0/n0", "-/r0/n1"}},
		{rack, 3, nil},
		{zone, 3, []string{"z0/r1/n0", "z0/-/n0", "z0/-/n1"}},
		{zone, 4, nil},
		{WholeCluster, 5, []string{"z0/r1/n0", "z0/-/n0", "z0/-/n1", "-/r0/n0", "-/r0/n1"}},
	} {
		d := gang(c, repeat(tc.members, 8)...)
		d.Required = tc.required
		if tc.want == nil {
			mustRefuse(t, c, d, nil)
		} else if got := mustPlan(t, c, d, nil); !slices.Equal(got, tc.want) {
			t.Errorf("%d members in one %s: %v, want %v", tc.members, c.LevelName(tc.required), got, tc.want)
		}
	}
}

// Late, replaced and surplus members never leave the gang's domain either.
func TestPlacedMembersHoldTheRequiredDomain(t *testing.T) {
	c := treeCluster(t, zoneRack, take([]string{"z0/r0/n0", "z0/r0/n1"}, 8), grid(1, 2, 4)...)
	d := gang(c, repeat(2, 8)...)
	d.Required, d.Placed = rack, []PlacedMember{{Node: at(t, c, "z0/r0/n0")}, {Node: at(t, c, "z0/r0/n1")}}
	if got, want := mustPlan(t, c, d, nil), []string{"z0/r0/n2", "z0/r0/n3"}; !slices.Equal(got, want) {
		t.Errorf("late members are on %v, want %v", got, want)
	}
	d.Members = append(d.Members, Member{}, Member{})
	if got, want := mustPlan(t, c, d, nil), []string{"z0/r0/n2", "z0/r0/n3", "", ""}; !slices.Equal(got, want) {
		t.Errorf("surplus members are on %v, want %v", got, want)
	}
	d.Min = 3
	if e := mustRefuse(t, c, d, nil); e.Placeable != 2 || c.DomainName(e.Best.Domain) != "r0" || e.Best.Members != 2 {
		t.Errorf("placeable %d, best %+v", e.Placeable, e.Best)
	}
	d.Min, d.Placed = 1, append(d.Placed, PlacedMember{Node: at(t, c, "z0/r1/n0")})
	if e := mustRefuse(t, c, d, nil); e.Best != (Room{}) {
		t.Errorf("best %+v for members in two racks", e.Best)
	}
}

// Members of one class open no rack that those of another do not need.
func TestClassesShareDomains(t *testing.T) {
	used := take([]string{"z0/r2/n0", "z0/r2/n1", "z0/r2/n2"}, 6) // where two small members would fit best
	c := treeCluster(t, zoneRack, used, grid(1, 3, 3)...)
	if got, want := racksOf(mustPlan(t, c, gang(c, 8, 8, 8, 8, 2, 2), nil)), []string{"z0/r0", "z0/r1"}; !slices.Equal(got, want) {
		t.Errorf("racks %v, want %v", got, want)
	}
}

// A replaced member goes where the gang is already, not where the tightest hole is.
func TestReplacedMembersOpenNoFurtherDomain(t *testing.T) {
	used := take([]string{"z0/r2/n0", "z0/r2/n1"}, 8)
	used["z0/r2/n2"], used["z0/r0/n0"], used["z0/r1/n0"] = 6, 6, 6
	c := treeCluster(t, zoneRack, used, grid(2, 3, 3)...)
	d := gang(c, 2)
	d.Placed = []PlacedMember{{Node: at(t, c, "z0/r0/n0")}, {Node: at(t, c, "z0/r1/n0")}}
	d.Classes[0].Blocked = make([]uint16, c.NumNodes())
	d.Classes[0].Causes = []string{"cordoned"}
	if got := mustPlan(t, c, d, nil); got[0] != "z0/r0/n0" {
		t.Errorf("on %s, want a node of the gang", got[0])
	}
	d.Classes[0].Blocked[at(t, c, "z0/r0/n0")], d.Classes[0].Blocked[at(t, c, "z0/r1/n0")] = 1, 1
	for _, preferred := range []Level{WholeCluster, rack} {
		d.Preferred = preferred
		if got := racksOf(mustPlan(t, c, d, nil)); !slices.Equal(got, []string{"z0/r0"}) {
			t.Errorf("preferring %s: in %v, want a rack of the gang", c.LevelName(preferred), got)
		}
	}
	// More than the gang's racks hold goes there first, and the rest into one other rack.
	d = gang(c, repeat(6, 8)...)
	d.Placed = []PlacedMember{{Node: at(t, c, "z0/r0/n0")}, {Node: at(t, c, "z0/r1/n0")}}
	if got, want := racksOf(mustPlan(t, c, d, nil)), []string{"z0/r0", "z0/r1", "z1/r0"}; !slices.Equal(got, want) {
		t.Errorf("racks %v, want %v", got, want)
	}
}

func TestPreferredLevel(t *testing.T) {
	full := func(names ...string) map[string]int64 { return take(names, 8) }
	for name, tc := range map[string]struct {
		used                map[string]int64
		members             int
		gpus                int64
		required, preferred Level
		want                []string
	}{
		"none: a single node that fits comes first": {
			used: full("z1/r0/n0"), members: 2, gpus: 4,
			want: []string{"z0/r0/n0", "z0/r0/n0"},
		},
		"rack: the tightest rack comes before any node": {
			used: full("z1/r0/n0"), members: 2, gpus: 4, preferred: rack,
			want: []string{"z1/r0/n1", "z1/r0/n1"},
		},
		"rack: climbs to one zone before two": {
			used: full("z0/r0/n0", "z1/r1/n0"), members: 3, gpus: 8, preferred: rack,
			want: []string{"z0/r0/n1", "z0/r1/n0", "z0/r1/n1"},
		},
		"zone: any rack of the tightest zone": {
			used: full("z1/r0/n0"), members: 2, gpus: 8, preferred: zone,
			want: []string{"z1/r1/n0", "z1/r1/n1"},
		},
		"required and preferred: no higher than required": {
			used: full("z0/r0/n0", "z0/r1/n0", "z1/r1/n0"), members: 3, gpus: 8, required: zone, preferred: rack,
			want: []string{"z1/r0/n0", "z1/r0/n1", "z1/r1/n1"},
		},
		"preferred outside required means required": {
			used: full("z0/r0/n0"), members: 2, gpus: 8, required: rack, preferred: zone,
			want: []string{"z0/r1/n0", "z0/r1/n1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := treeCluster(t, zoneRack, tc.used, grid(2, 2, 2)...)
			d := gang(c, repeat(tc.members, tc.gpus)...)
			d.Required, d.Preferred = tc.required, tc.preferred
			if got := mustPlan(t, c, d, nil); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// Without a preferred level a gang that spans zones uses few zones, then few racks in each; with one
// it uses few racks, wherever they are.
func TestPreferredLevelCountsItsDomains(t *testing.T) {
	// z0 has 6 free nodes in 6 racks, z1 and z2 have a rack of 4 free nodes each.
	var paths []string
	for r := range 6 {
		paths = append(paths, fmt.Sprintf("z0/r%d/n0", r))
	}
	for n := range 4 {
		paths = append(paths, fmt.Sprintf("z1/r0/n%d", n), fmt.Sprintf("z2/r0/n%d", n))
	}
	c := treeCluster(t, zoneRack, nil, paths...)
	d := gang(c, repeat(8, 8)...)
	if got := racksOf(mustPlan(t, c, d, nil)); len(got) != 7 {
		t.Errorf("without a preference: racks %v, want six of the largest zone and one more", got)
	}
	d.Preferred = rack
	if got := racksOf(mustPlan(t, c, d, nil)); !slices.Equal(got, []string{"z1/r0", "z2/r0"}) {
		t.Errorf("preferring racks: racks %v", got)
	}
}

func TestShapeAndPreferencesBreakTies(t *testing.T) {
	names := []string{"z0/r0/n0", "z0/r0/n1", "z0/r0/n2", "z0/r0/n3"}
	used := map[string]int64{"z0/r0/n0": 6, "z0/r0/n1": 5, "z0/r0/n3": 5} // 2, 3, 8, 3 free
	c := treeCluster(t, zoneRack, used, names...)
	if got := mustPlan(t, c, gang(c, 1), nil); got[0] != "z0/r0/n1" {
		t.Errorf("one GPU of %s, want the node with a single one besides two", got[0])
	}
	d := gang(c, 1)
	d.Classes[0].Score = []int32{0, 0, 5, 1}
	if got := mustPlan(t, c, d, nil); got[0] != "z0/r0/n3" {
		t.Errorf("one GPU of %s, want the one of two alike that is preferred", got[0])
	}
	if got := mustPlan(t, c, gang(c, 2), nil); got[0] != "z0/r0/n0" {
		t.Errorf("two GPUs of %s, want the node with just two", got[0])
	}
	// Nine GPUs in ones: the whole node, and the ninth where it is left over, not in the pair.
	got := mustPlan(t, c, gang(c, repeat(9, 1)...), nil)
	if want := []string{"z0/r0/n1", "z0/r0/n2"}; !slices.Equal(distinctNames(got), want) {
		t.Errorf("nine GPUs of %v, want %v", distinctNames(got), want)
	}
	// Racks that are equal otherwise are chosen by what the pods prefer.
	c = treeCluster(t, zoneRack, nil, grid(1, 3, 2)...)
	d = gang(c, 8, 8)
	d.Classes[0].Score = []int32{0, 0, 0, 1, 0, 0}
	if got, want := racksOf(mustPlan(t, c, d, nil)), []string{"z0/r1"}; !slices.Equal(got, want) {
		t.Errorf("racks %v, want %v", got, want)
	}
}

func TestCandidatesInOrderOfChoice(t *testing.T) {
	c := treeCluster(t, zoneRack, take([]string{"z0/r0/n0", "z1/r0/n0"}, 4), grid(2, 2, 2)...)
	names := func(d *Demand) []string {
		var out []string
		for domain := range c.Candidates(d) {
			out = append(out, c.LevelName(domain.Level)+" "+c.DomainName(domain))
		}
		return out
	}
	d := gang(c, 8, 8)
	if got, want := names(d), []string{"rack r1", "rack r1", "zone z0", "zone z1", "cluster cluster"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	d.Required = rack
	if got, want := names(d), []string{"rack r1", "rack r1"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	d = gang(c, 4)
	d.Placed = []PlacedMember{{Node: at(t, c, "z0/r0/n0")}}
	if got, want := names(d), []string{"kubernetes.io/hostname z0/r0/n0", "rack r0", "zone z0", "cluster cluster"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for range c.Candidates(d) {
		break
	}
}

// A set that has room by itself is not what keeps its gang from its place.
func TestRoomForAGangInWhichOneSetFits(t *testing.T) {
	c := treeCluster(t, nil, map[string]int64{"n1": 1, "n2": 1}, "n0", "n1", "n2")
	d := gang(c, 8, 8, 1, 1, 1)
	d.Classes = append(d.Classes, d.Classes[1])
	d.Sets = []Set{{}, {}, {Required: c.NodeLevel(), SliceSize: 3}}
	d.Members[1].Set = 1
	for i := 2; i < 5; i++ {
		d.Members[i].Set = 2
	}
	d.Members[4].Class = 2
	if e := mustRefuse(t, c, d, nil); e.Placeable != 1 || e.Asked != 5 {
		t.Errorf("room for %d of %d: %s", e.Placeable, e.Asked, e)
	}
}

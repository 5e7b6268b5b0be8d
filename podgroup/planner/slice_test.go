package planner

import (
	"slices"
	"testing"
)

func TestSlicesStayInOneDomain(t *testing.T) {
	// Racks of 3 nodes: one slice of 2 members in each, whatever is left over.
	c := treeCluster(t, zoneRack, nil, grid(2, 2, 3)...)
	d := slicedGang(c, 8, 2, rack, 8)
	if got, want := mustPlan(t, c, d, nil), []string{
		"z0/r0/n0", "z0/r0/n1", "z0/r1/n0", "z0/r1/n1", "z1/r0/n0", "z1/r0/n1", "z1/r1/n0", "z1/r1/n1",
	}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if e := mustRefuse(t, c, slicedGang(c, 10, 2, rack, 8), nil); e.Placeable != 8 || e.Best.Members != 8 {
		t.Errorf("placeable %d, best %+v", e.Placeable, e.Best)
	}
	d.Required = zone
	if e := mustRefuse(t, c, d, nil); e.Placeable != 4 || e.Best.Members != 4 {
		t.Errorf("placeable %d, best %+v within a zone", e.Placeable, e.Best)
	}
	d = slicedGang(c, 4, 2, rack, 8)
	d.Required = zone
	if got, want := racksOf(mustPlan(t, c, d, nil)), []string{"z0/r0", "z0/r1"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	d = slicedGang(c, 6, 2, host, 4)
	if got, want := mustPlan(t, c, d, nil), []string{"z0/r0/n0", "z0/r0/n0", "z0/r0/n1", "z0/r0/n1", "z0/r0/n2", "z0/r0/n2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	mustRefuse(t, c, slicedGang(c, 2, 2, host, 8), nil)
}

func TestSlicesWithPlacedMembersContinueThere(t *testing.T) {
	c := treeCluster(t, zoneRack, take([]string{"z0/r1/n0"}, 8), grid(1, 3, 3)...)
	d := slicedGang(c, 6, 3, rack, 8)
	// Slice 1 has a member in r1, so that its two others go there, and slice 0 anywhere else.
	d.Placed = []PlacedMember{{Node: at(t, c, "z0/r1/n0"), Slice: 1}}
	d.Members = d.Members[:5]
	d.Min = 5
	if got, want := mustPlan(t, c, d, nil), []string{"z0/r0/n0", "z0/r0/n1", "z0/r0/n2", "z0/r1/n1", "z0/r1/n2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// Where there is no room for them, they go nowhere else.
	c.Take(at(t, c, "z0/r1/n1"), []Amount{{c.Resource("nvidia.com/gpu"), 1}})
	if e := mustRefuse(t, c, d, nil); e.Placeable != 3 || e.Best.Members != 3 {
		t.Errorf("placeable %d, best %+v", e.Placeable, e.Best)
	}
	// Members of one slice in two racks cannot be made right by more of them.
	d.Placed = append(d.Placed, PlacedMember{Node: at(t, c, "z0/r2/n0"), Slice: 1})
	d.Members, d.Min = []Member{{Slice: 1}}, 1
	mustRefuse(t, c, d, nil)
}

func TestSlicesOfSeveralClasses(t *testing.T) {
	// Slices of one member with 8 GPUs and two with 4: two nodes. A rack of 3 holds one slice.
	c := treeCluster(t, zoneRack, nil, grid(1, 3, 3)...)
	d := gang(c, 8, 4, 4, 8, 4, 4, 8, 4, 4)
	d.Sets = []Set{{SliceSize: 3, SliceLevel: rack}}
	for i := range d.Members {
		d.Members[i].Slice = i / 3
	}
	got := mustPlan(t, c, d, nil)
	if want := []string{"z0/r0", "z0/r1", "z0/r2"}; !slices.Equal(racksOf(got), want) {
		t.Errorf("got %v", got)
	}
	for s := range 3 {
		if len(racksOf(got[3*s:3*s+3])) != 1 {
			t.Errorf("slice %d is on %v", s, got[3*s:3*s+3])
		}
	}
	d.Members = append(d.Members, Member{Class: 0, Slice: 3}, Member{Class: 1, Slice: 3}, Member{Class: 1, Slice: 3})
	d.Min = 12
	if e := mustRefuse(t, c, d, nil); e.Placeable != 9 {
		t.Errorf("placeable %d", e.Placeable)
	}
}

func TestSurplusIsPlacedInWholeSlices(t *testing.T) {
	c := treeCluster(t, zoneRack, take([]string{"z0/r0/n0"}, 8), grid(1, 3, 3)...)
	d := slicedGang(c, 12, 2, rack, 8)
	d.Min = 2
	got := mustPlan(t, c, d, nil)
	if placed := slices.Index(got, ""); placed != 6 {
		t.Errorf("placed %d, want the three slices there is room for: %v", placed, got)
	}
	d.Min = 5 // in the middle of a slice, which is needed whole then
	if placed := slices.Index(mustPlan(t, c, d, nil), ""); placed != 6 {
		t.Errorf("placed %d", placed)
	}
}

func TestSetsEachInADomainOfTheirOwn(t *testing.T) {
	// A gang of a leader and two groups of workers, each group in one rack, all in one zone.
	c := treeCluster(t, zoneRack, take([]string{"z0/r0/n0", "z0/r0/n1"}, 8), grid(2, 3, 3)...)
	d := gang(c, 8, 8, 8, 8, 8, 8, 8)
	d.Required = zone
	d.Sets = []Set{{}, {Required: rack}, {Required: rack}}
	for i := range d.Members {
		d.Members[i].Set = (i + 2) / 3
	}
	got := mustPlan(t, c, d, nil)
	for s, want := range [][]string{{"z0/r0"}, {"z0/r1"}, {"z0/r2"}} {
		var names []string
		for i, name := range got {
			if d.Members[i].Set == s {
				names = append(names, name)
			}
		}
		if !slices.Equal(racksOf(names), want) {
			t.Errorf("set %d is on %v, want %v", s, names, want)
		}
	}
	// One more member of a set is one too many for a rack.
	d.Members = append(d.Members, Member{Set: 2})
	d.Min = len(d.Members)
	mustRefuse(t, c, d, nil)
}

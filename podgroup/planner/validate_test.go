package planner

import (
	"math"
	"strings"
	"testing"
)

// Demands that no gang can have are errors that name the field, and never a panic.
func TestPlanRejectsDemandsThatNoGangHas(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(c *Cluster, d *Demand)
		want   string
	}{
		{"no members", func(_ *Cluster, d *Demand) { d.Members = nil }, "demand.Members: there are none to place"},
		{"no minimum", func(_ *Cluster, d *Demand) { d.Min = 0 }, "demand.Min: 0 is not from 1 to the number of members, 2"},
		{"minimum beyond members", func(_ *Cluster, d *Demand) { d.Min = 3 }, "demand.Min: 3 is not from 1"},
		{"class out of range", func(_ *Cluster, d *Demand) { d.Members[1].Class = 1 }, "demand.Members[1].Class: 1 is none of the 1 classes"},
		{"negative class", func(_ *Cluster, d *Demand) { d.Members[0].Class = -1 }, "demand.Members[0].Class: -1"},
		{"set without sets", func(_ *Cluster, d *Demand) { d.Members[0].Set = 1 }, "demand.Members[0].Set: 1 is none of the 1 sets"},
		{"set out of range", func(_ *Cluster, d *Demand) { d.Sets, d.Members[0].Set = make([]Set, 2), 2 }, "demand.Members[0].Set: 2 is none of the 2 sets"},
		{"negative slice size", func(_ *Cluster, d *Demand) { d.Sets = []Set{{SliceSize: -1}} }, "demand.Sets[0].SliceSize: -1 is negative"},
		{"placed nowhere", func(_ *Cluster, d *Demand) { d.Placed = []PlacedMember{{Node: NoNode}} }, "demand.Placed[0].Node: -1 is none of the 2 nodes"},
		{"placed out of range", func(_ *Cluster, d *Demand) { d.Placed = []PlacedMember{{}, {Node: 2}} }, "demand.Placed[1].Node: 2"},
		{"placed in no set", func(_ *Cluster, d *Demand) { d.Placed = []PlacedMember{{Set: -1}} }, "demand.Placed[0].Set: -1"},
		{"request of nothing", func(_ *Cluster, d *Demand) { d.Classes[0].Requests[0].Value = 0 }, "demand.Classes[0].Requests[0]: nvidia.com/gpu 0 is not positive"},
		{"negative request", func(_ *Cluster, d *Demand) { d.Classes[0].Requests[1].Value = math.MinInt64 }, "demand.Classes[0].Requests[1]: pods -9223372036854775808 is not positive"},
		{"requested twice", func(_ *Cluster, d *Demand) { d.Classes[0].Requests[1] = d.Classes[0].Requests[0] }, "demand.Classes[0].Requests[1]: nvidia.com/gpu is requested twice"},
		{"unknown resource", func(_ *Cluster, d *Demand) { d.Classes[0].Requests[0].Resource = 99 }, "demand.Classes[0].Requests[0].Resource: there is no column 99"},
		{"rules of other nodes", func(_ *Cluster, d *Demand) { d.Classes[0].Blocked = make([]uint16, 3) }, "demand.Classes[0].Blocked: has 3 entries for 2 nodes"},
		{"scores of other nodes", func(_ *Cluster, d *Demand) { d.Classes[0].Score = make([]int32, 1) }, "demand.Classes[0].Score: has 1 entries for 2 nodes"},
		{"unknown minResources", func(_ *Cluster, d *Demand) { d.MinResources = []Amount{{-1, 1}} }, "demand.MinResources[0].Resource: there is no column -1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := testCluster(t, nil, racks("r", 1, 2)...)
			d := gang(c, 1, 1)
			tc.change(c, d)
			p, e, err := c.Plan(d, nil)
			if p != nil || e != nil || err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("plan %v, explanation %v, error %v, want %s", p, e, err, tc.want)
			}
			if again := c.Validate(d); again == nil || err != nil && again.Error() != err.Error() {
				t.Errorf("Validate: %v, Plan: %v", again, err)
			}
		})
	}
}

// What is strange and yet means something is planned or refused as usual.
func TestStrangeDemandsAreAnswered(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(c *Cluster, d *Demand)
		places bool
	}{
		{"levels there are not", func(_ *Cluster, d *Demand) { d.Required, d.Preferred = 99, -99 }, true},
		{"huge slice size", func(_ *Cluster, d *Demand) { d.Sets = []Set{{SliceSize: math.MaxInt, SliceLevel: 99}} }, true},
		{"slice numbers there are not", func(_ *Cluster, d *Demand) {
			d.Sets, d.Members[0].Slice, d.Members[1].Slice = []Set{{SliceSize: 1}}, math.MinInt, math.MaxInt
		}, true},
		{"no requests", func(_ *Cluster, d *Demand) { d.Classes[0].Requests = nil }, true},
		{"largest request", func(_ *Cluster, d *Demand) { d.Classes[0].Requests[0].Value = math.MaxInt64 }, false},
		{"overcommitted nodes", func(c *Cluster, _ *Demand) {
			for id := range NodeID(2) {
				c.SetNode(id, nil, []Amount{{c.Resource("nvidia.com/gpu"), math.MaxInt64}})
			}
		}, false},
		{"negative minResources", func(c *Cluster, d *Demand) { d.MinResources = []Amount{{c.Resource("cpu"), math.MinInt64}} }, true},
		{"largest minResources", func(c *Cluster, d *Demand) {
			d.MinResources = []Amount{{c.Resource("nvidia.com/gpu"), math.MaxInt64}}
		}, false},
		{"no nodes", func(c *Cluster, _ *Demand) { c.SetNodes(nil) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := testCluster(t, nil, racks("r", 1, 2)...)
			d := gang(c, 1, 1)
			tc.change(c, d)
			p, e, err := c.Plan(d, nil)
			if err != nil || (p != nil) != tc.places || (e != nil) == tc.places {
				t.Fatalf("plan %v, explanation %v, error %v", p, e, err)
			}
			if e != nil {
				c.Advise(d, e, nil)
				c.Watch(d, e).CouldHelp(Change{Node: "r0/n0", Freed: []ResourceAmount{{"nvidia.com/gpu", math.MaxInt64}}})
				t.Log(e)
			}
		})
	}
}

package planner

import (
	"fmt"
	"testing"
)

// In steady state planning allocates nothing, whatever the gang asks for.
func TestPlanningAllocatesNothing(t *testing.T) {
	c := benchCluster(2000)
	for _, tc := range benchGangs {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.gang(c, 128)
			plan := func() {
				if p, e, _ := c.Plan(d, nil); p == nil {
					t.Fatal(e)
				}
			}
			plan()
			if allocs := testing.AllocsPerRun(5, plan); allocs > 0 {
				t.Errorf("%v allocations", allocs)
			}
		})
	}
}

// A plan does not depend on what was planned before it.
func TestPlansDoNotDependOnHistory(t *testing.T) {
	used := benchCluster(2000)
	for range 2 {
		for _, tc := range benchGangs {
			for _, members := range []int{8, 128, 640} {
				fresh := benchCluster(2000)
				a, _, _ := used.Plan(tc.gang(used, members), nil)
				b, _, _ := fresh.Plan(tc.gang(fresh, members), nil)
				if fmt.Sprint(a) != fmt.Sprint(b) {
					t.Errorf("%s of %d: %v after other plans, %v at first", tc.name, members, a, b)
				}
			}
		}
	}
}

// The memory of a search for victims is kept: what is allocated does not grow with nodes, victims or members.
func TestPreemptingAllocatesLittle(t *testing.T) {
	for _, members := range []int{10, 200} {
		c, victims := benchVictims(2000, 400, 1, 8)
		d := benchGang(c, members, 8)
		preempt := func() {
			if p, e, _ := c.Preempt(d, nil, victims); p == nil || len(p.Victims) != members {
				t.Fatal(p, e)
			}
		}
		preempt()
		if allocs := testing.AllocsPerRun(5, preempt); allocs > 40 {
			t.Errorf("%v allocations for %d members", allocs, members)
		}
	}
}

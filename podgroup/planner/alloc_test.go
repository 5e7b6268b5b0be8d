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

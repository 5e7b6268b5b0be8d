package planner

import (
	"fmt"
	"testing"
)

// benchTenants has gangs of 16 nodes that use what benchCluster has booked, and a pod on each node.
func benchTenants(c *Cluster) occupancies {
	o := make(occupancies, c.NumNodes())
	gpu, cpu, pods := c.Resource("nvidia.com/gpu"), c.Resource("cpu"), c.Resource("pods")
	for i := range o {
		id := NodeID(i)
		if used := c.capacity[gpu][id] - c.free[gpu][id]; used > 0 {
			o[i] = append(o[i], Tenancy{Tenant{Name: fmt.Sprintf("team/job-%d", i/64)}, []Amount{{gpu, used}, {pods, 1}}})
		}
		o[i] = append(o[i], Tenancy{Tenant{Name: fmt.Sprintf("kube-system/agent-%d", i), Pod: true}, []Amount{{cpu, 100}, {pods, 1}}})
	}
	return o
}

// BenchmarkExplain is what a refusal costs besides finding out that there is no place, what Watch adds,
// and what Advise does.
func BenchmarkExplain(b *testing.B) {
	for _, nodes := range []int{5000, 50000} {
		c := benchCluster(nodes)
		tenants := benchTenants(c)
		rack, _ := c.Level("rack")
		for _, tc := range []struct {
			name string
			d    *Demand
		}{
			{"too large a request", benchGang(c, 512, 16)},
			{"all nodes", benchGang(c, nodes, 8)},
			{"a rack", func() *Demand { d := benchGang(c, 13, 8); d.Required = rack; return d }()},
			{"slices in racks", benchSlices(c, nodes/16*8+16, 8, 8, "rack")},
			{"two classes", func() *Demand {
				d := benchGang(c, nodes/4*5, 8)
				d.Classes = append(d.Classes, benchClass(c, 4))
				for i := range nodes / 3 {
					d.Members[i].Class = 1
				}
				return d
			}()},
		} {
			run := func(what string, f func()) {
				b.Run(fmt.Sprintf("%s/%s/nodes=%d/members=%d", what, tc.name, nodes, len(tc.d.Members)), func(b *testing.B) {
					defer reportCPU(b)()
					for b.Loop() {
						f()
					}
				})
			}
			l := newLearned(len(tc.d.Classes))
			c.prepare(tc.d)
			c.countBlocks(tc.d, l)
			if c.placeMost(tc.d, l) {
				b.Fatalf("%s: placed", tc.name)
			}
			e := c.explain(tc.d, l)
			run("explain", func() {
				c.prepare(tc.d)
				c.countBlocks(tc.d, l)
				c.explain(tc.d, l)
			})
			run("watch", func() { c.Watch(tc.d, e) })
			run("advise", func() { c.Advise(tc.d, e, tenants) })
			run("string", func() { _ = e.String() })
			b.Log(e)
		}
	}
}

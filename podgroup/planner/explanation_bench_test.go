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

// BenchmarkExplain is what a refusal costs besides planning, what Watch adds, and Advise.
func BenchmarkExplain(b *testing.B) {
	for _, nodes := range []int{5000, 50000} {
		c := benchCluster(nodes)
		tenants := benchTenants(c)
		for name, members := range map[string]int{"512": 512, "all": nodes} {
			d := benchGang(c, members, 8)
			if members == 512 {
				d = benchGang(c, members, 16) // larger than a node
			}
			l := newLearned(1)
			run := func(what string, f func()) {
				b.Run(fmt.Sprintf("%s/nodes=%d/members=%s", what, nodes, name), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						f()
					}
				})
			}
			c.prepare(d)
			c.countBlocks(d, l)
			e := c.explain(d, l)
			run("explain", func() { c.explain(d, l) })
			run("watch", func() { c.Watch(d, e) })
			run("advise", func() { c.Advise(d, e, tenants) })
			run("string", func() { _ = e.String() })
			b.Log(e)
		}
	}
}

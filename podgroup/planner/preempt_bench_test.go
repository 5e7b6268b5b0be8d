package planner

import (
	"fmt"
	"testing"
)

// benchVictims is a cluster in which every node is full: of victims on as many nodes as there are, each of span
// pods with so many GPUs, and otherwise of pods that stay.
func benchVictims(nodes, victims, span int, gpus int64) (*Cluster, []Victim) {
	c := benchCluster(nodes)
	gpu, pods := c.Resource("nvidia.com/gpu"), c.Resource("pods")
	all := make([]Victim, victims)
	each := int(8 / gpus) // pods on a node
	for i := range all {
		all[i] = Victim{Tenant: Tenant{Name: fmt.Sprint("ns/", i)}, Priority: int32(i % 3), Lost: int64(i * 7919 % 1000), Pods: span}
		for p := range span {
			node := NodeID((i*span + p) / each % nodes * 7 % nodes) // scattered
			used := []Amount{{gpu, gpus}, {pods, 1}}
			c.SetNode(node, []Amount{{gpu, 8}, {c.Resource("cpu"), 192000}, {c.Resource("memory"), 2 << 40}, {pods, 110}}, []Amount{{gpu, 8}, {pods, 5 + 8}})
			if n := len(all[i].On); n > 0 && all[i].On[n-1].Node == node {
				used = all[i].On[n-1].Used
				used[0].Value, used[1].Value = used[0].Value+gpus, used[1].Value+1
				continue
			}
			all[i].On = append(all[i].On, Occupancy{node, used})
		}
	}
	for id := range NodeID(nodes) {
		c.Take(id, []Amount{{gpu, c.Free(id, gpu)}})
	}
	return c, all
}

// BenchmarkPreempt is the table of docs/planner.md.
func BenchmarkPreempt(b *testing.B) {
	for _, tc := range []struct {
		name                 string
		nodes, victims, span int
		gpus                 int64
		gang                 func(c *Cluster) *Demand
	}{
		{"100 members, 1000 pods", 5000, 1000, 1, 8, func(c *Cluster) *Demand { return benchGang(c, 100, 8) }},
		{"512 members, 1000 pods", 5000, 1000, 1, 8, func(c *Cluster) *Demand { return benchGang(c, 512, 8) }},
		{"100 members, 1000 gangs of 4", 5000, 1000, 4, 8, func(c *Cluster) *Demand { return benchGang(c, 100, 8) }},
		{"512 members, 1000 gangs of 4", 5000, 1000, 4, 8, func(c *Cluster) *Demand { return benchGang(c, 512, 8) }},
		{"100 members, 50 gangs of 100", 5000, 50, 100, 8, func(c *Cluster) *Demand { return benchGang(c, 100, 8) }},
		{"512 members, 40000 pods of 1", 5000, 40000, 1, 1, func(c *Cluster) *Demand { return benchGang(c, 512, 8) }},
		{"512 members in a zone, 1000 gangs of 4", 5000, 1000, 4, 8, func(c *Cluster) *Demand {
			d := benchGang(c, 512, 8)
			d.Required, _ = c.Level("zone")
			return d
		}},
		{"12 members in a rack, 5000 pods", 5000, 5000, 1, 8, func(c *Cluster) *Demand {
			d := benchGang(c, 12, 8)
			d.Required, _ = c.Level("rack")
			return d
		}},
		{"512 members in slices of 8, 4000 pods", 5000, 4000, 1, 8, func(c *Cluster) *Demand { return benchSlices(c, 512, 8, 8, "rack") }},
		{"512 members, mixed slices of 8, 4000 pods", 5000, 4000, 1, 8, func(c *Cluster) *Demand {
			d := benchSlices(c, 512, 8, 4, "rack")
			d.Classes = append(d.Classes, benchClass(c, 8))
			for i := 0; i < 512; i += 8 {
				d.Members[i].Class = 1
			}
			return d
		}},
		{"512 members, a launcher and workers, 1000 pods", 5000, 1000, 1, 8, func(c *Cluster) *Demand { return benchLauncher(c, 512, 8) }},
		{"512 members, three roles, 8000 pods of 4", 5000, 8000, 1, 4, func(c *Cluster) *Demand { return benchRoles(c, 512) }},
		{"512 members in sets of 256, each in a block, 5000 pods", 5000, 5000, 1, 8, func(c *Cluster) *Demand {
			d := benchGang(c, 512, 4)
			block, _ := c.Level("block")
			d.Sets = []Set{{Required: block}, {Required: block}}
			for i := range d.Members {
				d.Members[i].Set = i / 256
			}
			return d
		}},
		{"512 members in 64 sets, each in a rack, 5000 pods", 5000, 5000, 1, 8, func(c *Cluster) *Demand {
			d := benchGang(c, 512, 4)
			rack, _ := c.Level("rack")
			d.Sets = make([]Set, 64)
			for i := range d.Sets {
				d.Sets[i].Required = rack
			}
			for i := range d.Members {
				d.Members[i].Set = i / 8
			}
			return d
		}},
		{"64 members of 64 classes, 5000 pods", 5000, 5000, 1, 8, func(c *Cluster) *Demand {
			d := &Demand{Min: 64}
			for i := range 64 {
				k := benchClass(c, int64(1+i%8))
				k.Requests[1].Value += int64(i)
				d.Classes, d.Members = append(d.Classes, k), append(d.Members, Member{Class: i})
			}
			return d
		}},
		{"4096 members, 40000 pods of 4", 50000, 40000, 1, 4, func(c *Cluster) *Demand { return benchGang(c, 4096, 8) }},
		{"no room, 1000 pods", 5000, 1000, 1, 8, func(c *Cluster) *Demand { return benchGang(c, 1001, 8) }},
	} {
		c, victims := benchVictims(tc.nodes, tc.victims, tc.span, tc.gpus)
		d := tc.gang(c)
		b.Run(tc.name, func(b *testing.B) {
			defer reportCPU(b)()
			var p *Preemption
			for b.Loop() {
				p, _, _ = c.Preempt(d, nil, victims)
			}
			if p != nil {
				b.ReportMetric(float64(len(p.Victims)), "victims")
			}
		})
	}
}

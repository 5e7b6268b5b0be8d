package planner

import (
	"fmt"
	"testing"
)

// hostileGangs are gangs made to be slow.
var hostileGangs = []struct {
	name string
	gang func(c *Cluster, members int) *Demand
}{
	{"members all different", func(c *Cluster, members int) *Demand {
		d := benchGang(c, members, 1)
		for i := 1; i < members; i++ {
			class := benchClass(c, int64(1+i%4))
			class.Requests[1].Value += int64(i)
			d.Classes = append(d.Classes, class)
			d.Members[i].Class = i
		}
		return d
	}},
	{"slices all different", func(c *Cluster, members int) *Demand {
		d := benchSlices(c, 2*members, 2, 1, "rack")
		for i := range 6 {
			class := benchClass(c, 1)
			class.Requests[1].Value += int64(i)
			d.Classes = append(d.Classes, class)
		}
		for i := range d.Members {
			d.Members[i].Slice = min(i, i*i/members)
			d.Members[i].Class = (i / 7 * i) % 7
		}
		return d
	}},
	{"a set for each member", func(c *Cluster, members int) *Demand {
		d := benchGang(c, members, 4)
		block, _ := c.Level("block")
		d.Sets = make([]Set, members)
		for i := range d.Members {
			d.Sets[i].Required = block
			d.Members[i].Set = i
		}
		return d
	}},
	{"a class and a set for each member", func(c *Cluster, members int) *Demand {
		d := benchGang(c, members, 1)
		d.Sets = make([]Set, members)
		for i := 1; i < members; i++ {
			class := benchClass(c, int64(1+i%4))
			class.Requests[1].Value += int64(i)
			d.Classes = append(d.Classes, class)
			d.Members[i].Class, d.Members[i].Set = i, i
		}
		return d
	}},
}

func BenchmarkHostile(b *testing.B) {
	for _, members := range []int{64, 512, 4096} {
		for _, tc := range hostileGangs {
			b.Run(fmt.Sprintf("%s/members=%d", tc.name, members), func(b *testing.B) {
				c := benchCluster(5000)
				d := tc.gang(c, members)
				benchPlace(b, c, d)
			})
			b.Run(fmt.Sprintf("refused/%s/members=%d", tc.name, members), func(b *testing.B) {
				c := benchCluster(5000)
				for id := NodeID(members / 8); id < 5000; id++ {
					c.Take(id, []Amount{{c.Resource("nvidia.com/gpu"), 8}})
				}
				d := tc.gang(c, members)
				benchRefuse(b, c, d)
			})
		}
	}
}

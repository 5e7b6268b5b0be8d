package planner

import (
	"fmt"
	"testing"
)

// benchCluster has zones of blocks of racks of 16 nodes with 8 GPUs, every fourth node half full.
func benchCluster(nodes int) *Cluster {
	c := NewCluster([]string{"zone", "block", "rack"})
	list := make([]Node, nodes)
	for i := range list {
		list[i] = Node{Name: fmt.Sprintf("n%d", i), Domains: []string{fmt.Sprint("z", i/4096), fmt.Sprint("b", i/256), fmt.Sprint("r", i/16)}}
	}
	c.SetNodes(list)
	gpu, cpu, mem, pods := c.Resource("nvidia.com/gpu"), c.Resource("cpu"), c.Resource("memory"), c.Resource("pods")
	for i := range list {
		id, _ := c.Node(list[i].Name)
		used := int64(0)
		if i%4 == 0 {
			used = 4
		}
		c.SetNode(id, []Amount{{gpu, 8}, {cpu, 192000}, {mem, 2 << 40}, {pods, 110}}, []Amount{{gpu, used}, {pods, 5}})
	}
	return c
}

func benchGang(c *Cluster, members int, gpus int64) *Demand {
	d := &Demand{Min: members, Members: make([]Member, members)}
	d.Classes = []Class{{Requests: []Amount{{c.Resource("nvidia.com/gpu"), gpus}, {c.Resource("cpu"), 8000}, {c.Resource("pods"), 1}}}}
	return d
}

func BenchmarkPlan(b *testing.B) {
	for _, nodes := range []int{1000, 5000, 15000, 50000} {
		c := benchCluster(nodes)
		for _, members := range []int{8, 64, 512, 4096} {
			place, refuse := benchGang(c, members, 8), benchGang(c, members, 16)
			if members <= nodes*3/4 {
				b.Run(fmt.Sprintf("place/nodes=%d/members=%d", nodes, members), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						if p, _, _ := c.Plan(place, nil); p == nil {
							b.Fatal("refused")
						}
					}
				})
			}
			b.Run(fmt.Sprintf("refuse/nodes=%d/members=%d", nodes, members), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, e, _ := c.Plan(refuse, nil); e == nil {
						b.Fatal("placed")
					}
				}
			})
		}
	}
}

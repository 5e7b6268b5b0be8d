package planner

import (
	"fmt"
	"syscall"
	"testing"
	"time"
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

func benchClass(c *Cluster, gpus int64) Class {
	return Class{Requests: []Amount{{c.Resource("nvidia.com/gpu"), gpus}, {c.Resource("cpu"), 8000}, {c.Resource("memory"), 32 << 30}, {c.Resource("pods"), 1}}}
}

func benchGang(c *Cluster, members int, gpus int64) *Demand {
	return &Demand{Classes: []Class{benchClass(c, gpus)}, Min: members, Members: make([]Member, members)}
}

func benchSlices(c *Cluster, members, size int, gpus int64, level string) *Demand {
	d := benchGang(c, members, gpus)
	l, _ := c.Level(level)
	d.Sets = []Set{{SliceSize: size, SliceLevel: l}}
	for i := range d.Members {
		d.Members[i].Slice = i / size
	}
	return d
}

// benchGangs are gangs of every kind of constraint; none needs more than three quarters of the nodes.
var benchGangs = []struct {
	name string
	gang func(c *Cluster, members int) *Demand
}{
	{"plain", func(c *Cluster, members int) *Demand { return benchGang(c, members, 8) }},
	{"required", func(c *Cluster, members int) *Demand {
		d := benchGang(c, members, 4)
		d.Required, _ = c.Level("zone")
		return d
	}},
	{"preferred", func(c *Cluster, members int) *Demand {
		d := benchGang(c, members, 8)
		d.Preferred, _ = c.Level("rack")
		return d
	}},
	{"slices of 8 per rack", func(c *Cluster, members int) *Demand { return benchSlices(c, members, 8, 8, "rack") }},
	{"slices of 4 per node", func(c *Cluster, members int) *Demand {
		return benchSlices(c, members, 4, 2, "kubernetes.io/hostname")
	}},
	{"slices of 72 per rack", func(c *Cluster, members int) *Demand {
		return benchSlices(c, (members+71)/72*72, 72, 1, "rack")
	}},
	{"launcher and workers", func(c *Cluster, members int) *Demand { return benchLauncher(c, members, 8) }},
	{"mixed slices of 8 per rack", func(c *Cluster, members int) *Demand {
		d := benchSlices(c, members, 8, 4, "rack")
		d.Classes = append(d.Classes, benchClass(c, 8))
		for i := 0; i < members; i += 8 {
			d.Members[i].Class = 1
		}
		return d
	}},
	{"sets of 256, each in a block", func(c *Cluster, members int) *Demand {
		d := benchGang(c, members, 4)
		block, _ := c.Level("block")
		d.Sets = make([]Set, (members+255)/256)
		for i := range d.Sets {
			d.Sets[i].Required = block
		}
		d.Sets = append(d.Sets, Set{})
		for i := range d.Members {
			d.Members[i].Set = i / 256
		}
		return d
	}},
}

// BenchmarkPlan is the table of docs/planner.md.
func BenchmarkPlan(b *testing.B) {
	for _, nodes := range []int{1000, 5000, 15000, 50000} {
		c := benchCluster(nodes)
		for _, members := range []int{8, 64, 512, 4096} {
			place, refuse := benchGang(c, members, 8), benchGang(c, members, 16)
			if members <= nodes*3/4 {
				b.Run(fmt.Sprintf("place/nodes=%d/members=%d", nodes, members), func(b *testing.B) { benchPlace(b, c, place) })
			}
			b.Run(fmt.Sprintf("refuse/nodes=%d/members=%d", nodes, members), func(b *testing.B) { benchRefuse(b, c, refuse) })
		}
	}
}

// BenchmarkConstraints plans gangs of 512 members on 5,000 nodes, and of 4,096 on 50,000.
func BenchmarkConstraints(b *testing.B) {
	for _, size := range [][2]int{{5000, 512}, {50000, 4096}} {
		c := benchCluster(size[0])
		for _, tc := range benchGangs {
			d := tc.gang(c, size[1])
			b.Run(fmt.Sprintf("%s/nodes=%d/members=%d", tc.name, size[0], size[1]), func(b *testing.B) { benchPlace(b, c, d) })
		}
	}
}

// BenchmarkRefusals is what it takes to be sure that a gang does not fit, how far it does, and why.
func BenchmarkRefusals(b *testing.B) {
	two := func(c *Cluster, fives, fours int) *Demand {
		d := &Demand{Classes: []Class{benchClass(c, 5), benchClass(c, 4)}, Min: fives + fours}
		for i := range d.Min {
			d.Members = append(d.Members, Member{Class: min(i/fives, 1)})
		}
		return d
	}
	for _, nodes := range []int{5000, 50000} {
		c := benchCluster(nodes)
		zone, _ := c.Level("zone")
		block, _ := c.Level("block")
		rack, _ := c.Level("rack")
		within := func(l Level, d *Demand) *Demand { d.Required = l; return d }
		for _, tc := range []struct {
			name string
			d    *Demand
		}{
			{"too large", benchGang(c, 512, 16)},
			{"no rack for 13", within(rack, benchGang(c, 13, 8))},
			{"no zone for slices", within(zone, benchSlices(c, 13*256+13, 13, 8, "rack"))},
			{"no rack for two classes", within(rack, two(c, 10, 12))},
			{"no block for two classes", within(block, two(c, 128, 384))},
			{"no zone for two classes", within(zone, two(c, 2800, 2800))},
			{"no block for three roles and a launcher", within(block, benchRoles(c, 512))},
			{"no block for a launcher and workers", within(block, benchLauncher(c, 512, 4))},
		} {
			b.Run(fmt.Sprintf("%s/nodes=%d/members=%d", tc.name, nodes, len(tc.d.Members)), func(b *testing.B) { benchRefuse(b, c, tc.d) })
		}
		for id := NodeID(512); id < NodeID(nodes); id++ {
			c.Take(id, []Amount{{c.Resource("nvidia.com/gpu"), c.Free(id, c.Resource("nvidia.com/gpu"))}})
		}
		for _, tc := range []struct {
			name string
			d    *Demand
		}{
			{"busy cluster, two classes", two(c, 256, 512)},
			{"busy cluster, three roles and a launcher", benchRoles(c, 1024)},
		} {
			b.Run(fmt.Sprintf("%s/nodes=%d/members=%d", tc.name, nodes, len(tc.d.Members)), func(b *testing.B) { benchRefuse(b, c, tc.d) })
		}
	}
}

// benchRoles is a launcher, and members with 5, 4 and 2 GPUs, as many of each.
func benchRoles(c *Cluster, members int) *Demand {
	d := benchLauncher(c, members, 5)
	d.Classes = append(d.Classes, benchClass(c, 4), benchClass(c, 2))
	for i := 1; i < members; i++ {
		d.Members[i].Class = []int{0, 2, 3}[i%3]
	}
	return d
}

func benchLauncher(c *Cluster, members int, gpus int64) *Demand {
	d := benchGang(c, members, gpus)
	d.Classes = append(d.Classes, Class{Requests: []Amount{{c.Resource("cpu"), 4000}, {c.Resource("pods"), 1}}})
	d.Members[0].Class = 1
	return d
}

func benchPlace(b *testing.B, c *Cluster, d *Demand) {
	defer reportCPU(b)()
	for b.Loop() {
		if p, _, _ := c.Plan(d, nil); p == nil {
			b.Fatal("refused")
		}
	}
}

func benchRefuse(b *testing.B, c *Cluster, d *Demand) {
	defer reportCPU(b)()
	for b.Loop() {
		if _, e, _ := c.Plan(d, nil); e == nil {
			b.Fatal("placed")
		}
	}
}

// reportCPU reports the processor time of a benchmark's loop, which other programs on the machine
// disturb less than the time that passes.
func reportCPU(b *testing.B) func() {
	b.ReportAllocs()
	start := processorTime(b)
	return func() { b.ReportMetric(float64(processorTime(b)-start)/float64(max(b.N, 1)), "cpu-ns/op") }
}

func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkCount is what of planning and refusing grows with the nodes.
func BenchmarkCount(b *testing.B) {
	c := benchCluster(5000)
	d := benchGang(c, 512, 8)
	c.work.learned.reset(1)
	c.prepare(d)
	defer reportCPU(b)()
	for b.Loop() {
		c.countBlocks(d, &c.work.learned)
	}
}

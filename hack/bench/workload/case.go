// Package workload describes what the benchmarks run: cases, the schedulers that are compared on them, and
// scheduler_perf's configuration files for both. It depends on no version of Kubernetes.
package workload

import (
	"fmt"
	"slices"
)

// Case is a cluster and the gangs that come to it.
type Case struct {
	// Name of the case, as in "gang-1000x3".
	Name string

	// What it asks, in a few words for the report.
	About string

	// Small names the schedulers that run it in the small set too.
	Small []string

	// Nodes of the cluster, RackSize of them to a rack, five racks to a block and five blocks to a zone.
	Nodes, RackSize int

	// GPUs of a node; 0 for nodes of 4 CPUs as scheduler_perf has them.
	GPUs int

	// Filling is what runs before any gang comes, on all nodes but the first Empty ones.
	Filling Filling
	Empty   int

	// Waiting are gangs that come before the others, and for which there is no room.
	Waiting Gangs

	// Churn is set if a pod comes and goes all the time while the gangs come.
	Churn bool

	// Gangs that come, in this order.
	Gangs []Gangs

	// Topology is set if one rack must hold each gang.
	Topology bool

	// Refused is set if there is no room for the gangs: what counts is when their members are told.
	Refused bool
}

// Filling is what runs on the nodes from the start.
type Filling string

const (
	// Nothing runs.
	Nothing Filling = ""

	// Fragments are a pod of 2, 4 or 6 GPUs on each node.
	Fragments Filling = "fragments"

	// Victims are ten pods of low priority on each of a hundred nodes, so that a pod with all of the node's GPUs fits
	// only when all ten have gone; pods of high priority fill the other nodes.
	Victims Filling = "victims"
)

// The pods of a cluster filled with victims.
const (
	VictimNodes, VictimsPerNode = 100, 10
	VictimCPU, OtherCPU         = 12, 120
	GangPriority, OtherPriority = 100, 1000
)

// Gangs are a number of gangs that are alike.
type Gangs struct {
	// Count of gangs and members of each.
	Count, Size int

	// GPUs of each member; 0 for members of 100 millicores.
	GPUs int

	// CPUs of each member; 0 for 100 millicores.
	CPUs int
}

// Pods is how many members all gangs of the case have together.
func (c *Case) Pods() int {
	n := 0
	for _, g := range c.Gangs {
		n += g.Count * g.Size
	}
	return n
}

// Priority is that of the members, 0 where it does not matter.
func (c Case) Priority() int {
	if c.Filling == Victims {
		return GangPriority
	}
	return 0
}

// BlockSize is how many nodes are in a block.
func (c Case) BlockSize() int { return 5 * c.RackSize }

// ZoneSize is how many nodes are in a zone.
func (c Case) ZoneSize() int { return 5 * c.BlockSize() }

// Cases lists all cases. The first ones are scheduler_perf's own for pod groups
// (test/integration/scheduler_perf/podgroup in Kubernetes 1.37), the others are of GPU clusters.
func Cases() []Case {
	all := []string{Ceiling, Ours, OursNative, KubernetesNative, Coscheduling}
	var cases []Case
	for _, k := range []int{1, 2, 3} {
		cases = append(cases,
			upstream("gang", 1000*k, 3),
			upstream("gang", 3*k, 1000),
			upstream("topology", 750*k, 4),
			upstream("topology", 3*k, 1000),
		)
	}
	cases[0].Small, cases[2].Small = all, all
	return slices.Concat(cases, costs(), gpus())
}

// costs are the cases that only serve for the plots of cost against size, beside gang-1000x3 and gang-3x1000.
func costs() []Case {
	cases := []Case{upstream("gang", 100, 30), upstream("gang", 10, 300)}
	for _, nodes := range []int{1000, 15000} {
		c := upstream("gang", 1000, 3)
		c.Name, c.Nodes = fmt.Sprintf("%s-%d-nodes", c.Name, nodes), nodes
		cases = append(cases, c)
	}
	return cases
}

// gpus are the cases of clusters with GPUs in three levels of topology.
func gpus() []Case {
	cluster := Case{Nodes: 5000, RackSize: 50, GPUs: 8, Filling: Fragments}
	philly, refused, preempt := cluster, cluster, cluster
	philly.Name, philly.About = "gpu-philly", "Philly-like sizes on half-filled, fragmented nodes of 8 GPUs"
	// The shares of sizes follow the Philly trace (Jeon et al., ATC 2019): most jobs are small, few are large.
	philly.Gangs = []Gangs{{400, 1, 1, 0}, {200, 2, 1, 0}, {100, 4, 2, 0}, {60, 8, 2, 0}, {20, 16, 4, 0}, {8, 32, 4, 0}, {4, 64, 4, 0}}

	refused.Name, refused.About = "gpu-refused", "gangs of 512 whole nodes, of which 400 are free, after one of them that is not measured: for it the scheduler looks at all nodes for the first time"
	refused.Small = []string{Ours}
	refused.Empty, refused.Refused = 400, true
	refused.Waiting = Gangs{1, 512, 8, 0}
	refused.Gangs = []Gangs{{4, 512, 8, 0}}

	preempt.Name, preempt.About = "gpu-preempt", "a gang of 100 whole nodes that must evict 1,000 pods"
	preempt.Small = []string{Ours}
	preempt.Filling = Victims
	preempt.Gangs = []Gangs{{1, VictimNodes, 8, OtherCPU}}

	cases := []Case{philly, refused, preempt}
	for _, waiting := range []int{0, 500, 2000} {
		c := cluster
		c.Name = fmt.Sprintf("gpu-waiting-%d", waiting)
		c.About = fmt.Sprintf("gangs of 8 GPUs that fit while %d gangs wait and other pods come and go", waiting)
		if waiting != 500 {
			c.Small = []string{Ours}
		}
		c.Waiting, c.Churn = Gangs{waiting, 2, 8, 0}, true
		c.Gangs = []Gangs{{100, 8, 1, 0}}
		cases = append(cases, c)
	}
	return cases
}

func upstream(kind string, count, size int) Case {
	about, topology := "gangs of %d", kind == "topology"
	if topology {
		about = "gangs of %d, each in one rack"
	}
	return Case{
		Name: fmt.Sprintf("%s-%dx%d", kind, count, size), About: fmt.Sprintf(about, size),
		Nodes: 5000, RackSize: 100, Gangs: []Gangs{{Count: count, Size: size}}, Topology: topology,
	}
}

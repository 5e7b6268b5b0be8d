// Package workload describes what the benchmarks run: cases, the schedulers that are compared on them, and
// scheduler_perf's configuration files for both. It depends on no version of Kubernetes.
package workload

import "fmt"

// Case is a cluster and the gangs that come to it.
type Case struct {
	// Name of the case, as in "gang-1000x3".
	Name string

	// What it asks, in a few words for the report.
	About string

	// Small says that the case is part of the small set.
	Small bool

	// Nodes of the cluster, RackSize of them to a rack, five racks to a block and five blocks to a zone.
	Nodes, RackSize int

	// GPUs of a node; 0 for nodes of 4 CPUs as scheduler_perf has them.
	GPUs int

	// Filled is set if a pod of 2, 4 or 6 GPUs runs on every node before the gangs come.
	Filled bool

	// Gangs that come, in this order.
	Gangs []Gangs

	// Topology is set if one rack must hold each gang.
	Topology bool
}

// Gangs are a number of gangs that are alike.
type Gangs struct {
	// Count of gangs and members of each.
	Count, Size int

	// GPUs of each member; 0 for members of 100 millicores.
	GPUs int
}

// Pods is how many members all gangs of the case have together.
func (c *Case) Pods() int {
	n := 0
	for _, g := range c.Gangs {
		n += g.Count * g.Size
	}
	return n
}

// BlockSize is how many nodes are in a block.
func (c Case) BlockSize() int { return 5 * c.RackSize }

// ZoneSize is how many nodes are in a zone.
func (c Case) ZoneSize() int { return 5 * c.BlockSize() }

// Cases lists all cases. The first ones are scheduler_perf's own for pod groups
// (test/integration/scheduler_perf/podgroup in Kubernetes 1.37), the others are of GPU clusters.
func Cases() []Case {
	var cases []Case
	for _, k := range []int{1, 2, 3} {
		cases = append(cases,
			upstream("gang", 1000*k, 3, false, k == 1),
			upstream("gang", 3*k, 1000, false, k == 1),
			upstream("topology", 750*k, 4, true, k == 1),
			upstream("topology", 3*k, 1000, true, k == 1),
		)
	}
	return append(cases,
		Case{
			Name: "gpu-philly", About: "Philly-like sizes on half-filled, fragmented nodes of 8 GPUs", Small: true,
			Nodes: 5000, RackSize: 50, GPUs: 8, Filled: true,
			// The shares of sizes follow the Philly trace (Jeon et al., ATC 2019): most jobs are small, few are large.
			Gangs: []Gangs{{400, 1, 1}, {200, 2, 1}, {100, 4, 2}, {60, 8, 2}, {20, 16, 4}, {8, 32, 4}, {4, 64, 4}},
		},
	)
}

func upstream(kind string, count, size int, topology, small bool) Case {
	about := "gangs of %d"
	if topology {
		about = "gangs of %d, each in one rack"
	}
	return Case{
		Name: fmt.Sprintf("%s-%dx%d", kind, count, size), About: fmt.Sprintf(about, size), Small: small,
		Nodes: 5000, RackSize: 100, Gangs: []Gangs{{Count: count, Size: size}}, Topology: topology,
	}
}

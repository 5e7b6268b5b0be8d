package gangplan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/podgroup/planner"
)

// Cluster keeps the planner's model in step with the scheduler's snapshot: the tree is rebuilt
// only when nodes come, go or change their topology labels, and the capacity of a node is read
// again only when its generation moved. It is used by the scheduling cycle alone.
type Cluster struct {
	*planner.Cluster
	// The following are by position in the snapshot's list.
	ids         []planner.NodeID
	generations []int64
	// byID are the nodes in the planner's order, and infoByID their snapshot entries.
	byID     []*corev1.Node
	infoByID []fwk.NodeInfo

	eligibility eligibilityCache
	singles     singles
	asked       asked
}

// NewCluster returns an empty model whose topology levels are the given node labels, outermost first.
func NewCluster(levels []string) *Cluster {
	return &Cluster{Cluster: planner.NewCluster(levels), eligibility: newEligibilityCache()}
}

// Sync brings the model up to the snapshot's nodes.
func (c *Cluster) Sync(infos []fwk.NodeInfo) {
	if c.needsRebuild(infos) {
		c.rebuild(infos)
	}
	for i, info := range infos {
		id := c.ids[i]
		c.infoByID[id] = info
		if g := info.GetGeneration(); g != c.generations[i] {
			c.generations[i] = g
			c.byID[id] = info.Node()
			c.readNode(id, info)
		}
	}
}

func (c *Cluster) needsRebuild(infos []fwk.NodeInfo) bool {
	if len(infos) != len(c.ids) {
		return true
	}
	for i, info := range infos {
		was, is := c.byID[c.ids[i]], info.Node()
		if was != is && (was.Name != is.Name || !slices.Equal(c.domains(was), c.domains(is))) {
			return true
		}
	}
	return false
}

func (c *Cluster) rebuild(infos []fwk.NodeInfo) {
	nodes := make([]planner.Node, len(infos))
	for i, info := range infos {
		nodes[i] = planner.Node{Name: info.Node().Name, Domains: c.domains(info.Node())}
	}
	c.SetNodes(nodes)
	c.ids = make([]planner.NodeID, len(infos))
	c.generations = make([]int64, len(infos))
	c.byID = make([]*corev1.Node, len(infos))
	c.infoByID = make([]fwk.NodeInfo, len(infos))
	for i, info := range infos {
		c.ids[i], _ = c.Node(info.Node().Name)
		c.generations[i] = -1
	}
}

func (c *Cluster) domains(node *corev1.Node) []string {
	values := make([]string, len(c.Levels()))
	for i, label := range c.Levels() {
		values[i] = node.Labels[label]
	}
	return values
}

func (c *Cluster) readNode(id planner.NodeID, info fwk.NodeInfo) {
	allocatable := info.GetAllocatable()
	capacity := c.amounts(allocatable)
	capacity = append(capacity, planner.Amount{Resource: c.Resource(string(corev1.ResourcePods)), Value: int64(allocatable.GetAllowedPodNumber())})
	used := c.amounts(info.GetRequested())
	used = append(used, planner.Amount{Resource: c.Resource(string(corev1.ResourcePods)), Value: int64(len(info.GetPods()))})
	capacity, used = c.singles.read(info, capacity, used)
	c.SetNode(id, capacity, used)
}

// readNodes reads the capacity of all nodes again.
func (c *Cluster) readNodes() {
	for id, info := range c.infoByID {
		c.readNode(planner.NodeID(id), info)
	}
}

// amounts lists the resources that are not zero: devices by name first, since they are what a
// gang is usually short of, then cpu, memory and ephemeral storage.
func (c *Cluster) amounts(r fwk.Resource) []planner.Amount {
	scalars := r.GetScalarResources()
	names := make([]string, 0, len(scalars))
	for name, value := range scalars {
		if value != 0 {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	out := make([]planner.Amount, 0, len(names)+4)
	for _, name := range names {
		out = append(out, planner.Amount{Resource: c.Resource(name), Value: scalars[corev1.ResourceName(name)]})
	}
	for _, a := range []struct {
		name  corev1.ResourceName
		value int64
	}{
		{corev1.ResourceCPU, r.GetMilliCPU()},
		{corev1.ResourceMemory, r.GetMemory()},
		{corev1.ResourceEphemeralStorage, r.GetEphemeralStorage()},
	} {
		if a.value != 0 {
			out = append(out, planner.Amount{Resource: c.Resource(string(a.name)), Value: a.value})
		}
	}
	return out
}

// Info returns the snapshot's entry of a node.
func (c *Cluster) Info(id planner.NodeID) fwk.NodeInfo { return c.infoByID[id] }

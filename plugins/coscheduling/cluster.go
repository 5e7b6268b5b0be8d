package coscheduling

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/podgroup/planner"
)

const podsResource = "pods"

// cluster keeps the planner's model in step with the scheduler's snapshot: the tree is rebuilt
// only when nodes come, go or change their topology labels, and the capacity of a node is read
// again only when its generation moved. It is used by the scheduling cycle alone.
type cluster struct {
	*planner.Cluster
	// The following are by position in the snapshot's list.
	ids         []planner.NodeID
	generations []int64
	// byID are the nodes in the planner's order, and infoByID their snapshot entries.
	byID     []*corev1.Node
	infoByID []fwk.NodeInfo

	eligibility eligibilityCache
}

func newCluster(levels []string) *cluster {
	return &cluster{Cluster: planner.NewCluster(levels), eligibility: newEligibilityCache()}
}

// sync brings the model up to the snapshot's nodes.
func (c *cluster) sync(infos []fwk.NodeInfo) {
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

func (c *cluster) needsRebuild(infos []fwk.NodeInfo) bool {
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

func (c *cluster) rebuild(infos []fwk.NodeInfo) {
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

func (c *cluster) domains(node *corev1.Node) []string {
	values := make([]string, len(c.Levels()))
	for i, label := range c.Levels() {
		values[i] = node.Labels[label]
	}
	return values
}

func (c *cluster) readNode(id planner.NodeID, info fwk.NodeInfo) {
	allocatable := info.GetAllocatable()
	capacity := c.amounts(allocatable)
	capacity = append(capacity, planner.Amount{Resource: c.Resource(podsResource), Value: int64(allocatable.GetAllowedPodNumber())})
	used := c.amounts(info.GetRequested())
	used = append(used, planner.Amount{Resource: c.Resource(podsResource), Value: int64(len(info.GetPods()))})
	c.SetNode(id, capacity, used)
}

// amounts lists the resources that are not zero: devices by name first, since they are what a
// gang is usually short of, then cpu, memory and ephemeral storage.
func (c *cluster) amounts(r fwk.Resource) []planner.Amount {
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

// placedMembers translates the nodes of placed members, leaving out nodes that are gone.
func (c *cluster) placedMembers(nodes []string) []planner.PlacedMember {
	placed := make([]planner.PlacedMember, 0, len(nodes))
	for _, name := range nodes {
		if id, ok := c.Node(name); ok {
			placed = append(placed, planner.PlacedMember{Node: id})
		}
	}
	return placed
}

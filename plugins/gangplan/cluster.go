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
	ids  []planner.NodeID
	seen []seen
	// byID are the nodes in the planner's order, and infoByID their snapshot entries.
	byID     []*corev1.Node
	infoByID []fwk.NodeInfo

	eligibility eligibilityCache
	singles     singles
	asked       asked
	tenants     []tenancies // by node, as far as they were asked for
	ledger      ledger
	// claimed counts the claims that are held on nodes.
	claimed map[string]int
}

// seen tells a node's state apart from an earlier one. The generation alone does not: pods that are
// assumed in the snapshot, within the cycle of a native pod group, leave it as it was.
type seen struct {
	generation int64
	pods       int
}

// NewCluster returns an empty model whose topology levels are the given node labels, outermost first.
func NewCluster(levels []string) *Cluster {
	return &Cluster{Cluster: planner.NewCluster(levels), eligibility: newEligibilityCache(), claimed: map[string]int{}}
}

// Sync brings the model up to the snapshot's nodes.
func (c *Cluster) Sync(infos []fwk.NodeInfo) {
	clear(c.asked.devices)
	anew := c.needsRebuild(infos)
	c.ledger.begin(anew, infos)
	if anew {
		c.rebuild(infos)
	}
	for i, info := range infos {
		id := c.ids[i]
		c.infoByID[id] = info
		if now := (seen{info.GetGeneration(), len(info.GetPods())}); now != c.seen[i] {
			c.seen[i] = now
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
		if was != is && (was.Name != is.Name || !slices.Equal(domainsOf(c.Levels(), was), domainsOf(c.Levels(), is))) {
			return true
		}
	}
	return false
}

func (c *Cluster) rebuild(infos []fwk.NodeInfo) {
	nodes := make([]planner.Node, len(infos))
	for i, info := range infos {
		nodes[i] = planner.Node{Name: info.Node().Name, Domains: domainsOf(c.Levels(), info.Node())}
	}
	c.SetNodes(nodes)
	c.tenants = nil
	c.ids = make([]planner.NodeID, len(infos))
	c.seen = make([]seen, len(infos))
	c.byID = make([]*corev1.Node, len(infos))
	c.infoByID = make([]fwk.NodeInfo, len(infos))
	for i, info := range infos {
		c.ids[i], _ = c.Node(info.Node().Name)
		c.seen[i].generation = -1
	}
}

// domainsOf returns a node's values for topology levels.
func domainsOf(levels []string, node *corev1.Node) []string {
	values := make([]string, len(levels))
	for i, label := range levels {
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
	left := make([]planner.ResourceAmount, len(capacity))
	for i, a := range capacity {
		left[i] = planner.ResourceAmount{Name: c.ResourceName(a.Resource), Value: c.Free(id, a.Resource)}
	}
	c.ledger.set(info, left)
}

// readNodes reads the capacity of all nodes again.
func (c *Cluster) readNodes() {
	for id, info := range c.infoByID {
		c.readNode(planner.NodeID(id), info)
	}
}

// Info returns the snapshot's entry of a node.
func (c *Cluster) Info(id planner.NodeID) fwk.NodeInfo { return c.infoByID[id] }

package planner

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// NodeID is the place of a node in topology order: by the values of the cluster's levels,
// outermost first, then by name, numbers in either compared as numbers.
type NodeID int32

// NoNode stands for a member that has no place.
const NoNode NodeID = -1

// Node is what the planner needs to know of a node before any pod is counted.
type Node struct {
	// Name of the node.
	Name string
	// Domains holds the node's value for each level of the cluster, outermost first. An empty
	// value, or a missing tail, means the node is outside that level.
	Domains []string
}

// domain is a contiguous range of nodes in topology order that share the values of all levels
// down to its own. The root, at index 0, is the whole cluster.
type domain struct {
	name     string
	title    string // with its level's label before it
	level    Level
	parent   int32
	lo, hi   NodeID
	children []int32 // in topology order
}

// Cluster is the static tree of domains and the capacity left on each node.
type Cluster struct {
	levels    []string
	names     []string
	ids       map[string]NodeID
	domains   []domain
	byLevel   [][]int32
	leaf      []int32   // innermost domain of each node
	at        [][]int32 // by level, then node: the domain that the node is in, -1 outside the level
	resources []string
	devices   []bool // by resource: whether its amounts are devices, a handful on each node
	exists    []bool // by resource: whether any node ever had or used some of it
	columns   map[string]Resource
	free      [][]int64 // by resource, then node: what is left
	capacity  [][]int64 // by resource, then node: what the node has in all
	none      []int64   // by node, zeros: the column of all resources that do not exist
	totals    []int64   // by resource: capacity of all nodes

	work      scratch
	clearance clearance
}

// NewCluster returns an empty cluster whose topology levels are the given node labels, outermost
// first. Without levels the cluster is one flat domain. Single nodes are always a level of their
// own, so kubernetes.io/hostname as the last of the labels is left out.
func NewCluster(levels []string) *Cluster {
	if last := len(levels) - 1; last >= 0 && levels[last] == corev1.LabelHostname {
		levels = levels[:last]
	}
	c := &Cluster{levels: slices.Clone(levels), columns: map[string]Resource{}}
	c.SetNodes(nil)
	return c
}

// Levels returns the node labels of the topology levels, outermost first, without the level of
// single nodes.
func (c *Cluster) Levels() []string { return c.levels }

// NumNodes returns how many nodes the cluster has.
func (c *Cluster) NumNodes() int { return len(c.names) }

// NodeName returns the name of a node.
func (c *Cluster) NodeName(id NodeID) string { return c.names[id] }

// Node returns the ID of the node of that name.
func (c *Cluster) Node(name string) (NodeID, bool) {
	id, ok := c.ids[name]
	return id, ok
}

// SetNodes replaces the nodes and rebuilds the tree. Every node starts without capacity: SetNode
// must follow for each of them.
func (c *Cluster) SetNodes(nodes []Node) {
	order := slices.Clone(nodes)
	slices.SortFunc(order, func(a, b Node) int { return c.compareNodes(&a, &b) })

	c.names = make([]string, len(order))
	c.ids = make(map[string]NodeID, len(order))
	for i := range order {
		c.names[i] = order[i].Name
		c.ids[order[i].Name] = NodeID(i)
	}
	c.buildDomains(order)
	c.none = make([]int64, len(order))
	for r := range c.resources {
		c.exists[r], c.free[r], c.capacity[r], c.totals[r] = false, c.none, c.none, 0
	}
}

// compareNodes orders nodes by domain, nodes outside a level after those inside it, then by name.
func (c *Cluster) compareNodes(a, b *Node) int {
	for l := range c.levels {
		x, y := a.value(l), b.value(l)
		if x == y {
			continue
		}
		if x == "" || y == "" {
			return -cmp.Compare(len(x), len(y))
		}
		return compareNatural(x, y)
	}
	return compareNatural(a.Name, b.Name)
}

func (n *Node) value(level int) string {
	if level < len(n.Domains) {
		return n.Domains[level]
	}
	return ""
}

func (c *Cluster) buildDomains(order []Node) {
	c.domains = []domain{{name: "cluster", title: "cluster", parent: -1, hi: NodeID(len(order))}}
	c.byLevel = make([][]int32, len(c.levels)+1)
	c.byLevel[WholeCluster] = []int32{0}
	c.leaf = make([]int32, len(order))
	c.divide(order, 0, 0, NodeID(len(order)), 0)
	c.at = make([][]int32, len(c.levels)+1)
	for l := range c.at {
		c.at[l] = slices.Repeat([]int32{-1}, len(order))
		for _, d := range c.byLevel[l] {
			for i := c.domains[d].lo; i < c.domains[d].hi; i++ {
				c.at[l][i] = d
			}
		}
	}
}

// divide splits the nodes lo to hi of domain d by the values of the given level, and those by the
// next. Nodes outside the level stay directly under d for it, and may still share a deeper level.
func (c *Cluster) divide(order []Node, d int32, lo, hi NodeID, level int) {
	if level == len(c.levels) {
		for i := lo; i < hi; i++ {
			c.leaf[i] = d
		}
		return
	}
	for lo < hi {
		value, end := order[lo].value(level), lo+1
		for end < hi && order[end].value(level) == value {
			end++
		}
		if value == "" {
			c.divide(order, d, lo, end, level+1)
		} else {
			child := int32(len(c.domains))
			c.domains = append(c.domains, domain{
				name: value, title: c.levels[level] + " " + value, level: Level(level + 1), parent: d, lo: lo, hi: end,
			})
			c.domains[d].children = append(c.domains[d].children, child)
			c.byLevel[level+1] = append(c.byLevel[level+1], child)
			c.divide(order, child, lo, end, level+1)
		}
		lo = end
	}
}

package planner

import corev1 "k8s.io/api/core/v1"

// Level is a depth of the topology tree. Domains of a deeper level lie inside those of a shallower
// one, so levels compare as numbers: 0 is the whole cluster, 1 the outermost configured level, and
// one beyond the innermost configured level, NodeLevel, a single node.
type Level int

// WholeCluster is the level whose only domain is the cluster. As a constraint it asks for nothing.
const WholeCluster Level = 0

// Level returns the level of a node label. The label kubernetes.io/hostname is always known: it is
// the level of single nodes, unless it was configured as a level outside others.
func (c *Cluster) Level(label string) (Level, bool) {
	for i, name := range c.levels {
		if name == label {
			return Level(i + 1), true
		}
	}
	if label == corev1.LabelHostname {
		return c.NodeLevel(), true
	}
	return 0, false
}

// NodeLevel returns the innermost level, whose domains are single nodes.
func (c *Cluster) NodeLevel() Level { return Level(len(c.levels) + 1) }

// LevelName returns the node label of a level, or "cluster" for WholeCluster.
func (c *Cluster) LevelName(l Level) string {
	switch {
	case l <= WholeCluster:
		return "cluster"
	case l >= c.NodeLevel():
		return corev1.LabelHostname
	}
	return c.levels[l-1]
}

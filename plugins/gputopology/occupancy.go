package gputopology

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// occupancy knows how much of each accelerator is in use in every topology domain. It follows the
// snapshot by the nodes' generations, and is used by the scheduling cycle alone.
type occupancy struct {
	levels       []string
	accelerators *accelerators
	nodes        map[string]*nodeUse
	// order are the nodes as the snapshot last listed them.
	order   []*nodeUse
	domains map[string]*domainUse
	round   uint64
}

// use is how much there is of an accelerator, and how much of that is taken.
type use struct{ used, capacity int64 }

// domainUse adds up the use of a domain's nodes, by accelerator.
type domainUse struct {
	uses  map[corev1.ResourceName]use
	nodes int
}

// nodeUse is what a node adds to the domains it is in.
type nodeUse struct {
	name       string
	generation int64
	pods       int
	round      uint64
	path       []string
	domains    []*domainUse // outermost first, without the levels that the node is outside of
	uses       map[corev1.ResourceName]use
}

func newOccupancy(levels []string, accelerators *accelerators) *occupancy {
	return &occupancy{levels: levels, accelerators: accelerators, nodes: map[string]*nodeUse{}, domains: map[string]*domainUse{}}
}

// sync brings the sums up to the snapshot's nodes.
func (o *occupancy) sync(infos []fwk.NodeInfo) {
	o.round++
	if len(o.order) != len(infos) {
		o.order = make([]*nodeUse, len(infos))
	}
	for i, info := range infos {
		name := info.Node().Name
		n := o.order[i]
		if n == nil || n.name != name {
			if n = o.nodes[name]; n == nil {
				n = &nodeUse{name: name, generation: -1}
				o.nodes[name] = n
			}
			o.order[i] = n
		}
		n.round = o.round
		// A pod that is assumed within the cycle of a pod group leaves the generation as it was.
		if g, pods := info.GetGeneration(), len(info.GetPods()); n.generation != g || n.pods != pods {
			o.remove(n)
			n.generation, n.pods = g, pods
			o.add(n, info)
		}
	}
	if len(o.nodes) > len(infos) {
		for name, n := range o.nodes {
			if n.round != o.round {
				o.remove(n)
				delete(o.nodes, name)
			}
		}
	}
}

func (o *occupancy) add(n *nodeUse, info fwk.NodeInfo) {
	n.uses = map[corev1.ResourceName]use{}
	requested := info.GetRequested().GetScalarResources()
	for name, capacity := range info.GetAllocatable().GetScalarResources() {
		if _, ok := o.accelerators.match(name); ok && capacity > 0 {
			n.uses[name] = use{used: requested[name], capacity: capacity}
		}
	}
	n.path = o.path(info.Node())
	n.domains = make([]*domainUse, len(n.path))
	for i, key := range n.path {
		d := o.domains[key]
		if d == nil {
			d = &domainUse{uses: map[corev1.ResourceName]use{}}
			o.domains[key] = d
		}
		n.domains[i] = d
		d.nodes++
		for name, u := range n.uses {
			sum := d.uses[name]
			d.uses[name] = use{used: sum.used + u.used, capacity: sum.capacity + u.capacity}
		}
	}
}

func (o *occupancy) remove(n *nodeUse) {
	for i, d := range n.domains {
		for name, u := range n.uses {
			sum := d.uses[name]
			d.uses[name] = use{used: sum.used - u.used, capacity: sum.capacity - u.capacity}
		}
		if d.nodes--; d.nodes == 0 {
			delete(o.domains, n.path[i])
		}
	}
	n.domains, n.path, n.uses = nil, nil, nil
}

// path names the domains that a node is in, outermost first. Domains of one name in different outer
// domains are different ones.
func (o *occupancy) path(node *corev1.Node) []string {
	var path []string
	var key strings.Builder
	for _, label := range o.levels {
		value := node.Labels[label]
		key.WriteString(value)
		key.WriteByte(0)
		if value != "" {
			path = append(path, key.String())
		}
	}
	return path
}

// fill says how full the domains of a node are of an accelerator, all levels alike, from 0 to most;
// not 0 if anything there is in use.
func (o *occupancy) fill(node string, resource corev1.ResourceName, most int64) int64 {
	n := o.nodes[node]
	if n == nil || len(n.domains) == 0 {
		return 0
	}
	sum, levels := int64(0), int64(len(n.domains))
	for _, d := range n.domains {
		sum += d.uses[resource].share(most)
	}
	return (sum + levels - 1) / levels
}

// share is the part in use, from 0 for none to most for all, rounded up.
func (u use) share(most int64) int64 {
	if u.capacity <= 0 || u.used <= 0 {
		return 0
	}
	return (min(u.used, u.capacity)*most + u.capacity - 1) / u.capacity
}

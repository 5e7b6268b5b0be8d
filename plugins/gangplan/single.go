package gangplan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/muster-sched/muster/podgroup/planner"
)

const (
	// maxPorts bounds how many host ports have a column, and maxApart how many kinds of members that
	// keep apart from their like one gang may have. Beyond that members are placed one by one.
	maxPorts = 64
	maxApart = 8
)

// singles are columns of the planner's table for what a node has one of, so that arithmetic can tell
// that it takes one member: its host ports, and being the node of a member that keeps apart from its
// like on kubernetes.io/hostname. The pods on a node use the ports; a plan starts with every node free
// of members, and what else keeps them away is learned from the filters.
type singles struct {
	ports map[fwk.ProtocolPort]planner.Resource
	apart []planner.Resource
}

// read adds what a node has and what its pods use.
func (s *singles) read(info fwk.NodeInfo, capacity, used []planner.Amount) (c, u []planner.Amount) {
	for _, r := range s.apart {
		capacity = append(capacity, planner.Amount{Resource: r, Value: 1})
	}
	for port, r := range s.ports {
		capacity = append(capacity, planner.Amount{Resource: r, Value: 1})
		for _, ports := range info.GetUsedPorts() {
			if _, taken := ports[port]; taken {
				used = append(used, planner.Amount{Resource: r, Value: 1})
				break
			}
		}
	}
	return capacity, used
}

// held returns what amounts mean for other gangs: that a member keeps apart from its like is no
// concern of theirs.
func (s *singles) held(amounts []planner.Amount) []planner.Amount {
	if !slices.ContainsFunc(amounts, func(a planner.Amount) bool { return slices.Contains(s.apart, a.Resource) }) {
		return amounts
	}
	return slices.DeleteFunc(slices.Clone(amounts), func(a planner.Amount) bool { return slices.Contains(s.apart, a.Resource) })
}

func (c *Cluster) portColumn(port fwk.ProtocolPort) (planner.Resource, bool) {
	r, known := c.singles.ports[port]
	if !known {
		if len(c.singles.ports) == maxPorts {
			return 0, false
		}
		if c.singles.ports == nil {
			c.singles.ports = map[fwk.ProtocolPort]planner.Resource{}
		}
		r = c.Resource(portName(port))
		c.singles.ports[port] = r
		c.readNodes()
	}
	return r, true
}

func portName(port fwk.ProtocolPort) string {
	return fmt.Sprintf("host port %d/%s", port.Port, port.Protocol)
}

func (c *Cluster) apartColumn(i int) planner.Resource {
	for len(c.singles.apart) <= i {
		name := "own node (anti-affinity)"
		if n := len(c.singles.apart); n > 0 {
			name = fmt.Sprintf("own node (anti-affinity %d)", n+1)
		}
		c.singles.apart = append(c.singles.apart, c.Resource(name))
		c.readNodes()
	}
	return c.singles.apart[i]
}

// hostPorts returns the host ports of a pod in order. It reports false if one is on an address of its
// own, where what conflicts with it is no longer a matter of counting.
func hostPorts(pod *corev1.Pod) (ports []fwk.ProtocolPort, plain bool) {
	plain = true
	for _, p := range schedutil.GetHostPorts(pod) {
		port := *fwk.NewProtocolPort(string(p.Protocol), p.HostPort)
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
		plain = plain && (p.HostIP == "" || p.HostIP == fwk.DefaultBindAllHostIP)
	}
	slices.SortFunc(ports, func(a, b fwk.ProtocolPort) int {
		if a.Port != b.Port {
			return int(a.Port - b.Port)
		}
		return strings.Compare(a.Protocol, b.Protocol)
	})
	return ports, plain
}

// counts reports whether a column is one of these.
func (s *singles) counts(r planner.Resource) bool {
	if slices.Contains(s.apart, r) {
		return true
	}
	for _, port := range s.ports {
		if port == r {
			return true
		}
	}
	return false
}

// portsOf are the host ports of a pod that have a column.
func (s *singles) portsOf(pod *corev1.Pod) []planner.Amount {
	if len(s.ports) == 0 {
		return nil
	}
	var out []planner.Amount
	ports, _ := hostPorts(pod)
	for _, p := range ports {
		if r, ok := s.ports[p]; ok {
			out = append(out, planner.Amount{Resource: r, Value: 1})
		}
	}
	return out
}

// single returns, for each member, what it takes of things that a node has one of, and whether its
// host ports or the pods that it keeps away from are beyond that.
func (c *Cluster) single(infos []fwk.PodInfo) (takes [][]planner.Amount, beyond []bool) {
	takes, beyond = make([][]planner.Amount, len(infos)), make([]bool, len(infos))
	for i, info := range infos {
		ports, plain := hostPorts(info.GetPod())
		for _, port := range ports {
			r, tracked := c.portColumn(port)
			plain = plain && tracked
			takes[i] = append(takes[i], planner.Amount{Resource: r, Value: 1})
		}
		if !plain {
			takes[i], beyond[i] = nil, true
		}
	}
	apart := 0
	for _, t := range repelTerms(infos) {
		met := t.met(infos)
		switch {
		case met == nil:
			// Only other pods are meant, and those stay where they are.
		case t.plain() && slices.Equal(met, t.members) && apart < maxApart:
			for _, i := range met {
				takes[i] = append(takes[i], planner.Amount{Resource: c.apartColumn(apart), Value: 1})
			}
			apart++
		default:
			for _, i := range append(met, t.members...) {
				beyond[i] = true
			}
		}
	}
	return takes, beyond
}

// repelTerm is a required anti-affinity term and the members that have it.
type repelTerm struct {
	fwk.AffinityTerm
	members []int
}

// repelTerms lists the different terms of the members, in the order in which they come first.
func repelTerms(infos []fwk.PodInfo) []*repelTerm {
	var terms []*repelTerm
	known := map[string]*repelTerm{}
	for i, info := range infos {
		for _, term := range info.GetRequiredAntiAffinityTerms() {
			key := strings.Join([]string{
				term.TopologyKey, term.Selector.String(), strings.Join(sets.List(term.Namespaces), ","), term.NamespaceSelector.String(),
			}, "|")
			t, ok := known[key]
			if !ok {
				t = &repelTerm{AffinityTerm: term}
				known[key] = t
				terms = append(terms, t)
			}
			if n := len(t.members); n == 0 || t.members[n-1] != i {
				t.members = append(t.members, i)
			}
		}
	}
	return terms
}

// met lists the members that the term keeps away. A term for namespaces with certain labels may mean
// the gang's own: all that its selector matches are taken for met.
func (t *repelTerm) met(infos []fwk.PodInfo) []int {
	var met []int
	for i, info := range infos {
		if t.Matches(info.GetPod(), nil) || t.byNamespaceLabels() && t.Selector.Matches(labelsOf(info)) {
			met = append(met, i)
		}
	}
	return met
}

func (t *repelTerm) plain() bool {
	return t.TopologyKey == corev1.LabelHostname && !t.byNamespaceLabels()
}

func (t *repelTerm) byNamespaceLabels() bool {
	requirements, selectable := t.NamespaceSelector.Requirements()
	return selectable && len(requirements) > 0
}

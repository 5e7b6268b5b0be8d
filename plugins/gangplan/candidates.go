package gangplan

import "github.com/muster-sched/muster/podgroup/planner"

// candidates lists the domains to search, the smallest first.
func (s *search) candidates() []planner.Domain {
	var out []planner.Domain
	nodes := make([]planner.NodeID, 0, len(s.planned)+len(s.demand.Placed))
	for _, n := range s.planned {
		if n != planner.NoNode {
			nodes = append(nodes, n)
		}
	}
	for _, p := range s.demand.Placed {
		nodes = append(nodes, p.Node)
	}
	for l := s.cluster.NodeLevel(); l >= s.demand.Required; l-- {
		d, ok := s.cluster.Around(nodes[0], l)
		for _, n := range nodes {
			ok = ok && d.Lo <= n && n < d.Hi
		}
		if ok {
			out = append(out, d)
		}
	}
	return out
}

package gangplan

import (
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/muster-sched/muster/podgroup/planner"
)

type closing struct {
	kind int
	node planner.NodeID
	at   int // members in place
}

// failure is how far an attempt came: members in place, the member that found none, and why each node
// refused it.
type failure struct {
	member, placed int
	causes         []string
}

// blocked says why arithmetic keeps a member off a node, or returns "".
func (s *search) blocked(member int, node planner.NodeID) string {
	class := &s.demand.Classes[s.demand.Members[member].Class]
	if class.Blocked != nil && class.Blocked[node] != 0 {
		return class.Causes[class.Blocked[node]-1]
	}
	for _, a := range class.Requests {
		if s.cluster.Free(node, a.Resource) < a.Value {
			return "too little " + s.cluster.ResourceName(a.Resource) + " left"
		}
	}
	return ""
}

// fail notes the member that found no place, and the reasons if no attempt came further; of two that
// came as far the later one had the larger domain.
func (s *search) fail(member int, in planner.Domain) {
	s.failed = failure{member: member, placed: len(s.placed)}
	if s.failed.placed < s.best.placed {
		return
	}
	s.best = s.failed
	s.best.causes = make([]string, s.cluster.NumNodes())
	kind := s.kinds.of[member]
	for node := in.Lo; node < in.Hi; node++ {
		cause := s.passed[node]
		if cause == "" && s.closed[kind] != nil {
			cause = s.closed[kind][node]
		}
		if cause == "" {
			cause = s.blocked(member, node)
		}
		s.best.causes[node] = cause
	}
}

// lasts reports whether a node that refused a member keeps refusing it, and those like it, when more
// members have their places. Pods that attract the member, or that even out a spread, may come;
// everything else only becomes less. Of plugins that are not Kubernetes' own nothing is known.
func lasts(status *fwk.Status) bool {
	switch status.Plugin() {
	case names.InterPodAffinity:
		return status.Code() == fwk.Unschedulable // kept away, rather than not attracted
	case names.PodTopologySpread:
		return status.Code() == fwk.UnschedulableAndUnresolvable // the node has not the label
	case names.NodeResourcesFit, names.NodePorts, names.NodeName, names.NodeUnschedulable, names.NodeAffinity, names.TaintToleration,
		names.NodeDeclaredFeatures, names.NodeVolumeLimits, names.VolumeRestrictions, names.VolumeZone, names.VolumeBinding, names.DynamicResources:
		return true
	}
	return false
}

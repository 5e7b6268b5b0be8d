package coscheduling

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// seatsMetKey is where a scheduling cycle keeps its seatsMet.
const seatsMetKey fwk.StateKey = "muster.dev/seats-met"

// seatsMet are the nodes on which gangs had seats when the turn of a pod without a gang came. The scheduler keeps the pod
// out of them, as members are nominated there, and tells nobody when they are given up.
type seatsMet struct {
	nodes    sets.Set[string]
	releases uint64
}

// Clone returns the same: nobody changes it.
func (s *seatsMet) Clone() fwk.StateData { return s }

// meetSeats notes the seats that a pod without a gang must leave alone, if there are any.
func (pl *Coscheduling) meetSeats(state fwk.CycleState, pod *corev1.Pod) {
	s := &seatsMet{nodes: sets.New[string](), releases: pl.gangs.releasesSoFar()}
	for _, claim := range pl.gangs.held(types.NamespacedName{}, corev1helpers.PodPriority(pod)) {
		s.nodes.Insert(claim.Node)
	}
	if len(s.nodes) > 0 {
		state.Write(seatsMetKey, s)
	}
}

// keptBySeats sees to it that a pod without a gang that was refused is put in line when seats are given up that may have
// kept it out.
func (pl *Coscheduling) keptBySeats(logger klog.Logger, state fwk.CycleState, pod *corev1.Pod, statuses fwk.NodeToStatusReader) {
	data, err := state.Read(seatsMetKey)
	if err != nil {
		return
	}
	met := data.(*seatsMet)
	for node := range met.nodes {
		if statuses.Get(node).Code() == fwk.Unschedulable {
			pl.holds.keptFrom(pod)
			if pl.gangs.releasesSoFar() != met.releases {
				pl.activatePods(logger, pod) // who gave them up did not know of it yet
			}
			return
		}
	}
}

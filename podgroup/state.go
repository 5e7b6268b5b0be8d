package podgroup

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// State is how far a member has come. States are ordered: where several pods took the same place in a gang
// one after another, the one with the highest state speaks for the place.
type State int

const (
	// Gone is a member that is being deleted before it succeeded. It does not count, whatever it still runs.
	Gone State = iota

	// Failed is a member that failed and is not being deleted. It does not count: its work is not done, and
	// nothing runs that would do it.
	Failed

	// Waiting is a member that has no node yet.
	Waiting

	// Bound is a member that has a node and does not run there yet.
	Bound

	// Running is a member whose phase is Running.
	Running

	// Succeeded is a member that did its work. It counts for as long as its pod exists.
	Succeeded
)

// StateOf returns how far the pod has come.
func StateOf(pod *corev1.Pod) State {
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		return Succeeded
	case pod.DeletionTimestamp != nil:
		return Gone
	case pod.Status.Phase == corev1.PodFailed:
		return Failed
	case pod.Spec.NodeName == "":
		return Waiting
	case pod.Status.Phase == corev1.PodRunning:
		return Running
	default:
		return Bound
	}
}

// String returns the state's name.
func (s State) String() string {
	switch s {
	case Gone:
		return "Gone"
	case Failed:
		return "Failed"
	case Waiting:
		return "Waiting"
	case Bound:
		return "Bound"
	case Running:
		return "Running"
	case Succeeded:
		return "Succeeded"
	default:
		return fmt.Sprintf("State(%d)", int(s))
	}
}

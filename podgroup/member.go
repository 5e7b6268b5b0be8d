package podgroup

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Member is what a gang needs to know of one of its pods. It is comparable: two members are equal if nothing
// that matters to the gang changed between them.
type Member struct {
	UID       types.UID
	Namespace string
	Name      string

	// Node is the node that the pod is bound to, empty while it waits.
	Node string

	State State
	Phase corev1.PodPhase

	// Deleting is whether the pod has a deletion timestamp.
	Deleting bool

	SchedulerName string

	// Priority is the pod's resolved priority, 0 if it has none.
	Priority int32

	// Gated is whether the pod has scheduling gates left.
	Gated bool

	// Rank is the completion index within the pod's Job, or -1.
	Rank int

	// Identity is the place in the gang that the pod takes.
	Identity Identity

	// Owner is the pod's controller; zero if it has none.
	Owner Owner

	order order
}

// Owner names the controller of a member.
type Owner struct {
	APIVersion string
	Kind       string
	Name       string
	UID        types.UID
}

// MemberOf returns what its gang needs to know of the pod.
func MemberOf(pod *corev1.Pod) Member {
	m := Member{
		UID:           pod.UID,
		Namespace:     pod.Namespace,
		Name:          pod.Name,
		Node:          pod.Spec.NodeName,
		State:         StateOf(pod),
		Phase:         pod.Status.Phase,
		Deleting:      pod.DeletionTimestamp != nil,
		SchedulerName: pod.Spec.SchedulerName,
		Priority:      ptr.Deref(pod.Spec.Priority, 0),
		Gated:         len(pod.Spec.SchedulingGates) > 0,
		Rank:          -1,
		Identity:      IdentityOf(pod),
		order:         orderOf(pod),
	}
	if rank, ok := Rank(pod); ok {
		m.Rank = rank
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		m.Owner = Owner{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
	}
	return m
}

// Compare orders members as CompareMembers orders their pods.
func (m Member) Compare(other Member) int {
	return m.order.compare(other.order)
}

// speaksBefore orders the pods of one place in a gang: the first of them speaks for the place.
func (m Member) speaksBefore(other Member) int {
	if m.State != other.State {
		return cmp.Compare(other.State, m.State)
	}
	if m.Gated != other.Gated {
		if m.Gated {
			return 1
		}
		return -1
	}
	return m.Compare(other)
}

// speakers returns, in the order of the members, the one member that speaks for each place of the gang.
func speakers(members []Member) []Member {
	first := make(map[Identity]int, len(members))
	for i, m := range members {
		if j, seen := first[m.Identity]; !seen || m.speaksBefore(members[j]) < 0 {
			first[m.Identity] = i
		}
	}
	result := make([]Member, 0, len(first))
	for i, m := range members {
		if first[m.Identity] == i {
			result = append(result, m)
		}
	}
	slices.SortFunc(result, Member.Compare)
	return result
}

package podgroup

import (
	"cmp"
	"errors"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
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

	// Ready is whether the pod runs and its Ready condition holds.
	Ready bool

	// BoundSince is when the pod was bound to its node, in seconds since 1970; 0 while it waits.
	BoundSince int64

	// Trouble is, in a few words, what keeps a pod that has a node from being ready; empty if there is nothing to
	// tell.
	Trouble string

	// Identity is the place in the gang that the pod takes.
	Identity Identity

	// Owner is the pod's controller; zero if it has none.
	Owner Owner

	order order

	// index is the pod's position among those of its template, -1 if it has none that would stay when the pod
	// is replaced.
	index int

	// jobs is how many Jobs the member's replicated Job has, 0 if it is not of one.
	jobs int

	// topology is what the pod's annotations ask for; one value for all pods that ask for the same.
	topology unique.Handle[parsedTopology]
}

// parsedTopology is what ParseTopology made of some annotations.
type parsedTopology struct {
	topology Topology
	problem  TopologyError
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
		Ready:         isReady(pod),
		BoundSince:    boundSince(pod),
		Trouble:       troubleOf(pod),
		Rank:          -1,
		Identity:      IdentityOf(pod),
		order:         orderOf(pod),
	}
	if rank, ok := Rank(pod); ok {
		m.Rank = rank
	}
	m.index = indexOf(pod)
	if jobs, ok := parseIndex(pod.Labels[jobset.ReplicatedJobReplicas]); ok {
		m.jobs = jobs
	}
	m.topology = unique.Make(parsedTopologyOf(pod.Annotations))
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		m.Owner = Owner{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
	}
	return m
}

// Topology returns what the pod's annotations ask for its set. The error, if any, is a *TopologyError.
func (m *Member) Topology() (Topology, error) {
	if m.topology == (unique.Handle[parsedTopology]{}) {
		return Topology{}, nil
	}
	parsed := m.topology.Value()
	if parsed.problem != (TopologyError{}) {
		problem := parsed.problem
		return Topology{}, &problem
	}
	return parsed.topology, nil
}

func parsedTopologyOf(annotations map[string]string) parsedTopology {
	topology, err := ParseTopology(annotations)
	if problem := (*TopologyError)(nil); errors.As(err, &problem) {
		return parsedTopology{problem: *problem}
	}
	return parsedTopology{topology: topology}
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

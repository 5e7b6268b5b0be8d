package podgroup

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// CompareMembers orders the members of a gang by rank: it returns a negative number if a comes before b, a
// positive one if after, and 0 only for one and the same pod. The order is total and counts indices as
// numbers, so rank 10 follows rank 9. It is decided by, in turn: the JobSet, the position of the Job among
// all Jobs of the JobSet, the replicated Job and the index of the Job within it, the completion index, and
// the pod's name with a trailing number read as a number. A pod that lacks an index follows those that have
// it.
func CompareMembers(a, b *corev1.Pod) int {
	return orderOf(a).compare(orderOf(b))
}

// absent is the value of an index that a pod does not have: such pods come last.
const absent = math.MaxInt

// order is the sort key of a member.
type order struct {
	jobSet          string
	globalIndex     int
	replicatedJob   string
	jobIndex        int
	completionIndex int
	stem            string // the name without its trailing number
	number          int    // the name's trailing number, or -1
	name            string
	namespace       string
	uid             types.UID
}

func orderOf(pod *corev1.Pod) order {
	o := order{
		jobSet:          pod.Labels[jobset.JobSetNameKey],
		globalIndex:     absent,
		replicatedJob:   pod.Labels[jobset.ReplicatedJobNameKey],
		jobIndex:        absent,
		completionIndex: absent,
		name:            pod.Name,
		namespace:       pod.Namespace,
		uid:             pod.UID,
	}
	if index, ok := parseIndex(pod.Labels[jobset.JobGlobalIndexKey]); ok {
		o.globalIndex = index
	}
	if index, ok := parseIndex(pod.Labels[jobset.JobIndexKey]); ok {
		o.jobIndex = index
	}
	if index, ok := Rank(pod); ok {
		o.completionIndex = index
	}
	o.stem, o.number = splitTrailingNumber(pod.Name)
	return o
}

func (o order) compare(p order) int {
	return cmp.Or(
		strings.Compare(o.jobSet, p.jobSet),
		cmp.Compare(o.globalIndex, p.globalIndex),
		strings.Compare(o.replicatedJob, p.replicatedJob),
		cmp.Compare(o.jobIndex, p.jobIndex),
		cmp.Compare(o.completionIndex, p.completionIndex),
		strings.Compare(o.stem, p.stem),
		cmp.Compare(o.number, p.number),
		strings.Compare(o.name, p.name),
		strings.Compare(o.namespace, p.namespace),
		strings.Compare(string(o.uid), string(p.uid)),
	)
}

// parseIndex reads a decimal index of zero or more; signs and anything above 31 bits are refused.
func parseIndex(value string) (int, bool) {
	if value == "" {
		return 0, false
	}
	index, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return 0, false
	}
	return int(index), true
}

// splitTrailingNumber splits "worker-10" into "worker-" and 10. A name that does not end in a number, or in
// one too long to be an index, is returned whole with -1.
func splitTrailingNumber(name string) (stem string, number int) {
	stem = strings.TrimRight(name, "0123456789")
	number, ok := parseIndex(name[len(stem):])
	if !ok {
		return name, -1
	}
	return stem, number
}

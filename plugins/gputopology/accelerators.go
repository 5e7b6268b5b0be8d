package gputopology

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/plugins/gangplan"
)

// DefaultAccelerators are the extended resources that count as accelerators where the arguments name
// none.
var DefaultAccelerators = gangplan.DefaultAccelerators

// accelerators tells accelerators from other resources.
type accelerators struct {
	// rank is the place of each exact name among the arguments, and prefixes are the names that end
	// with a wildcard, without it.
	rank     map[corev1.ResourceName]int
	prefixes []prefix
}

type prefix struct {
	name string
	rank int
}

func newAccelerators(names []string) *accelerators {
	a := &accelerators{rank: make(map[corev1.ResourceName]int, len(names))}
	for i, name := range names {
		if start, wild := strings.CutSuffix(name, "*"); wild {
			a.prefixes = append(a.prefixes, prefix{name: start, rank: i})
		} else {
			a.rank[corev1.ResourceName(name)] = i
		}
	}
	return a
}

// match returns the place of the resource among the configured names; a smaller one goes first.
func (a *accelerators) match(name corev1.ResourceName) (int, bool) {
	rank, found := a.rank[name]
	for _, p := range a.prefixes {
		if strings.HasPrefix(string(name), p.name) && (!found || p.rank < rank) {
			rank, found = p.rank, true
		}
	}
	return rank, found
}

// request is what a pod asks for of one accelerator.
type request struct {
	resource corev1.ResourceName
	amount   int64
}

// requested returns the accelerator that decides where a pod goes: of those it requests the first in
// the configured order, by name within one wildcard. The zero request means none.
func (a *accelerators) requested(requests fwk.Resource) request {
	best, bestRank := request{}, 0
	for name, amount := range requests.GetScalarResources() {
		rank, ok := a.match(name)
		if !ok || amount <= 0 {
			continue
		}
		if best.amount == 0 || rank < bestRank || rank == bestRank && name < best.resource {
			best, bestRank = request{resource: name, amount: amount}, rank
		}
	}
	return best
}

// any reports whether a node has accelerators at all, in use or not.
func (a *accelerators) any(allocatable fwk.Resource) bool {
	for name, amount := range allocatable.GetScalarResources() {
		if _, ok := a.match(name); ok && amount > 0 {
			return true
		}
	}
	return false
}

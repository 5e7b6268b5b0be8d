package workload

import (
	"cmp"
	"slices"
	"time"
)

// Observation is what one process saw of one run: the times at which a watch of its own showed the members.
type Observation struct {
	// Seconds from the first member seen to the last member bound.
	Seconds float64 `json:"seconds"`

	// Pods that were bound.
	Pods int `json:"pods"`

	// GangSeconds are, gang by gang in ascending order, from its first member seen to its last member bound.
	GangSeconds []float64 `json:"gangSeconds"`

	// AllocatedBytes and Allocations of the process in that time: the API server's are among them.
	AllocatedBytes uint64 `json:"allocatedBytes"`
	Allocations    uint64 `json:"allocations"`

	// PeakHeapBytes is the most that the process had in use of its heap.
	PeakHeapBytes uint64 `json:"peakHeapBytes"`
}

// Times are when members of gangs were seen and bound. The zero Times is ready to use.
type Times struct {
	first, last time.Time
	gangs       map[string]*gangTimes
	bound       map[string]bool
}

type gangTimes struct {
	seen, bound time.Time
}

// Seen notes a member of a gang, by name.
func (t *Times) Seen(gang string, now time.Time) {
	if t.gangs == nil {
		t.gangs, t.bound = map[string]*gangTimes{}, map[string]bool{}
		t.first = now
	}
	if t.gangs[gang] == nil {
		t.gangs[gang] = &gangTimes{seen: now}
	}
}

// Bound notes that a member has its node, and returns how many have.
func (t *Times) Bound(gang, pod string, now time.Time) int {
	t.Seen(gang, now)
	if !t.bound[pod] {
		t.bound[pod] = true
		t.gangs[gang].bound, t.last = now, now
	}
	return len(t.bound)
}

// Observation sums the times up.
func (t *Times) Observation() Observation {
	o := Observation{Seconds: t.last.Sub(t.first).Seconds(), Pods: len(t.bound)}
	for _, g := range t.gangs {
		if !g.bound.IsZero() {
			o.GangSeconds = append(o.GangSeconds, g.bound.Sub(g.seen).Seconds())
		}
	}
	slices.SortFunc(o.GangSeconds, cmp.Compare[float64])
	return o
}

// Quantile returns the value below which a share q of the sorted values lies, 0 if there are none.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// None reports whether nothing was seen yet.
func (t *Times) None() bool { return t.gangs == nil }

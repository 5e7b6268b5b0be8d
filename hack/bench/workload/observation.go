package workload

import (
	"cmp"
	"slices"
	"time"
)

// Observation is what one process saw of one run: the times at which a watch of its own showed the members.
type Observation struct {
	// Seconds from the first member seen to the last member settled: bound or, where a case wants that, refused.
	Seconds float64 `json:"seconds"`

	// Pods that were settled.
	Pods int `json:"pods"`

	// GangSeconds are, gang by gang in ascending order, from its first member seen to its last member settled.
	GangSeconds []float64 `json:"gangSeconds"`

	// AllocatedBytes and Allocations of the process in that time: the API server's are among them.
	AllocatedBytes uint64 `json:"allocatedBytes"`
	Allocations    uint64 `json:"allocations"`

	// LiveHeapBytes is the most that a garbage collection found in use of the process's heap.
	LiveHeapBytes uint64 `json:"liveHeapBytes"`

	// Durations are what the scheduler's own metrics say of that time, by metric and result.
	Durations map[string]Duration `json:"durations"`
}

// Duration is what a histogram of durations sums up to.
type Duration struct {
	Count   uint64  `json:"count"`
	Seconds float64 `json:"seconds"`
}

// Times are when members of gangs were seen and settled. The zero Times is ready to use.
type Times struct {
	first, last time.Time
	gangs       map[string]*gangTimes
	settled     map[string]bool
}

type gangTimes struct {
	seen, settled time.Time
}

// Seen notes a member of a gang, by name.
func (t *Times) Seen(gang string, now time.Time) {
	if t.gangs == nil {
		t.gangs, t.settled = map[string]*gangTimes{}, map[string]bool{}
		t.first = now
	}
	if t.gangs[gang] == nil {
		t.gangs[gang] = &gangTimes{seen: now}
	}
}

// Settled notes that a member is bound or refused, and returns of how many that is known.
func (t *Times) Settled(gang, pod string, now time.Time) int {
	t.Seen(gang, now)
	if !t.settled[pod] {
		t.settled[pod] = true
		t.gangs[gang].settled, t.last = now, now
	}
	return len(t.settled)
}

// Observation sums the times up.
func (t *Times) Observation() Observation {
	o := Observation{Seconds: t.last.Sub(t.first).Seconds(), Pods: len(t.settled)}
	for _, g := range t.gangs {
		if !g.settled.IsZero() {
			o.GangSeconds = append(o.GangSeconds, g.settled.Sub(g.seen).Seconds())
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

package simulation

import (
	"sync"
	"testing"
)

// coverage counts what happened in all walks together.
type coverage struct {
	sync.Mutex
	counts map[string]int
}

func (c *coverage) add(counts map[string]int) {
	c.Lock()
	defer c.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	for what, n := range counts {
		c.counts[what] += n
	}
}

// least is how often things happen at least in ten thousand steps, so that what is checked about them was put to the test.
var least = map[string]int{
	"PodGroups edited":                     200,
	"bindings failed":                      80,
	"budgets violated":                     1,
	"commits carried out":                  600,
	"commits interrupted":                  80,
	"gangs bound in part":                  200,
	"gangs evicted whole":                  25,
	"gangs released":                       15,
	"preemptions":                          50,
	"preemptions judged by what they free": 10,
	"provisioning windows":                 5,
	"reservations":                         3,
	"single pods evicted":                  30,
	"surplus evicted":                      1,
	"the scheduler killed or started":      250,
}

// check logs how often what happened, and fails if something did not happen often enough to prove anything.
func (c *coverage) check(t *testing.T, steps int64) {
	t.Helper()
	c.Lock()
	defer c.Unlock()
	t.Logf("%d steps", steps)
	for _, what := range sortedKeys(c.counts) {
		t.Logf("%9d %s", c.counts[what], what)
	}
	if t.Failed() {
		return
	}
	for _, what := range sortedKeys(least) {
		if want := int64(least[what]) * steps / 10_000; int64(c.counts[what]) < want {
			t.Errorf("%d times in %d steps: %s; want %d at least", c.counts[what], steps, what, want)
		}
	}
}

package demo

import (
	"fmt"
	"math"
	"testing"
	"time"
)

func at(seconds float64) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

func TestLedger(t *testing.T) {
	type event struct {
		at       float64
		pod      string
		state    podState
		isRemove bool
	}
	pending := podState{job: "a", gpus: 8}
	bound := podState{job: "a", gpus: 8, node: "n"}
	done := podState{job: "a", gpus: 8, node: "n", finished: true}
	other := podState{job: "b", gpus: 4, node: "n"}
	for name, test := range map[string]struct {
		events  []event
		until   float64
		wasted  float64
		wasting int
		bound   int
	}{
		"nothing happens": {until: 100},
		"pending pods hold nothing": {
			events: []event{{at: 0, pod: "0", state: pending}, {at: 0, pod: "1", state: pending}},
			until:  10,
		},
		"half a gang holds until it is whole": {
			events: []event{{at: 1, pod: "0", state: bound}, {at: 4, pod: "1", state: bound}},
			until:  10, wasted: 8 * 3, bound: 2,
		},
		"half a gang holds for ever": {
			events: []event{{at: 2, pod: "0", state: bound}, {at: 2, pod: "1", state: pending}},
			until:  12, wasted: 80, wasting: 8, bound: 1,
		},
		"a finished member is present and holds nothing": {
			events: []event{{at: 0, pod: "0", state: bound}, {at: 0, pod: "1", state: bound}, {at: 5, pod: "0", state: done}},
			until:  10, bound: 2,
		},
		"a lost member makes the rest idle": {
			events: []event{{at: 0, pod: "0", state: bound}, {at: 0, pod: "1", state: bound}, {at: 6, pod: "1", isRemove: true}},
			until:  10, wasted: 8 * 4, wasting: 8, bound: 1,
		},
		"gangs are apart": {
			events: []event{{at: 0, pod: "0", state: bound}, {at: 0, pod: "b0", state: other}},
			until:  10, wasted: (8 + 4) * 10, wasting: 12, bound: 1,
		},
		"time does not run backwards": {
			events: []event{{at: 5, pod: "0", state: bound}, {at: 4, pod: "1", state: bound}},
			until:  10, bound: 2,
		},
		"the same state twice counts once": {
			events: []event{{at: 0, pod: "0", state: bound}, {at: 3, pod: "0", state: bound}},
			until:  10, wasted: 80, wasting: 8, bound: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(at(0), map[string]int{"a": 2, "b": 2})
			for _, e := range test.events {
				if e.isRemove {
					l.remove(at(e.at), e.pod)
				} else {
					l.set(at(e.at), e.pod, e.state)
				}
			}
			l.advance(at(test.until))
			if math.Abs(l.wasted-test.wasted) > 1e-6 {
				t.Errorf("wasted %v GPU-seconds, want %v", l.wasted, test.wasted)
			}
			if got := l.wasting(); got != test.wasting {
				t.Errorf("wasting %d GPUs, want %d", got, test.wasting)
			}
			if got := l.bound("a"); got != test.bound {
				t.Errorf("%d bound, want %d", got, test.bound)
			}
		})
	}
}

func TestLedgerChangeAndCompletion(t *testing.T) {
	l := newLedger(at(0), map[string]int{"a": 2})
	if l.whole("a") || l.finished("a") {
		t.Error("an absent gang is neither whole nor finished")
	}
	for i := range 2 {
		l.set(at(float64(i+1)), fmt.Sprint(i), podState{job: "a", node: "n"})
	}
	if !l.whole("a") || l.finished("a") {
		t.Error("a bound gang is whole and not finished")
	}
	if !l.changed.Equal(at(2)) {
		t.Errorf("changed at %v", l.changed)
	}
	l.set(at(9), "1", podState{job: "a", node: "n"})
	if !l.changed.Equal(at(2)) {
		t.Error("an event without news is not a change")
	}
	for i := range 2 {
		l.set(at(10), fmt.Sprint(i), podState{job: "a", node: "n", finished: true})
	}
	if !l.finished("a") || !l.changed.Equal(at(10)) {
		t.Error("the gang has finished")
	}
	l.remove(at(11), "nobody")
	if !l.changed.Equal(at(10)) {
		t.Error("removing an unknown pod is not a change")
	}
}

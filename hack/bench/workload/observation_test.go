package workload

import (
	"slices"
	"testing"
	"time"
)

func TestObservation(t *testing.T) {
	start := time.Unix(100, 0)
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	var times Times
	if !times.None() || times.Observation().Pods != 0 {
		t.Error("something was seen before anything was")
	}
	times.Seen("a", at(0))
	times.Seen("a", at(1)) // its second member
	times.Seen("b", at(2))
	times.Settled("b", "b-0", at(3))
	times.Settled("b", "b-0", at(9)) // told again
	times.Settled("a", "a-0", at(4))
	if n := times.Settled("a", "a-1", at(5)); n != 3 {
		t.Errorf("%d settled, want 3", n)
	}
	times.Seen("c", at(6)) // never settled
	got := times.Observation()
	if got.Seconds != 5 || got.Pods != 3 || !slices.Equal(got.GangSeconds, []float64{1, 5}) {
		t.Errorf("%+v", got)
	}
}

func TestQuantile(t *testing.T) {
	sorted := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for q, want := range map[float64]float64{0: 1, 0.5: 6, 0.99: 10, 1: 10} {
		if got := Quantile(sorted, q); got != want {
			t.Errorf("Quantile(%v) is %v, want %v", q, got, want)
		}
	}
	if got := Quantile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

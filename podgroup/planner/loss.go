package planner

import (
	"cmp"
	"math"
)

// loss is what a preemption costs its victims.
type loss struct {
	violations int64
	priority   int32 // the highest
	pods       int64
	lost       int64
}

// noLoss is that of no victims.
var noLoss = loss{priority: math.MinInt32}

func (l *loss) add(v *Victim) {
	l.violations = plus(l.violations, int64(v.Violations))
	l.priority = max(l.priority, v.Priority)
	l.pods = plus(l.pods, int64(v.Pods))
	l.lost = plus(l.lost, v.Lost)
}

// compareLosses orders losses, the least first.
func compareLosses(a, b *loss) int {
	return cmp.Or(cmp.Compare(a.violations, b.violations), cmp.Compare(a.priority, b.priority), comparePods(a, b))
}

func comparePods(a, b *loss) int {
	return cmp.Or(cmp.Compare(a.pods, b.pods), cmp.Compare(a.lost, b.lost))
}

// compareRates orders losses by what they are for each of a number of places that they make. The priority
// is left aside: it is settled before.
func compareRates(a *loss, placesA int64, b *loss, placesB int64) int {
	return cmp.Or(
		cmp.Compare(times(a.violations, placesB), times(b.violations, placesA)),
		cmp.Compare(times(a.pods, placesB), times(b.pods, placesA)),
		cmp.Compare(times(a.lost, placesB), times(b.lost, placesA)),
	)
}

// below reports whether a loss is less than another, the priority left aside.
func (l *loss) below(other *loss) bool { return compareRates(l, 1, other, 1) < 0 }

// and adds up losses.
func (l loss) and(other *loss) loss {
	return loss{plus(l.violations, other.violations), max(l.priority, other.priority), plus(l.pods, other.pods), plus(l.lost, other.lost)}
}

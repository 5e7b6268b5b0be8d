package replay

import (
	"time"
)

// account follows every GPU through time. All sums are over the time in which jobs come, in GPU-seconds.
type account struct {
	shape Shape
	until time.Duration
	last  time.Duration

	free  []int  // GPUs of each node that no pod has
	down  []bool // nodes that failed
	gpus  int    // of nodes that work
	total int    // free ones of nodes that work
	split int    // of those, the ones of nodes on which there are pods

	running int // GPUs of jobs that run
	held    int // GPUs of jobs that lack members

	capacity, busy, idleHeld, idle, idleSplit float64
}

func newAccount(shape Shape, until time.Duration) *account {
	a := &account{shape: shape, until: until, free: make([]int, shape.Nodes), down: make([]bool, shape.Nodes)}
	for n := range a.free {
		a.free[n] = shape.GPUsPerNode
	}
	a.gpus, a.total = shape.GPUs(), shape.GPUs()
	return a
}

// advance lets the time pass until now.
func (a *account) advance(now time.Duration) {
	d := (min(now, a.until) - a.last).Seconds()
	if d <= 0 {
		return
	}
	a.last = min(now, a.until)
	a.capacity += d * float64(a.gpus)
	a.busy += d * float64(a.running)
	a.idleHeld += d * float64(a.held)
	a.idle += d * float64(a.total)
	a.idleSplit += d * float64(a.split)
}

// take gives GPUs of a node to a pod; with a negative number it gives them back.
func (a *account) take(node, gpus int) {
	a.uncount(node)
	a.free[node] -= gpus
	a.count(node)
}

// fail takes a node out of all sums, and return brings it back.
func (a *account) fail(node int) {
	a.uncount(node)
	a.down[node] = true
	a.gpus -= a.shape.GPUsPerNode
}

func (a *account) repair(node int) {
	a.down[node] = false
	a.gpus += a.shape.GPUsPerNode
	a.count(node)
}

func (a *account) count(node int)   { a.add(node, 1) }
func (a *account) uncount(node int) { a.add(node, -1) }

func (a *account) add(node, sign int) {
	if a.down[node] {
		return
	}
	a.total += sign * a.free[node]
	if a.free[node] < a.shape.GPUsPerNode {
		a.split += sign * a.free[node]
	}
}

// utilisation is the part of the GPUs of working nodes that jobs ran on.
func (a *account) utilisation() float64 { return ratio(a.busy, a.capacity) }

// fragmentation is the part of the free GPUs that no pod which needs a whole node could have.
func (a *account) fragmentation() float64 { return ratio(a.idleSplit, a.idle) }

func ratio(x, of float64) float64 {
	if of == 0 {
		return 0
	}
	return x / of
}

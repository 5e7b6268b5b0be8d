package replay

import (
	"testing"

	"pgregory.net/rapid"
)

// What is counted by free GPUs is what a look at all nodes finds, whatever happened before.
func TestRoomFindsTheBestNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRoom(Shape{Nodes: 5, GPUsPerNode: 8})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			node, gpus := rapid.IntRange(0, 4).Draw(t, "node"), rapid.IntRange(1, 8).Draw(t, "gpus")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				r.take(node, min(gpus, r.free[node]))
			case 1:
				r.take(node, -min(gpus, 8-r.free[node]))
			case 2:
				if !r.down[node] {
					r.fail(node)
				}
			case 3:
				if r.down[node] {
					r.repair(node)
				}
			}
			for _, packed := range []bool{false, true} {
				if got, want := r.best(gpus, packed), looked(r, gpus, packed); got != want {
					t.Fatalf("%d GPUs, packed %v: node %d, want %d of %v, down %v", gpus, packed, got, want, r.free, r.down)
				}
			}
		}
	})
}

// looked is the best node by a look at each.
func looked(r *room, gpus int, packed bool) int {
	best := -1
	for n, free := range r.free {
		if free < gpus || r.down[n] {
			continue
		}
		if best < 0 || packed && free < r.free[best] || !packed && free > r.free[best] {
			best = n
		}
	}
	return best
}

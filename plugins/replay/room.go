package replay

// room is the GPUs that a model's nodes have free.
type room struct {
	free []int
	down []bool
	// withFree counts the nodes that work, by how many GPUs are free on them.
	withFree []int
}

func newRoom(shape Shape) *room {
	r := &room{free: make([]int, shape.Nodes), down: make([]bool, shape.Nodes), withFree: make([]int, shape.GPUsPerNode+1)}
	for n := range r.free {
		r.free[n] = shape.GPUsPerNode
	}
	r.withFree[shape.GPUsPerNode] = shape.Nodes
	return r
}

// take takes GPUs of a node; it gives them back if the number is negative.
func (r *room) take(node, gpus int) {
	if !r.down[node] {
		r.withFree[r.free[node]]--
		r.withFree[r.free[node]-gpus]++
	}
	r.free[node] -= gpus
}

// best is the node that the default scores like best among those with room: the emptiest one, or, packed, the fullest; of
// equal ones the first; -1 for none. Requests are in proportion, so that cpu and memory say the same as GPUs.
func (r *room) best(gpus int, packed bool) int {
	best := -1
	for free := gpus; free < len(r.withFree); free++ {
		if r.withFree[free] > 0 {
			if best = free; packed {
				break
			}
		}
	}
	if best < 0 {
		return -1
	}
	for n, free := range r.free {
		if free == best && !r.down[n] {
			return n
		}
	}
	return -1
}

func (r *room) fail(node int) {
	r.down[node] = true
	r.withFree[r.free[node]]--
}

func (r *room) repair(node int) {
	r.down[node] = false
	r.withFree[r.free[node]]++
}

package planner

// The heaps here hold plain structs in slices kept between plans, so that nothing is allocated and
// only what is used of them is sorted. compare is a total order; what it puts first is on top.

func heapify[T any](h []T, compare func(a, b *T) int) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		siftDown(h, i, compare)
	}
}

// pop takes the top off a heap that is not empty; its last element is free to be cut off.
func pop[T any](h []T, compare func(a, b *T) int) T {
	top, last := h[0], len(h)-1
	h[0] = h[last]
	siftDown(h[:last], 0, compare)
	return top
}

// push makes a heap of one to which an element was appended.
func push[T any](h []T, compare func(a, b *T) int) {
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if compare(&h[parent], &h[i]) <= 0 {
			return
		}
		h[parent], h[i] = h[i], h[parent]
		i = parent
	}
}

func siftDown[T any](h []T, i int, compare func(a, b *T) int) {
	for {
		first := 2*i + 1
		if first >= len(h) {
			return
		}
		if second := first + 1; second < len(h) && compare(&h[second], &h[first]) < 0 {
			first = second
		}
		if compare(&h[i], &h[first]) <= 0 {
			return
		}
		h[i], h[first] = h[first], h[i]
		i = first
	}
}

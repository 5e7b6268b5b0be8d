package planner

// A node's free devices are seen as buddy blocks: the powers of two that add up to their number, so
// 7 free GPUs are a block of 4, one of 2 and one of 1. Requests for devices are mostly powers of two,
// up to the whole node, and what serves them is blocks of their size or larger. A request costs
// least when it uses blocks of just its size, and most when it breaks up a whole node.

// ShapeCost returns what a request for devices, at least 0 and at most the free ones, takes from
// later requests on a node: for every size that is a power of two, and for the whole node if its
// capacity is none, the number of devices that requests of this size can no longer have, all sizes
// added up. Where the cost is least, no block larger than the request is broken up needlessly.
func ShapeCost(free, capacity, request int64) int64 {
	if request <= 0 || request > free {
		return 0
	}
	cost := int64(0)
	for size := int64(1); size <= free; size *= 2 {
		cost = plus(cost, free/size*size-(free-request)/size*size)
		if size > free/2 {
			break // the next size would be too large, for an integer perhaps
		}
	}
	if free == capacity && capacity&(capacity-1) != 0 {
		cost = plus(cost, capacity)
	}
	return cost
}

// ShapeScore compares nodes for one and the same request: the higher, the better. It is never
// positive. What ShapeCost is least for comes first, among equals the node with the fewest devices
// free.
func ShapeScore(free, capacity, request int64) int64 {
	return -plus(times(ShapeCost(free, capacity, request), plus(max(capacity, free, 0), 1)), max(free, 0))
}

// Mix is a distribution of requests for devices: how often each amount is asked for.
type Mix []MixPart

// MixPart says that requests for an amount make up a share of all.
type MixPart struct {
	Request int64
	Share   float64
}

// Unallocatable returns how many of a node's free devices a request drawn from the mix could not
// have, on average, counting for each request what a node filled with such requests would leave. It
// is the measure of fragmentation of "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
// Fragmentation Gradient Descent" (FGD, USENIX ATC 2023), for whole devices.
func (m Mix) Unallocatable(free int64) float64 {
	sum := 0.0
	for _, p := range m {
		if p.Request > free {
			sum += p.Share * float64(free)
		}
	}
	return sum
}

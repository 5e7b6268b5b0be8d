package planner

// Class is a set of members that no scheduling rule can tell apart.
type Class struct {
	// Requests of one member, each resource once, none zero. The resource "pods" with the amount 1
	// should be among them.
	Requests []Amount
	// Blocked says, for each node, why the class may not use it: 0 if it may, otherwise an index
	// into Causes plus one, or more for a cause that has no words. Nil if every node may be used.
	Blocked []uint16
	// Causes are short phrases such as "cordoned" or "taint dedicated=infra:NoSchedule".
	Causes []string
	// Score says, for each node, how much the class would like to be there, higher is better: its soft
	// preferences. It decides between nodes that are equal otherwise. Nil if there are none.
	Score []int32
}

// Set is a part of a gang with constraints of its own, inside those of the gang: the members made
// from one pod template. The zero Set asks for nothing.
type Set struct {
	// Required is the level one domain of which must hold the whole set, placed members included.
	Required Level
	// Preferred is the level down to which the set should be kept together; see Demand.Preferred.
	Preferred Level
	// SliceSize is how many consecutive members of the set, in rank order, make a slice; every slice
	// is inside one domain of SliceLevel. 0 if the set has no slices.
	SliceSize int
	// SliceLevel is the level of the domains that hold slices.
	SliceLevel Level
}

// Member is a member of a gang that has no place yet.
type Member struct {
	// Class is an index into Demand.Classes.
	Class int
	// Set is an index into Demand.Sets.
	Set int
	// Slice is the number of the member's slice within its set: its rank there divided by the slice
	// size. It is the caller's to compute, so that a replaced member stays with its slice. Without
	// meaning in a set without slices.
	Slice int
}

// PlacedMember is a member of a gang that has its place already.
type PlacedMember struct {
	Node       NodeID
	Set, Slice int
}

// Demand is the part of a gang that still has to be placed.
type Demand struct {
	// Classes of the members.
	Classes []Class
	// Sets that the gang is made of. None means one set without constraints.
	Sets []Set
	// Members to place, in rank order.
	Members []Member
	// Min is how many of the members must be placed for the gang to be worth starting: the first
	// ones in rank order. Members beyond it are placed as far as they fit, slices only whole. At
	// least 1.
	Min int
	// MinResources must be free, added up over the nodes that any class may use, besides the members
	// having their places. It is what PodGroup.spec.minResources still asks for.
	MinResources []Amount
	// Placed are the members that have their place already. The others are put near them, and in the
	// same domains wherever one is required.
	Placed []PlacedMember
	// Required is the level one domain of which must hold the whole gang, placed members included.
	Required Level
	// Preferred is the level down to which the gang should be kept together; Required or deeper.
	Preferred Level
}

// counts returns how many of the first k members each class has.
func (d *Demand) counts(k int) []int64 {
	counts := make([]int64, len(d.Classes))
	for _, m := range d.Members[:k] {
		counts[m.Class]++
	}
	return counts
}

// Plan is a place for every member of a Demand.
type Plan struct {
	// Nodes holds the place of each member, in the order of Demand.Members; NoNode for a member
	// beyond Demand.Min that has none. It is valid until the next call of Cluster.Plan.
	Nodes []NodeID
	// Domain names the innermost topology domain that holds the plan.
	Domain string
}

// Placed returns how many members the plan has a place for.
func (p *Plan) Placed() int {
	n := 0
	for _, id := range p.Nodes {
		if id != NoNode {
			n++
		}
	}
	return n
}

// Limit is what a Verifier learned: at most Max members of a class fit on a node, for Cause. With
// NoNode as its node it means that no node takes the class; Cause must not be empty then.
type Limit struct {
	Class int
	Node  NodeID
	Max   int
	Cause string
}

// Verifier checks a plan against what the arithmetic of resources cannot see.
type Verifier interface {
	// Verify returns a limit for each class and node whose members would be refused; none if the
	// plan holds. It must return no limit that the plan already respects.
	Verify(d *Demand, nodes []NodeID) ([]Limit, error)
}

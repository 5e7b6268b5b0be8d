package planner

// Class is a set of members that no scheduling rule can tell apart.
type Class struct {
	// Requests of one member, each resource once, none zero. The resource "pods" with the amount 1
	// should be among them.
	Requests []Amount
	// Blocked says, for each node, why the class may not use it: 0 if it may, otherwise an index
	// into Causes plus one. Nil if every node may be used.
	Blocked []uint16
	// Causes are short phrases such as "cordoned" or "taint dedicated=infra:NoSchedule".
	Causes []string
}

// Demand is the part of a gang that still has to be placed.
type Demand struct {
	// Classes of the members.
	Classes []Class
	// Members holds the class of each member to place, in rank order.
	Members []int
	// Min is how many of the members must be placed for the gang to be worth starting: the first
	// ones in rank order. Members beyond it are placed as far as they fit. At least 1.
	Min int
	// MinResources must be free, added up over the nodes that any class may use, besides the members
	// having their places. It is what PodGroup.spec.minResources still asks for.
	MinResources []Amount
	// Placed are the nodes of members that have their place already; the others are put near them.
	Placed []NodeID
}

// Plan is a place for every member of a Demand.
type Plan struct {
	// Nodes holds the place of each member, in the order of Demand.Members; NoNode for a member
	// beyond Demand.Min that has none.
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

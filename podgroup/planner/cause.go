package planner

import (
	"cmp"
	"fmt"
	"slices"
)

// CauseKind is a kind of cause for which a node is of no use to a class.
type CauseKind int

const (
	// Ruled means that the class may not use the node, whatever is free there: see Class.Blocked.
	Ruled CauseKind = iota
	// NoLabel means that the node is outside the level that the members' slices need.
	NoLabel
	// NoneThere means that the node has nothing of a resource.
	NoneThere
	// TooSmall means that the node would have too little of a resource if it were empty.
	TooSmall
	// TooLittleLeft means that others use too much of a resource.
	TooLittleLeft
	// CheckRefused means that a check beyond arithmetic refused the node.
	CheckRefused
	// CheckLimited means that such a check takes fewer members than have room.
	CheckLimited
)

// Cause is a number of nodes that are of no use to a class, or of less than their room, for one
// and the same cause.
type Cause struct {
	Kind  CauseKind
	Nodes int
	// Resource that it is about, unless the cause is a rule or a check.
	Resource string
	// Amount of the resource that a member requests, or of members that a check takes.
	Amount int64
	// Text is the rule or the check in words, or the label that is missing.
	Text string
}

// String is the cause in words that follow a number of nodes.
func (c Cause) String() string {
	switch c.Kind {
	case NoLabel:
		return "without the label " + c.Text
	case NoneThere:
		return "no " + c.Resource
	case TooSmall:
		return "too small for " + c.Resource + " " + FormatAmount(c.Resource, c.Amount)
	case TooLittleLeft:
		return "too little " + c.Resource + " left"
	case CheckLimited:
		return fmt.Sprintf("with room for only %d: %s", c.Amount, c.Text)
	}
	return c.Text
}

// finding is how far a domain goes towards a class.
type finding struct {
	// slots is how many of its members have room, and unlabelled how many nodes are outside the level
	// of their slices.
	slots      int64
	unlabelled int
	slicing    Level
	// ruled counts nodes by Class.Blocked, at the end those for a cause that has no words, and lacking those that lack a resource, by the index of the
	// request and the kind of lack, NoneThere first. A node counts for the first of them.
	ruled   []int32
	lacking [][3]int32
	// checks are what verification said.
	checks []Cause
}

// worst returns the class with the largest gap between its members and its slots in the domain, and
// what was found for it; -1 if no class has members to place.
func (c *Cluster) worst(d *Demand, l *learned, counts []int64, in Domain) (int, finding) {
	worst, worstGap := -1, int64(0)
	var found finding
	for class := range d.Classes {
		if counts[class] == 0 {
			continue
		}
		f := c.find(d, l, class, in)
		if gap := counts[class] - f.slots; worst < 0 || gap > worstGap {
			worst, worstGap, found = class, gap, f
		}
	}
	return worst, found
}

func (c *Cluster) find(d *Demand, l *learned, index int, in Domain) finding {
	class := &d.Classes[index]
	f := finding{lacking: make([][3]int32, len(class.Requests)), slicing: d.slicing()}
	if class.Blocked != nil {
		f.ruled = make([]int32, len(class.Causes)+2)
	}
	nowhere, hasRoom := l.nowhere[index], 0
	for node := in.Lo; node < in.Hi; node++ {
		switch {
		case !class.mayUse(node):
			f.ruled[min(int(class.Blocked[node]), len(f.ruled)-1)]++
			continue
		case c.outside(node, f.slicing):
			f.unlabelled++
			continue
		}
		slots, lacks := c.slotsOn(class, node)
		if slots == 0 {
			f.lacking[lacks][c.lack(class.Requests[lacks], node)-NoneThere]++
		} else {
			hasRoom++
		}
		f.slots += slots
	}
	if nowhere != "" {
		f.slots, f.checks = 0, []Cause{{Kind: CheckRefused, Nodes: hasRoom, Text: nowhere}}
	} else if len(l.byClass[index]) > 0 {
		c.findChecks(&f, class, l.byClass[index], in)
	}
	return f
}

// slicing returns the level that all members' slices need, WholeCluster if there is none.
func (d *Demand) slicing() Level {
	if len(d.Sets) == 1 && d.Sets[0].SliceSize > 0 {
		return d.Sets[0].SliceLevel
	}
	return WholeCluster
}

// outside reports whether a node is in no domain of a level.
func (c *Cluster) outside(node NodeID, l Level) bool {
	return l > WholeCluster && l < c.NodeLevel() && c.at[l][node] < 0
}

// findChecks takes limits off what was found without them.
func (c *Cluster) findChecks(f *finding, class *Class, limits []Limit, in Domain) {
	limits = slices.Clone(limits)
	slices.SortStableFunc(limits, func(a, b Limit) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Max, b.Max)) })
	limits = slices.CompactFunc(limits, func(a, b Limit) bool { return a.Node == b.Node })
	for _, limit := range limits {
		if limit.Node < in.Lo || limit.Node >= in.Hi || !class.mayUse(limit.Node) || c.outside(limit.Node, f.slicing) {
			continue
		}
		slots, _ := c.slotsOn(class, limit.Node)
		if int64(limit.Max) >= slots {
			continue
		}
		f.slots -= slots - int64(limit.Max)
		cause := Cause{Kind: CheckRefused, Text: limit.Cause}
		if limit.Max > 0 {
			cause.Kind, cause.Amount = CheckLimited, int64(limit.Max)
		}
		f.checks = addCause(f.checks, cause)
	}
}

func addCause(causes []Cause, cause Cause) []Cause {
	i := slices.IndexFunc(causes, func(known Cause) bool {
		known.Nodes = 0
		return known == cause
	})
	if i < 0 {
		i = len(causes)
		causes = append(causes, cause)
	}
	causes[i].Nodes++
	return causes
}

// causes lists what was found, the most frequent cause first.
func (f *finding) causes(c *Cluster, class *Class) []Cause {
	n := len(f.checks) + min(f.unlabelled, 1)
	for _, nodes := range f.ruled {
		n += int(min(nodes, 1))
	}
	for _, by := range f.lacking {
		n += int(min(by[0], 1) + min(by[1], 1) + min(by[2], 1))
	}
	out := make([]Cause, 0, n)
	for i, nodes := range f.ruled {
		if nodes > 0 {
			cause := Cause{Kind: Ruled, Nodes: int(nodes), Text: "not allowed"}
			if i <= len(class.Causes) {
				cause.Text = class.Causes[i-1]
			}
			out = append(out, cause)
		}
	}
	if f.unlabelled > 0 {
		out = append(out, Cause{Kind: NoLabel, Nodes: f.unlabelled, Text: c.LevelName(f.slicing)})
	}
	for i, by := range f.lacking {
		for kind, nodes := range by {
			if nodes > 0 {
				a := class.Requests[i]
				out = append(out, Cause{Kind: NoneThere + CauseKind(kind), Nodes: int(nodes), Resource: c.resources[a.Resource], Amount: a.Value})
			}
		}
	}
	return sortCauses(append(out, f.checks...))
}

func sortCauses(causes []Cause) []Cause {
	slices.SortFunc(causes, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Text, b.Text), cmp.Compare(a.Amount, b.Amount))
	})
	return causes
}

// countCauses counts nodes by what a check said of them, those without a cause left out.
func countCauses(texts []string) []Cause {
	var out []Cause
	index := map[string]int{}
	for _, text := range texts {
		if text == "" {
			continue
		}
		i, known := index[text]
		if !known {
			i = len(out)
			index[text] = i
			out = append(out, Cause{Kind: CheckRefused, Text: text})
		}
		out[i].Nodes++
	}
	return sortCauses(out)
}

func (class *Class) mayUse(node NodeID) bool {
	return class.Blocked == nil || class.Blocked[node] == 0
}

// slotsOn returns how many members of a class have room on a node that they may use, and if none
// has, the index of the first request that keeps them out.
func (c *Cluster) slotsOn(class *Class, node NodeID) (slots int64, lacks int) {
	slots = maxSlots
	for i, a := range class.Requests {
		free := c.free[a.Resource][node]
		if free < a.Value {
			return 0, i
		}
		if n := free / a.Value; n < slots {
			slots = n
		}
	}
	return slots, 0
}

// maxSlots is the room on a node for members that request nothing that is counted.
const maxSlots = 1<<31 - 1

// lack says why a node has too little of what is requested.
func (c *Cluster) lack(a Amount, node NodeID) CauseKind {
	switch has := c.capacity[a.Resource][node]; {
	case has == 0:
		return NoneThere
	case has < a.Value:
		return TooSmall
	}
	return TooLittleLeft
}

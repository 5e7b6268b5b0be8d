package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// maxCauses is how many causes a sentence names: there can be one for each node, and conditions and
// events have limits.
const maxCauses = 10

// podsResource counts the pods on a node; every member takes one, which goes without saying.
const podsResource = "pods"

// Explanation says why a gang is not placed: what it needs, how far the cluster goes towards it,
// what is short and by how much, and which nodes are of no use and why.
type Explanation struct {
	// Need are the members that must be placed together, by class.
	Need []ClassNeed
	// Placed is how many members have their place already.
	Placed int
	// Placeable is how many of the needed members would fit now.
	Placeable int
	// Best is, of the domains at the level that the gang requires, the one with room for the most of
	// its members; with placed members the one that they are in.
	Best Room
	// Short are the resources of which the nodes that the gang may use have too little left for it,
	// even added up over all nodes.
	Short []Shortage
	// Fragmented are the resources that suffice when added up, but not on whole nodes; only filled
	// when nothing is Short and no node refused the gang for another cause.
	Fragmented []Shortage
	// Nodes is how many nodes the cluster has.
	Nodes int
	// Blocked counts the nodes that take no member of the class that is worst off, or fewer than
	// they have room for, by cause; the most frequent cause first.
	Blocked []Blocked
	// MinResources are the shortages against spec.minResources, if that is what the gang fails on.
	MinResources []Shortage
	// Learned is set if checks beyond arithmetic refused nodes to the gang.
	Learned bool
	// Undecided is set if the planner gave up on a gang that arithmetic would let in.
	Undecided bool
}

// ClassNeed is a number of members and what each of them requests.
type ClassNeed struct {
	Members  int
	Requests []ResourceAmount
}

// ResourceAmount is a resource and an amount in the scheduler's units.
type ResourceAmount struct {
	Name  string
	Value int64
}

// Shortage compares what a gang needs of a resource with what is there.
type Shortage struct {
	Name string
	// Needed by the members that are not placed yet.
	Needed int64
	// Free on the nodes that the gang may use.
	Free int64
	// Capacity of those nodes.
	Capacity int64
}

// Blocked is a number of nodes that are of no use to a gang for the same cause.
type Blocked struct {
	Nodes int
	Cause string
}

// explain describes why the first Min members do not fit.
func (c *Cluster) explain(d *Demand, l *learned) *Explanation {
	counts := d.counts(d.Min)
	e := &Explanation{Nodes: len(c.names), Placed: len(d.Placed), Placeable: c.placeable(d, l), Best: c.best(d, l)}
	c.countSlots(d, l, needed(counts))
	worst, worstGap := -1, int64(0)
	for class := range d.Classes {
		if counts[class] == 0 {
			continue
		}
		e.Need = append(e.Need, ClassNeed{Members: int(counts[class]), Requests: c.resourceAmounts(d.Classes[class].Requests)})
		if gap := counts[class] - c.work.sums[class][len(c.names)]; worst < 0 || gap > worstGap {
			worst, worstGap = class, gap
		}
	}
	shortages := c.shortages(d, counts)
	for _, s := range shortages {
		if s.Needed > s.Free {
			e.Short = append(e.Short, s)
		}
	}
	if len(e.Short) == 0 && l.empty() {
		e.Fragmented = slices.DeleteFunc(shortages, func(s Shortage) bool { return s.Name == podsResource })
	}
	e.Learned = !l.empty()
	e.Blocked = c.blocked(d, l, worst)
	return e
}

// Refused describes a gang that was found not to fit by other means than Plan: placeable members
// have a place, and causes says for each node why it does not take the next one.
func (c *Cluster) Refused(d *Demand, placeable int, causes []string) *Explanation {
	c.work.learned.reset(len(d.Classes))
	c.prepare(d)
	c.countBlocks(d, &c.work.learned)
	e := c.explain(d, &c.work.learned)
	e.Placeable, e.Short, e.Fragmented, e.Learned = placeable, nil, nil, true
	e.Blocked = countCauses(len(causes), func(node int) string { return causes[node] })
	return e
}

func (c *Cluster) resourceAmounts(amounts []Amount) []ResourceAmount {
	out := make([]ResourceAmount, 0, len(amounts))
	for _, a := range amounts {
		if c.resources[a.Resource] != podsResource {
			out = append(out, ResourceAmount{c.resources[a.Resource], a.Value})
		}
	}
	return out
}

// minResourcesShort compares what the gang's minResources still ask for with what is free.
func (c *Cluster) minResourcesShort(d *Demand) []Shortage {
	if len(d.MinResources) == 0 {
		return nil
	}
	counts := d.counts(len(d.Members))
	asked := make([]Shortage, len(d.MinResources))
	columns := make([]Resource, len(d.MinResources))
	for i, a := range d.MinResources {
		columns[i], asked[i] = a.Resource, Shortage{Name: c.resources[a.Resource], Needed: a.Value}
	}
	c.sumUsable(d, counts, columns, asked)
	return slices.DeleteFunc(asked, func(s Shortage) bool { return s.Needed <= s.Free })
}

// shortages adds up what the members need and what the nodes that any of their classes may use
// have left, for each resource in the order in which the classes name them.
func (c *Cluster) shortages(d *Demand, counts []int64) []Shortage {
	var out []Shortage
	var columns []Resource
	for class := range d.Classes {
		for _, a := range d.Classes[class].Requests {
			if counts[class] == 0 {
				continue
			}
			i := slices.Index(columns, a.Resource)
			if i < 0 {
				i = len(out)
				columns = append(columns, a.Resource)
				out = append(out, Shortage{Name: c.resources[a.Resource]})
			}
			out[i].Needed = plus(out[i].Needed, times(counts[class], a.Value))
		}
	}
	c.sumUsable(d, counts, columns, out)
	return out
}

// sumUsable fills in what the nodes that any class may use have of each column.
func (c *Cluster) sumUsable(d *Demand, counts []int64, columns []Resource, out []Shortage) {
	for node := range c.names {
		if !usable(d, counts, node) {
			continue
		}
		for i, r := range columns {
			out[i].Free = plus(out[i].Free, max(c.free[r][node], 0))
			out[i].Capacity = plus(out[i].Capacity, c.capacity[r][node])
		}
	}
}

// plus and times compute with amounts that are not negative, and stop at the largest there is.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func times(n, a int64) int64 {
	if a > 0 && n > math.MaxInt64/a {
		return math.MaxInt64
	}
	return n * a
}

func usable(d *Demand, counts []int64, node int) bool {
	for class := range d.Classes {
		if counts[class] > 0 && (d.Classes[class].Blocked == nil || d.Classes[class].Blocked[node] == 0) {
			return true
		}
	}
	return false
}

func (c *Cluster) blocked(d *Demand, l *learned, class int) []Blocked {
	if class < 0 {
		return nil
	}
	slots := c.work.slots[class]
	return countCauses(len(slots), func(node int) string {
		if slots[node] > 0 {
			return l.partly(class, NodeID(node), slots[node])
		}
		return c.blockedBy(&d.Classes[class], l.cause(class, NodeID(node)), NodeID(node))
	})
}

// countCauses counts nodes by cause, those without one left out, the most frequent cause first.
func countCauses(nodes int, cause func(node int) string) []Blocked {
	var out []Blocked
	index := map[string]int{}
	for node := range nodes {
		why := cause(node)
		if why == "" {
			continue
		}
		i, known := index[why]
		if !known {
			i = len(out)
			index[why] = i
			out = append(out, Blocked{Cause: why})
		}
		out[i].Nodes++
	}
	slices.SortFunc(out, func(a, b Blocked) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Cause, b.Cause))
	})
	return out
}

func (c *Cluster) blockedBy(class *Class, learned string, node NodeID) string {
	if class.Blocked != nil && class.Blocked[node] != 0 {
		return class.Causes[class.Blocked[node]-1]
	}
	for _, a := range class.Requests {
		switch name := c.resources[a.Resource]; {
		case c.capacity[a.Resource][node] == 0:
			return "no " + name
		case c.capacity[a.Resource][node] < a.Value:
			return "too small for " + name + " " + FormatAmount(name, a.Value)
		case c.free[a.Resource][node] < a.Value:
			return "too little " + name + " left"
		}
	}
	return learned
}

// String is the explanation as one sentence.
func (e *Explanation) String() string {
	var b strings.Builder
	members := 0
	for _, n := range e.Need {
		members += n.Members
	}
	fmt.Fprintf(&b, "gang needs %s", counted(members, "member"))
	if e.Placed > 0 {
		fmt.Fprintf(&b, " more beside %d placed", e.Placed)
	}
	for i, n := range e.Need {
		b.WriteString(sep(i, " (", "; "))
		if len(e.Need) > 1 {
			fmt.Fprintf(&b, "%d ", n.Members)
		}
		b.WriteString("with ")
		for j, r := range n.Requests {
			b.WriteString(sep(j, "", ", ") + r.Name + " " + FormatAmount(r.Name, r.Value))
		}
		if len(n.Requests) == 0 {
			b.WriteString("no requests")
		}
	}
	if len(e.Need) > 0 {
		b.WriteString(")")
	}
	if len(e.MinResources) == 0 {
		fmt.Fprintf(&b, ", room for %d", e.Placeable)
		writeShortages(&b, "; short of ", e.Short)
	}
	writeShortages(&b, "; minResources asks for more than is free: ", e.MinResources)
	writeShortages(&b, "; enough is free in all, but not on whole nodes: ", e.Fragmented)
	if e.Nodes == 0 {
		b.WriteString("; the cluster has no nodes")
	}
	rest := 0
	for i, blocked := range e.Blocked {
		if i >= maxCauses {
			rest += blocked.Nodes
			continue
		}
		b.WriteString(sep(i, fmt.Sprintf("; of %s: ", counted(e.Nodes, "node")), ", "))
		fmt.Fprintf(&b, "%d %s", blocked.Nodes, blocked.Cause)
	}
	if rest > 0 {
		fmt.Fprintf(&b, ", %d for other causes", rest)
	}
	return b.String()
}

func writeShortages(b *strings.Builder, start string, shortages []Shortage) {
	for i, s := range shortages {
		fmt.Fprintf(b, "%s%s: needed %s, free %s of %s", sep(i, start, "; "), s.Name,
			FormatAmount(s.Name, s.Needed), FormatAmount(s.Name, s.Free), FormatAmount(s.Name, s.Capacity))
	}
}

func sep(i int, first, next string) string {
	if i == 0 {
		return first
	}
	return next
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// FormatAmount writes an amount in the scheduler's units as a Kubernetes quantity.
func FormatAmount(name string, value int64) string {
	switch {
	case name == "cpu":
		return resource.NewMilliQuantity(value, resource.DecimalSI).String()
	case name == "memory", name == "ephemeral-storage", strings.HasPrefix(name, "hugepages-"):
		return resource.NewQuantity(value, resource.BinarySI).String()
	}
	return strconv.FormatInt(value, 10)
}

// needed returns the classes that have members to place.
func needed(counts []int64) []int {
	var classes []int
	for class, n := range counts {
		if n > 0 {
			classes = append(classes, class)
		}
	}
	return classes
}

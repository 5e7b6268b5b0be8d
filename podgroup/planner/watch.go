package planner

import (
	"slices"
	"sort"
)

// Change is something that happened to one node.
type Change struct {
	// Node is the node's name.
	Node string
	// Freed are amounts that a pod gave back; the resource "pods" is among them if the pod is gone.
	Freed []ResourceAmount
	// Changed is set if the node is new, or if its labels, taints, allocatable resources or anything
	// else about it changed that decides who may use it. Freed is without meaning then.
	Changed bool
	// Domains are the values of a new or changed node for the levels of the cluster, outermost first;
	// nil if they are not known.
	Domains []string
	// Free is all that the node has left after the change; nil if that is not known. Without it the
	// answer is less precise.
	Free []ResourceAmount
}

// Watch tells which changes could let a refused gang in, so that no others cost it a plan. It adds
// up: a gang that lacks ten places sees nine of them go by. Its answers hold as long as every change
// since the refusal is shown to it, and until it says yes for the first time; the attempt that
// follows makes a new one. That it is refused again is possible; that a gang could be placed and
// every change was answered with no is not, as far as changes that take capacity away, which need
// not be shown, do not count.
//
// It shares no state with the Cluster it comes from, and is not safe for concurrent use.
type Watch struct {
	// any is set if nothing is known of what the gang waits for, and learned if it waits for more than
	// arithmetic knows: then a change anywhere could help, once arithmetic has nothing against it.
	any, learned bool
	classes      []watchedClass
	// nodes are the nodes at the time of the refusal, and open those that changed since, about which
	// nothing is known any more.
	nodes map[string]NodeID
	open  map[string]struct{}
	// level is what is required, and domains those that may hold the gang, in topology order. gaps
	// holds, for each of them and each class, how many places are missing; not used at the level of
	// single nodes.
	level   Level
	domains []Domain
	gaps    []int64
	// inside is the path of the domain that holds placed members, and holding their nodes, in order;
	// nil without.
	inside  []string
	holding []NodeID
	// minResources is what is missing of them. If it is not empty the gang has its places otherwise.
	minResources []ResourceAmount
}

// watchedClass is a class of which members are needed.
type watchedClass struct {
	requests []ResourceAmount
	count    int64
	blocked  []uint64 // a bit for each node
}

// Watch returns a watch for a gang that Plan just refused with the given explanation.
func (c *Cluster) Watch(d *Demand, e *Explanation) *Watch {
	d = c.clamped(d)
	w := &Watch{any: e.Undecided, learned: e.Learned, nodes: c.ids, level: d.Required}
	if w.any {
		return w
	}
	if len(d.Sets) == 1 {
		w.level = max(w.level, d.Sets[0].Required)
	}
	if len(e.MinResources) == 0 { // otherwise all members say which nodes count
		l := newLearned(len(d.Classes))
		c.prepare(d)
		d = c.needed(d, l)
	}
	for class, n := range d.counts(len(d.Members)) {
		if n > 0 {
			w.classes = append(w.classes, watchedClass{c.allAmounts(d.Classes[class].Requests), n, blockedBits(d.Classes[class].Blocked)})
		}
	}
	for _, s := range e.MinResources {
		w.minResources = append(w.minResources, ResourceAmount{s.Name, s.Needed - s.Free})
	}
	if len(w.minResources) == 0 {
		w.watchDomains(c, d)
	}
	return w
}

func (c *Cluster) allAmounts(amounts []Amount) []ResourceAmount {
	out := make([]ResourceAmount, len(amounts))
	for i, a := range amounts {
		out[i] = ResourceAmount{c.resources[a.Resource], a.Value}
	}
	return out
}

func blockedBits(blocked []uint16) []uint64 {
	if blocked == nil {
		return nil
	}
	out := make([]uint64, (len(blocked)+63)/64)
	for i, b := range blocked {
		if b != 0 {
			out[i/64] |= 1 << (i % 64)
		}
	}
	return out
}

// watchDomains notes where the gang may go, and how many places are missing in each domain.
func (w *Watch) watchDomains(c *Cluster, d *Demand) {
	if len(d.Placed) > 0 && w.level > WholeCluster {
		for _, p := range d.Placed {
			w.holding = append(w.holding, p.Node)
		}
		slices.Sort(w.holding)
		w.holding = slices.Compact(w.holding)
		at, ok := c.Around(d.Placed[0].Node, w.level)
		if !ok {
			return
		}
		w.domains, w.inside = []Domain{at}, c.values(at.Lo)[:min(int(w.level), len(c.levels))]
		if w.level >= c.NodeLevel() {
			w.inside = nil // a node keeps its name and may change its labels
		}
	} else if w.level < c.NodeLevel() {
		w.domains = c.DomainsAt(w.level)
	} else {
		w.domains = []Domain{c.Whole()}
		return
	}
	w.gaps = make([]int64, 0, len(w.domains)*len(w.classes))
	counts := d.counts(d.Min)
	for _, in := range w.domains {
		for class, n := range counts {
			if n == 0 {
				continue
			}
			for node := in.Lo; node < in.Hi && n > 0; node++ {
				if rules := &d.Classes[class]; rules.mayUse(node) {
					slots, _ := c.slotsOn(rules, node)
					n -= slots
				}
			}
			w.gaps = append(w.gaps, n)
		}
	}
}

// CouldHelp reports whether the gang could be placed after the change, and counts the change in.
// A change can help only if
//   - it is on a node that a class of the gang may use, in a domain that may hold the gang: where
//     the placed members are, if a level is required;
//   - the node has room afterwards for a member that requests some of what was freed, and, in a gang
//     of one class, for more members than before;
//   - the domain then has, with what was freed there since the refusal, a place for every member, if
//     each class had the domain to itself.
//
// In a gang that a check beyond arithmetic refused, any change can help once some domain has so many
// places.
//
// In a gang that lacks minResources it is only asked whether they could be there.
func (w *Watch) CouldHelp(ch Change) bool {
	if w.any {
		return true
	}
	id, known := w.nodes[ch.Node]
	if _, opened := w.open[ch.Node]; opened || ch.Changed || !known {
		return w.changed(ch)
	}
	if len(w.minResources) > 0 {
		return w.allows(id) && w.freed(ch.Freed)
	}
	in := w.domain(id)
	if in < 0 {
		return w.learned && w.anyClosed()
	}
	helps := false
	for k := range w.classes {
		class := &w.classes[k]
		if class.blocks(id) {
			continue
		}
		gained, room := class.gain(ch)
		helps = helps || gained > 0 || room && len(w.classes) > 1
		if w.gaps != nil {
			w.gaps[in*len(w.classes)+k] -= gained
		} else if ch.Free != nil && class.slots(ch.Free) < class.count {
			return w.learned // a single node must hold them all
		}
	}
	if w.learned {
		return w.anyClosed()
	}
	return helps && w.closed(in)
}

// changed is CouldHelp for a node of which it is not known who may use it.
func (w *Watch) changed(ch Change) bool {
	if w.open == nil {
		w.open = map[string]struct{}{}
	}
	w.open[ch.Node] = struct{}{}
	if len(w.minResources) > 0 {
		return ch.Free == nil || w.freed(ch.Free)
	}
	if id, known := w.nodes[ch.Node]; known {
		if _, holds := slices.BinarySearch(w.holding, id); holds {
			return true // the gang's domain may be another one now
		}
	}
	if w.inside != nil && ch.Domains != nil && !slices.Equal(ch.Domains[:min(len(ch.Domains), len(w.inside))], w.inside) {
		return w.learned && w.anyClosed()
	}
	if w.level > WholeCluster && ch.Domains != nil && int(w.level) <= len(ch.Domains) && ch.Domains[w.level-1] == "" {
		return w.learned && w.anyClosed()
	}
	helps := false
	for k := range w.classes {
		class := &w.classes[k]
		room := int64(maxSlots)
		if ch.Free != nil {
			room = class.slots(ch.Free)
		}
		helps = helps || room > 0
		if w.level == WholeCluster {
			w.gaps[k] -= room
		}
	}
	return (helps || w.learned) && (w.level > WholeCluster || w.closed(0))
}

// allows reports whether any class may use the node.
func (w *Watch) allows(id NodeID) bool {
	for k := range w.classes {
		if !w.classes[k].blocks(id) {
			return true
		}
	}
	return false
}

// freed counts freed amounts towards the minResources, and reports whether nothing is missing.
func (w *Watch) freed(amounts []ResourceAmount) bool {
	all := true
	for i := range w.minResources {
		m := &w.minResources[i]
		m.Value -= min(max(amountOf(amounts, m.Name), 0), max(m.Value, 0))
		all = all && m.Value <= 0
	}
	return all
}

// domain returns the index of the domain that a node is in, or -1.
func (w *Watch) domain(id NodeID) int {
	i := sort.Search(len(w.domains), func(i int) bool { return w.domains[i].Hi > id })
	if i == len(w.domains) || id < w.domains[i].Lo {
		return -1
	}
	return i
}

// closed reports whether no class lacks places in a domain.
func (w *Watch) closed(in int) bool {
	if w.gaps == nil {
		return true
	}
	for k := range w.classes {
		if w.gaps[in*len(w.classes)+k] > 0 {
			return false
		}
	}
	return true
}

// anyClosed reports whether there is a domain in which no class lacks places.
func (w *Watch) anyClosed() bool {
	for in := range w.domains {
		if w.closed(in) {
			return true
		}
	}
	return false
}

func (class *watchedClass) blocks(id NodeID) bool {
	return class.blocked != nil && class.blocked[id/64]&(1<<(id%64)) != 0
}

// slots returns how many members have room in what is free.
func (class *watchedClass) slots(free []ResourceAmount) int64 {
	slots := int64(maxSlots)
	for _, r := range class.requests {
		slots = min(slots, max(amountOf(free, r.Name), 0)/r.Value)
	}
	return slots
}

// gain returns how many more members have room than before the change, at most, and whether there
// may be room for one that requests what was freed.
func (class *watchedClass) gain(ch Change) (gained int64, room bool) {
	most := int64(0)
	touched := false
	for _, r := range class.requests {
		if freed := amountOf(ch.Freed, r.Name); freed > 0 {
			touched = true
			most = max(most, min((freed-1)/r.Value+1, maxSlots))
		}
	}
	if !touched || ch.Free == nil {
		return most, touched
	}
	after, before := class.slots(ch.Free), int64(maxSlots)
	for _, r := range class.requests {
		before = min(before, max(amountOf(ch.Free, r.Name)-max(amountOf(ch.Freed, r.Name), 0), 0)/r.Value)
	}
	return after - before, after > 0
}

func amountOf(amounts []ResourceAmount, name string) int64 {
	for _, a := range amounts {
		if a.Name == name {
			return a.Value
		}
	}
	return 0
}

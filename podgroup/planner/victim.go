package planner

import (
	"cmp"
	"fmt"
	"slices"
)

// Victim is somebody who may be evicted for a gang: a gang, the members that a gang can do without, or a
// pod that is in none. It goes whole or stays.
type Victim struct {
	Tenant
	// Priority is the highest of its pods.
	Priority int32
	// On is what its end gives back, and where: each node once.
	On []Occupancy
	// Pods is how many pods it is.
	Pods int
	// Lost is the work that is lost with it, in device-seconds.
	Lost int64
	// Violations is how many disruptions its end is beyond what PodDisruptionBudgets allow.
	Violations int
	// With are the indices of victims that must go too: the surplus of a gang goes before its core.
	With []int
}

// Occupancy is what a victim uses of a node.
type Occupancy struct {
	Node NodeID
	Used []Amount
}

// validateVictims returns an error that names the first field of victims that nobody can be.
func (c *Cluster) validateVictims(victims []Victim) error {
	for i := range victims {
		v := &victims[i]
		if v.Pods < 0 || v.Lost < 0 || v.Violations < 0 {
			return fmt.Errorf("victims[%d]: Pods %d, Lost %d and Violations %d must not be negative", i, v.Pods, v.Lost, v.Violations)
		}
		for j, at := range v.On {
			if at.Node < 0 || int(at.Node) >= len(c.names) {
				return fmt.Errorf("victims[%d].On[%d].Node: %d is none of the %d nodes", i, j, at.Node, len(c.names))
			}
			for k, a := range at.Used {
				if a.Resource < 0 || int(a.Resource) >= len(c.resources) {
					return fmt.Errorf("victims[%d].On[%d].Used[%d].Resource: there is no column %d", i, j, k, a.Resource)
				}
				if a.Value < 0 {
					return fmt.Errorf("victims[%d].On[%d].Used[%d]: %s %d is negative", i, j, k, c.resources[a.Resource], a.Value)
				}
			}
		}
		for j, other := range v.With {
			if other < 0 || other >= len(victims) {
				return fmt.Errorf("victims[%d].With[%d]: %d is none of the %d victims", i, j, other, len(victims))
			}
		}
	}
	return nil
}

// seat is what a victim uses of the node that it is listed for.
type seat struct {
	victim int32
	used   []Amount
}

// roster is who may be evicted, by node, and who goes with whom.
type roster struct {
	victims []Victim
	// seats[from[n]:from[n+1]] are the seats on node n.
	from  []int32
	seats []seat
	// closures[goes[i]:goes[i+1]] is the victim i and all that must go with it.
	goes     []int32
	closures []int32
	seen     []int32
	loss     []loss // by victim, with all that must go with it
	wide     []bool // by victim: whether that is on more nodes than one
	useful   []bool // by victim: whether its own end could help
}

// fill makes the lists. Victims are useful that use anything on a node that the demand asks for there.
func (r *roster) fill(c *Cluster, d *Demand, victims []Victim) {
	r.victims = victims
	n := len(victims)
	r.goes, r.closures = resize(r.goes, n+1), r.closures[:0]
	r.loss, r.wide, r.useful, r.seen = resize(r.loss, n), resize(r.wide, n), resize(r.useful, n), resize(r.seen, n)
	for i := range r.seen {
		r.seen[i] = -1
	}
	counts := d.counts(d.Min)
	for i := range victims {
		r.goes[i] = int32(len(r.closures))
		r.close(int32(i))
		r.loss[i] = loss{priority: victims[i].Priority}
		node := NoNode
		r.wide[i], r.useful[i] = false, false
		for _, j := range r.closures[r.goes[i]:] {
			r.loss[i].add(&victims[j])
			for _, at := range victims[j].On {
				r.wide[i] = r.wide[i] || node != NoNode && node != at.Node
				node = at.Node
			}
		}
		for _, at := range victims[i].On {
			r.useful[i] = r.useful[i] || wanted(d, counts, at)
		}
	}
	r.goes[n] = int32(len(r.closures))
	r.list(c)
}

// close appends a victim and, one after another, all that must go with it.
func (r *roster) close(i int32) {
	next := len(r.closures)
	r.closures = append(r.closures, i)
	r.seen[i] = i
	for ; next < len(r.closures); next++ {
		for _, j := range r.victims[r.closures[next]].With {
			if r.seen[j] != i {
				r.seen[j] = i
				r.closures = append(r.closures, int32(j))
			}
		}
	}
}

// wanted reports whether an occupancy is in the way of a class with members to place.
func wanted(d *Demand, counts []int64, at Occupancy) bool {
	for class := range d.Classes {
		if counts[class] == 0 || !d.Classes[class].mayUse(at.Node) {
			continue
		}
		for _, a := range at.Used {
			if a.Value > 0 && d.Classes[class].of(a.Resource) > 0 {
				return true
			}
		}
	}
	for _, m := range d.MinResources {
		for _, a := range at.Used {
			if a.Resource == m.Resource && a.Value > 0 {
				return true
			}
		}
	}
	return false
}

// list sorts the seats by node; those of a node are in the order of the victims.
func (r *roster) list(c *Cluster) {
	r.from = resize(r.from, len(c.names)+2)
	clear(r.from)
	for i := range r.victims {
		for _, at := range r.victims[i].On {
			r.from[at.Node+2]++
		}
	}
	for n := 2; n < len(r.from); n++ {
		r.from[n] += r.from[n-1]
	}
	r.seats = resize(r.seats, int(r.from[len(r.from)-1]))
	for i := range r.victims {
		for _, at := range r.victims[i].On {
			next := &r.from[at.Node+1]
			r.seats[*next] = seat{int32(i), at.Used}
			*next++
		}
	}
}

func (r *roster) on(node NodeID) []seat { return r.seats[r.from[node]:r.from[node+1]] }

// goingWith returns a victim and all that must go with it.
func (r *roster) goingWith(i int32) []int32 { return r.closures[r.goes[i]:r.goes[i+1]] }

// sortByWorth sorts victims so that those come first that should rather stay.
func (r *roster) sortByWorth(victims []int32) {
	slices.SortFunc(victims, func(a, b int32) int {
		x, y := &r.victims[a], &r.victims[b]
		return cmp.Or(cmp.Compare(y.Violations, x.Violations), cmp.Compare(y.Priority, x.Priority),
			cmp.Compare(y.Pods, x.Pods), cmp.Compare(y.Lost, x.Lost), cmp.Compare(b, a))
	})
}

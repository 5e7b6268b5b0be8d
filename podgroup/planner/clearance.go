package planner

import "slices"

// clearance is a search for victims whose end makes room for a gang. Those that are gone, at a moment of
// the search, have given their capacity back, and what has room is counted anew on their nodes. It is
// kept between searches so that they need no memory.
type clearance struct {
	roster
	counter
	c    *Cluster
	gang *Demand // all of it
	d    *Demand // the members that are needed
	l    learned

	may   []bool  // by victim: whether it may go
	gone  []bool  // by victim
	bound []int32 // by victim: with how many of those that are gone it must go
	out   []int32 // those that are gone, in the order in which they went
	order []int32

	// Making room for a block; see open.
	moves   []move
	named   []int32 // the victims of moves
	version []int32 // by node: how often the moves there were listed
	weighed []int32 // by victim: the opening in which its end alone was weighed
	opening int32
	local   []local
	freed   []int64
	touched []NodeID
	bundles []bundle
	best    []bundle
	prices  []price // by domain

	// Choosing among places; see choose.
	priorities []int32 // of those who may go, distinct, rising
	before     []int32 // running sums over the nodes of the seats of those who may go
	onNode     []int32 // by node: members picked
	effort     int     // nodes looked at
	found      bool
	least      loss
	chosen     []int32
}

// begin begins a search, with nobody gone.
func (s *clearance) begin(c *Cluster, d *Demand, victims []Victim) {
	s.c, s.gang = c, d
	s.l.reset(len(d.Classes))
	c.prepare(d)
	s.d = c.needed(d, &s.l)
	s.roster.fill(c, s.d, victims)
	n := len(victims)
	s.may, s.gone, s.bound, s.weighed = resize(s.may, n), resize(s.gone, n), resize(s.bound, n), resize(s.weighed, n)
	clear(s.gone)
	clear(s.bound)
	clear(s.weighed)
	s.opening = 0
	s.version, s.onNode, s.prices = resize(s.version, len(c.names)), resize(s.onNode, len(c.names)), resize(s.prices, len(c.domains))
	clear(s.version)
	clear(s.onNode)
	s.out, s.moves, s.named = s.out[:0], s.moves[:0], s.named[:0]
	s.lo, s.hi = 0, 0
}

// leave lets a victim go, and all that must go with it.
func (s *clearance) leave(i int32) {
	for _, j := range s.goingWith(i) {
		if !s.gone[j] {
			s.leaveAlone(j)
		}
	}
}

func (s *clearance) leaveAlone(i int32) {
	s.away(i)
	s.out = append(s.out, i)
}

// away lets a single victim give back what it uses.
func (s *clearance) away(i int32) {
	s.gone[i] = true
	s.bind(i, 1)
	for _, at := range s.victims[i].On {
		s.c.Return(at.Node, at.Used)
		s.update(at.Node)
	}
}

// bind counts that others must stay away as long as a victim does.
func (s *clearance) bind(i int32, by int32) {
	for _, j := range s.goingWith(i)[1:] {
		s.bound[j] += by
	}
}

// comeBack undoes away.
func (s *clearance) comeBack(i int32) {
	s.gone[i] = false
	s.bind(i, -1)
	for _, at := range s.victims[i].On {
		s.c.Take(at.Node, at.Used)
		s.update(at.Node)
	}
}

// rollBack lets those come back that went since a mark.
func (s *clearance) rollBack(mark int) {
	for i := len(s.out) - 1; i >= mark; i-- {
		s.comeBack(s.out[i])
	}
	s.out = s.out[:mark]
}

// lossSince returns what the victims lose that went since a mark.
func (s *clearance) lossSince(mark int) loss {
	l := noLoss
	for _, i := range s.out[mark:] {
		l.add(&s.victims[i])
	}
	return l
}

// spare lets those come back that went since a mark, the ones first that should rather stay, as long as
// there is enough room without them; it is asked for each with that victim back.
func (s *clearance) spare(mark int, enough func(victim int32) bool) {
	s.order = append(s.order[:0], s.out[mark:]...)
	s.sortByWorth(s.order)
	for again := true; again; {
		again = false
		for _, i := range s.order {
			if !s.gone[i] || s.bound[i] > 0 {
				continue
			}
			s.comeBack(i)
			if !enough(i) {
				s.away(i)
				continue
			}
			again = again || len(s.goingWith(i)) > 1 // its surplus may be able to stay now
		}
	}
	s.out = append(s.out[:mark], slices.DeleteFunc(s.out[mark:], func(i int32) bool { return !s.gone[i] })...)
}

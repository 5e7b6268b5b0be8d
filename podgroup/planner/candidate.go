package planner

import "slices"

const (
	// maxClearing bounds how often the nodes of the cluster are looked at to make room here and there: the
	// best that was found until then is taken.
	maxClearing = 2000
	// maxSparing likewise bounds how many plans are made to find out which victims can stay, where arithmetic
	// does not tell; a plan looks at the nodes once more than there are parts of the gang.
	maxSparing = 4000
)

// search compares what it takes to make room in each domain that may hold the gang, and remembers the best.
func (s *clearance) search(priority int32, violating bool) bool {
	c := s.c
	s.allow(priority, violating)
	s.sumSeats()
	s.found, s.effort = false, 0
	if len(s.gang.MinResources) > 0 && s.placed() {
		s.offerGone() // it has its places, and lacks nothing but minResources
	}
	s.prepare()
	gang, root := c.work.groups[0], c.target(0)
	for level, to := c.levelsFor(&gang, &root); level >= to; level-- {
		switch {
		case gang.placed.any:
			if t, ok := c.targetAt(level, gang.placed.lo); ok && t.hi > gang.placed.hi {
				s.try(&t)
			}
		case level == c.NodeLevel():
			for node := range NodeID(len(c.names)) {
				s.try(&target{domain: -1, level: level, lo: node, hi: node + 1})
			}
		default:
			for _, i := range c.byLevel[level] {
				t := c.target(i)
				s.try(&t)
			}
		}
	}
	if !s.found {
		s.tryAll()
	}
	if s.found {
		s.spareChosen()
	}
	slices.Sort(s.chosen)
	return s.found
}

// prepare divides the gang's needed members into blocks again, after plans of all its members.
func (s *clearance) prepare() {
	s.c.prepare(s.d)
	s.c.setUnits(s.d, s.d.Min)
}

// sumSeats makes the running sums of the seats of those who may go.
func (s *clearance) sumSeats() {
	s.before = resize(s.before, len(s.c.names)+1)
	s.before[0] = 0
	for node := range NodeID(len(s.c.names)) {
		n := s.before[node]
		for _, seat := range s.on(node) {
			if s.may[seat.victim] {
				n++
			}
		}
		s.before[node+1] = n
	}
}

// try finds out what it takes to make room in a target.
func (s *clearance) try(t *target) {
	if s.before[t.hi] == s.before[t.lo] || s.spent() {
		return // it holds the gang no more than before
	}
	fits := s.clear(t)
	if fits {
		s.sparePicked()
	}
	s.c.drop(s.d, 0)
	if fits {
		s.offerGone()
	}
	s.rollBack(0)
}

// spent reports whether the search has become too long.
func (s *clearance) spent() bool { return s.effort > maxClearing*len(s.c.names) }

// tryAll begins with everyone gone who may go, for gangs that find their place only so.
func (s *clearance) tryAll() {
	c := s.c
	s.leaveAll()
	if !s.placed() {
		s.rollBack(0)
		return
	}
	c.take(s.d, 0)
	s.sparePicked()
	c.drop(s.d, 0)
	if s.offerGone(); !s.found {
		s.leaveAll()
		s.offerGone()
	}
	s.rollBack(0)
}

// offerGone remembers those who are gone if they are the best so far, and Plan finds the gang's places then.
func (s *clearance) offerGone() {
	mark := len(s.out)
	defer func() { s.rollBack(mark) }()
	if !s.freeMinResources() {
		return
	}
	l := s.lossSince(0)
	if s.found && compareLosses(&l, &s.least) >= 0 {
		return
	}
	if !s.plain() {
		fits := s.placed()
		s.prepare()
		if !fits {
			return
		}
	}
	s.found, s.least, s.chosen = true, l, append(s.chosen[:0], s.out...)
}

// plain reports whether arithmetic tells of any domain whether the gang fits there, without packing it.
func (s *clearance) plain() bool {
	w := &s.c.work
	return len(w.blocks) == 1 && len(w.parts) == 1 && !w.blocks[0].pin.pinned && len(w.groups) == 1
}

// sparePicked lets those come back who leave room for what is picked, which is taken.
func (s *clearance) sparePicked() {
	picks := s.c.work.picks
	if len(s.c.work.parts) == 1 {
		return // nobody is gone who could stay
	}
	for i := range picks {
		s.onNode[picks[i].node]++
	}
	s.lo, s.hi = 0, 0
	s.spare(0, func(i int32) bool {
		for _, at := range s.victims[i].On {
			if s.onNode[at.Node] == 0 {
				continue
			}
			for _, a := range at.Used {
				if a.Value > 0 && s.c.free[a.Resource][at.Node] < 0 && s.requested(a.Resource) {
					return false
				}
			}
		}
		return true
	})
	for i := range picks {
		s.onNode[picks[i].node]--
	}
}

// requested reports whether any member requests a resource.
func (s *clearance) requested(r Resource) bool {
	return slices.ContainsFunc(s.d.Classes, func(class Class) bool { return class.of(r) > 0 })
}

// spareChosen takes those off the chosen who can stay because the gang then fits in another way than the one that
// they were chosen for.
func (s *clearance) spareChosen() {
	c := s.c
	s.lo, s.hi = 0, 0
	for _, i := range s.chosen {
		s.leaveAlone(i)
	}
	if s.prepare(); s.plain() && len(s.gang.MinResources) == 0 {
		for before := -1; before != len(s.out); {
			before = len(s.out)
			s.spareInEach()
		}
	} else {
		plans := maxSparing / (1 + len(c.work.parts))
		s.spare(0, func(int32) bool {
			plans--
			return plans >= 0 && s.fits()
		})
		s.prepare()
	}
	s.chosen, s.least = append(s.chosen[:0], s.out...), s.lossSince(0)
	c.work.picks = c.work.picks[:0]
	s.rollBack(0)
}

// spareInEach takes those off who can stay in any of the domains that hold the gang now.
func (s *clearance) spareInEach() {
	c := s.c
	gang, b := &c.work.groups[0], &c.work.blocks[0]
	in := func(t target) {
		if s.count(b, &t); s.enough() {
			s.spare(0, func(int32) bool { return s.enough() })
		}
	}
	switch {
	case gang.placed.any:
		if t, ok := c.targetAt(gang.required, gang.placed.lo); ok && t.hi > gang.placed.hi {
			in(t)
		}
	case gang.required == c.NodeLevel():
		for node := range NodeID(len(c.names)) {
			in(target{domain: -1, level: gang.required, lo: node, hi: node + 1})
		}
	default:
		for _, i := range c.byLevel[gang.required] {
			in(c.target(i))
		}
	}
}

// freeMinResources lets more victims go until as much is free as the gang asks for besides its places. It
// reports false if they are not enough.
func (s *clearance) freeMinResources() bool {
	for {
		short := s.c.minResourcesShort(s.gang)
		if len(short) == 0 {
			return true
		}
		r, lacking := s.c.columns[short[0].Name], short[0].Needed-short[0].Free
		best, most := -1, int64(0)
		for i := range s.victims {
			if !s.may[i] || s.gone[i] {
				continue
			}
			// In thousandths, for amounts of bytes are large.
			if n := s.frees(int32(i), r); n > 0 {
				n = max(int64(1000*(float64(min(n, lacking))/float64(lacking))), 1)
				if best < 0 || compareRates(&s.roster.loss[i], n, &s.roster.loss[best], most) < 0 {
					best, most = i, n
				}
			}
		}
		if best < 0 {
			return false
		}
		s.leave(int32(best))
	}
}

// frees returns how much more of a resource would be free on nodes that the gang may use if a victim went.
func (s *clearance) frees(i int32, r Resource) int64 {
	counts, n := s.gang.counts(len(s.gang.Members)), int64(0)
	for _, j := range s.goingWith(i) {
		for _, at := range s.victims[j].On {
			if !s.gone[j] && usable(s.gang, counts, at.Node) {
				free := s.c.free[r][at.Node]
				n = plus(n, max(free+amountIn(at.Used, r), 0)-max(free, 0))
			}
		}
	}
	return n
}

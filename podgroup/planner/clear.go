package planner

// price is what the next units take that go into a domain.
type price struct {
	loss
	more  int64 // units that were asked for
	units int64 // that there is room for then, or 0
	known bool
}

// clear lets victims go, and packs what the gang needs into a target, part by part as packing without victims
// does. What is picked stays picked; it is for the caller to drop it and to let the victims come back,
// also if it reports that the gang does not fit.
func (s *clearance) clear(t *target) bool {
	w := &s.c.work
	w.picks, w.tight, w.unit = w.picks[:0], false, 0
	for i := range w.blocks {
		w.blocks[i].tally = -1 // what was counted for the whole cluster is true no more
	}
	for i := range w.blocks {
		if b := &w.blocks[i]; b.pin.pinned && !s.clearFor(t, int32(i), w.groups[b.group].preferred) {
			return false
		}
	}
	for _, item := range w.firstItems {
		if item < 0 && !s.clearForGroup(t, ^item) || item >= 0 && !s.clearFor(t, item, w.groups[0].preferred) {
			return false
		}
	}
	return true
}

// clearForGroup chooses the domain for a group with constraints of its own, inside that of the gang: where it
// costs the least, among equals the lowest and the first.
func (s *clearance) clearForGroup(in *target, group int32) bool {
	w := &s.c.work
	g := &w.groups[group]
	var best target
	var least loss
	found := false
	from := len(w.targets)
	for level, to := s.c.levelsFor(g, in); level >= to && !(found && least == noLoss); level-- {
		s.c.appendTargets(s.d, level, g, in, w.order[g.lo:g.hi])
		for i := from; i < len(w.targets) && !(found && least == noLoss); i++ {
			t := w.targets[i]
			gone, picks := len(s.out), len(w.picks)
			if s.clearForBlocks(&t, g) {
				if l := s.lossSince(gone); !found || l.below(&least) {
					best, least, found = t, l, true
				}
			}
			s.c.drop(s.d, picks)
			s.rollBack(gone)
		}
		w.targets = w.targets[:from]
	}
	return found && s.clearForBlocks(&best, g)
}

func (s *clearance) clearForBlocks(t *target, g *group) bool {
	for _, i := range s.c.work.order[g.lo:g.hi] {
		if !s.c.work.blocks[i].pin.pinned && !s.clearFor(t, i, g.preferred) {
			return false
		}
	}
	return true
}

// clearFor makes room for the units of a block in a target, and packs them.
func (s *clearance) clearFor(in *target, index int32, preferred Level) bool {
	c := s.c
	b, t := &c.work.blocks[index], *in
	if b.units == 0 {
		return true
	}
	if s.spent() {
		return false
	}
	if b.pin.pinned {
		if b.pin.torn {
			return false
		}
		if in.contains(b.pin.target.lo, b.pin.target.hi) {
			t = b.pin.target
		}
	}
	if c.sliced(b) && b.hi-b.lo > 1 {
		return s.openMixed(&t, index, preferred)
	}
	s.count(b, &t)
	if s.size > 0 {
		return s.openUnits(&t, b) && c.packBlock(s.d, &s.l, in, index, preferred)
	}
	return s.open(region{t.lo, t.hi, -1}, s.need) && c.packBlock(s.d, &s.l, in, index, preferred)
}

// openUnits makes room for units that span nodes, in the domains where the next ones lose least.
func (s *clearance) openUnits(t *target, b *block) bool {
	mark := len(s.out)
	domains := s.c.within(b.level, t.lo, t.hi)
	for _, i := range domains {
		s.prices[i].known = false
	}
	for s.units < b.units {
		best := int32(-1)
		for _, i := range domains {
			p := &s.prices[i]
			if !p.known {
				s.priceUnits(i, b)
			}
			if p.units > 0 && (best < 0 || compareRates(&p.loss, min(p.units, b.units-s.units), &s.prices[best].loss, min(s.prices[best].units, b.units-s.units)) < 0) {
				best = i
			}
		}
		if best < 0 {
			s.rollBack(mark)
			return false
		}
		at := len(s.out)
		s.open(s.regionOf(best), (s.in[best]/s.size+s.prices[best].more)*s.size)
		s.forgetPrices(at, b.level)
	}
	s.spare(mark, func(int32) bool { return s.enough() })
	return true
}

func (s *clearance) regionOf(domain int32) region {
	return region{s.c.domains[domain].lo, s.c.domains[domain].hi, domain}
}

// priceUnits finds out what one unit more in a domain takes, or all that are left.
func (s *clearance) priceUnits(domain int32, b *block) {
	p, r, left := &s.prices[domain], s.regionOf(domain), b.units-s.units
	*p = price{known: true}
	for more := int64(1); more <= left; more += max(left-1, 1) {
		mark, before := len(s.out), s.units
		if s.open(r, (s.in[domain]/s.size+more)*s.size) {
			l, units := s.lossSince(mark), s.units-before
			if p.units == 0 || compareRates(&l, min(units, left), &p.loss, min(p.units, left)) < 0 {
				p.loss, p.more, p.units = l, more, units
			}
		}
		s.rollBack(mark)
	}
}

// forgetPrices forgets those of the domains where victims went since a mark.
func (s *clearance) forgetPrices(mark int, level Level) {
	for _, i := range s.out[mark:] {
		for _, at := range s.victims[i].On {
			if in := s.c.at[level][at.Node]; in >= 0 {
				s.prices[in].known = false
			}
		}
	}
}

// openMixed makes room for units of several parts that span nodes, one unit after another, and packs them.
func (s *clearance) openMixed(t *target, index int32, preferred Level) bool {
	c, w := s.c, &s.c.work
	b := &w.blocks[index]
	w.filler = filler{c: c, d: s.d, block: index, preferred: preferred, size: b.size, level: b.level}
	if t.level >= b.level {
		for range b.units {
			if !s.clearForUnit(t, b) {
				return false
			}
		}
		return true
	}
	domains := c.within(b.level, t.lo, t.hi)
	for _, i := range domains {
		s.prices[i].known = false
	}
	for range b.units {
		best := int32(-1)
		for _, i := range domains {
			p := &s.prices[i]
			if !p.known {
				s.priceMixed(i, b)
			}
			if p.units > 0 && (best < 0 || p.below(&s.prices[best].loss)) {
				best = i
			}
		}
		if best < 0 {
			return false
		}
		u, mark := c.target(best), len(s.out)
		if !s.clearForUnit(&u, b) {
			return false
		}
		s.forgetPrices(mark, b.level)
		s.prices[best].known = false
	}
	return true
}

// priceMixed finds out what a unit of several parts takes in a domain.
func (s *clearance) priceMixed(domain int32, b *block) {
	p, u := &s.prices[domain], s.c.target(domain)
	*p = price{known: true}
	gone, picks := len(s.out), len(s.c.work.picks)
	if s.clearForUnit(&u, b) {
		p.loss, p.units = s.lossSince(gone), 1
	}
	s.c.drop(s.d, picks)
	s.rollBack(gone)
}

// clearForUnit makes room for one unit of several parts in a domain, and packs it.
func (s *clearance) clearForUnit(t *target, b *block) bool {
	c, w := s.c, &s.c.work
	c.beginUnit(s.d, t, b)
	for _, part := range w.partOrder {
		one := b.only(part)
		s.start(&one, true, false, t.lo, t.hi)
		if !s.open(region{t.lo, t.hi, -1}, w.parts[part].count) || !c.packPart(s.d, &s.l, t, b, part) {
			return false
		}
	}
	return true
}

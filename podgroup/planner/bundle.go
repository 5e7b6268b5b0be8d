package planner

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

const (
	// maxTogether is how many victims of a node are looked at in all combinations, and maxLocal how many
	// at all: of more, those that free the most for what they lose.
	maxTogether = 8
	maxLocal    = 64
	// maxGains is how many numbers of places on a node are told apart.
	maxGains = 64
)

// move is a number of victims on one node, the end of which, with all that must go with them, makes places.
type move struct {
	loss
	gain    int64
	node    NodeID
	version int32 // of the node when it was listed
	wide    bool  // the gain is on other nodes too, and changes with them
	lo, hi  int32 // the victims, in clearance.named
}

// compareMoves orders moves by what they take for each place that they make.
func compareMoves(a, b *move) int {
	return cmp.Or(compareRates(&a.loss, a.gain, &b.loss, b.gain), cmp.Compare(b.gain, a.gain), cmp.Compare(a.node, b.node), cmp.Compare(a.lo, b.lo))
}

// local is a victim that could free room on the node that is looked at.
type local struct {
	loss
	victim int32
	wide   bool
	with   uint64 // the others of the node that must go with it
	used   []Amount
	share  float64 // of what a place takes that is scarce there
}

// bundle is some of the local victims of a node.
type bundle struct {
	loss
	mask uint64
	gain int64 // places they make there; 0 for none
}

// appendMoves lists what makes places on a node, up to what is needed there: for each number of places
// what loses least.
func (s *clearance) appendMoves(node NodeID, r region, need int64) {
	most := min(s.limit[node], need)
	if s.slots[node] >= most || s.from[node] == s.from[node+1] {
		return
	}
	s.listLocal(node)
	if len(s.local) == 0 {
		return
	}
	s.best = resize(s.best, maxGains)
	clear(s.best)
	if len(s.local) <= maxTogether {
		s.combine(node, most)
	} else {
		s.pile(node, most)
	}
	// What makes more places and loses no more is better.
	var least *bundle
	for i := len(s.best) - 1; i >= 0; i-- {
		b := &s.best[i]
		if b.gain > 0 && (least == nil || b.below(&least.loss)) {
			least = b
			s.appendMove(node, r, b)
		}
	}
}

// listLocal lists the victims that may go and free something on a node that is asked for.
func (s *clearance) listLocal(node NodeID) {
	s.local = s.local[:0]
	for _, seat := range s.on(node) {
		i := seat.victim
		if !s.may[i] || s.gone[i] || !slices.ContainsFunc(seat.used, func(a Amount) bool { return a.Value > 0 && s.asks(a.Resource) }) {
			continue
		}
		k := local{loss: noLoss, victim: i, wide: s.wide[i], used: seat.used}
		for _, a := range seat.used {
			for _, b := range s.request {
				if a.Resource == b.Resource && s.c.free[a.Resource][node] < times(s.slots[node]+1, b.Value) {
					k.share += min(float64(a.Value)/float64(b.Value), float64(s.limit[node]))
				}
			}
		}
		s.local = append(s.local, k)
	}
	if len(s.local) > maxTogether {
		slices.SortFunc(s.local, func(a, b local) int {
			x, y := &s.roster.loss[a.victim], &s.roster.loss[b.victim]
			return cmp.Or(
				cmp.Compare(float64(x.violations)*b.share, float64(y.violations)*a.share),
				cmp.Compare(float64(x.pods)*b.share, float64(y.pods)*a.share),
				cmp.Compare(float64(x.lost)*b.share, float64(y.lost)*a.share),
				cmp.Compare(a.victim, b.victim))
		})
		s.local = s.local[:min(len(s.local), maxLocal)]
	}
	s.freed = resize(s.freed, len(s.local)*len(s.request))
	for x := range s.local {
		k := &s.local[x]
		for _, j := range s.goingWith(k.victim) {
			y := slices.IndexFunc(s.local, func(o local) bool { return o.victim == j })
			switch {
			case y >= 0 && y != x:
				k.with |= 1 << y
			case !s.gone[j]:
				k.add(&s.victims[j])
			}
		}
		for i, a := range s.request {
			s.freed[x*len(s.request)+i] = amountIn(k.used, a.Resource)
		}
	}
}

func amountIn(amounts []Amount, r Resource) int64 {
	for _, a := range amounts {
		if a.Resource == r {
			return a.Value
		}
	}
	return 0
}

func (s *clearance) asks(r Resource) bool {
	return slices.ContainsFunc(s.request, func(a Amount) bool { return a.Resource == r })
}

// combine looks at all combinations of the local victims.
func (s *clearance) combine(node NodeID, most int64) {
	all := 1 << len(s.local)
	s.bundles = resize(s.bundles, all)
	s.bundles[0] = bundle{loss: noLoss}
	for mask := 1; mask < all; mask++ {
		x := bits.TrailingZeros(uint(mask))
		k, rest := &s.local[x], &s.bundles[mask&(mask-1)]
		b := &s.bundles[mask]
		*b = bundle{loss: rest.loss, mask: rest.mask | k.with}
		b.violations, b.pods, b.lost = plus(b.violations, k.violations), plus(b.pods, k.pods), plus(b.lost, k.lost)
		if b.mask&^uint64(mask) == 0 {
			s.offer(node, uint64(mask), b.loss, most)
		}
	}
}

// offer notes a bundle if it is the best for as many places as it makes.
func (s *clearance) offer(node NodeID, mask uint64, l loss, most int64) {
	gain := s.gainOf(node, mask, most)
	if gain <= 0 {
		return
	}
	best := &s.best[min(gain, maxGains)-1]
	if best.gain == 0 || compareRates(&l, gain, &best.loss, best.gain) < 0 {
		*best = bundle{loss: l, mask: mask, gain: gain}
	}
}

// gainOf returns how many places more a node has without some of its local victims.
func (s *clearance) gainOf(node NodeID, mask uint64, most int64) int64 {
	slots := most
	for i, a := range s.request {
		free := s.c.free[a.Resource][node]
		for m := mask; m != 0; m &= m - 1 {
			free = plus(max(free, math.MinInt64/2), s.freed[bits.TrailingZeros64(m)*len(s.request)+i])
		}
		if slots = min(slots, max(free, 0)/a.Value); slots <= s.slots[node] {
			return 0
		}
	}
	return slots - s.slots[node]
}

// pile adds up the local victims in order, for rising numbers of places, and takes those out again that can
// stay.
func (s *clearance) pile(node NodeID, most int64) {
	mask, next := uint64(0), 0
	for want, step := int64(1), int64(1); want <= most-s.slots[node]; want += step {
		for ; s.gainOf(node, mask, most) < want; next++ {
			if next == len(s.local) {
				return
			}
			mask |= 1<<next | s.local[next].with
		}
		kept, l := mask, noLoss
		for x := range s.local {
			x = len(s.local) - 1 - x
			if kept&(1<<x) == 0 {
				continue
			}
			if rest := kept &^ (1 << x); !s.needed(rest, x) && s.gainOf(node, rest, most) >= want {
				kept = rest
				continue
			}
			k := &s.local[x]
			l.violations, l.pods, l.lost = plus(l.violations, k.violations), plus(l.pods, k.pods), plus(l.lost, k.lost)
		}
		s.offer(node, kept, l, most)
		if want >= maxTogether {
			step *= 2
		}
	}
}

// needed reports whether a local victim must go with any of some others.
func (s *clearance) needed(mask uint64, x int) bool {
	for m := mask; m != 0; m &= m - 1 {
		if s.local[bits.TrailingZeros64(m)].with&(1<<x) != 0 {
			return true
		}
	}
	return false
}

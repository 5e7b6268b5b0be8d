package planner

import (
	"math/bits"
	"slices"
)

// maxWeighings is how often a last move is chosen again because the one chosen makes fewer places than it did.
const maxWeighings = 8

// ending is a move that would make all the room that is needed.
type ending struct {
	move move
	mark int // of those that were gone before
	loss loss
	any  bool
}

// open makes room for as much as is needed in a region: by the move that loses least for each place that it
// makes, and then another, until it is enough. At each step it is noted what it would be with a single last
// move, and the best of these ways is taken. It reports false, with nobody more gone, if there is none.
func (s *clearance) open(r region, need int64) bool {
	if s.room(r) >= need {
		return true
	}
	mark, from, named := len(s.out), len(s.moves), len(s.named)
	s.opening++
	for node := r.lo; node < r.hi; node++ {
		s.appendMoves(node, r, need)
	}
	heapify(s.moves[from:], compareMoves)
	end := ending{}
	for s.room(r) < need {
		lacking := need - s.room(r)
		s.seekEnd(&end, s.lossSince(mark), s.moves[from:], r, lacking)
		m, ok := s.next(from, r)
		if !ok {
			break
		}
		if m.gain >= lacking {
			end.consider(&m, s.lossSince(mark), len(s.out))
			break // whatever follows loses more than this
		}
		at := len(s.out)
		s.apply(&m)
		s.relist(at, from, r, need)
	}
	if l := s.lossSince(mark); end.any && (s.room(r) < need || end.loss.below(&l)) {
		s.rollBack(end.mark)
		s.apply(&end.move)
	}
	s.moves, s.named = s.moves[:from], s.named[:named]
	if s.room(r) < need {
		s.rollBack(mark)
		return false
	}
	s.spare(mark, func(int32) bool { return s.room(r) >= need })
	return true
}

func (e *ending) consider(m *move, before loss, mark int) {
	if l := before.and(&m.loss); !e.any || l.below(&e.loss) {
		*e = ending{*m, mark, l, true}
	}
}

// seekEnd looks for the single move that makes all that is lacking and loses least.
func (s *clearance) seekEnd(end *ending, before loss, moves []move, r region, lacking int64) {
	for range maxWeighings {
		least := -1
		for i := range moves {
			if m := &moves[i]; m.gain >= lacking && (m.wide || m.version == s.version[m.node]) && (least < 0 || m.below(&moves[least].loss)) {
				least = i
			}
		}
		if least < 0 {
			return
		}
		if m := &moves[least]; m.wide {
			s.weigh(m, r)
			// Its place in the heap is decided when it is popped.
			if m.gain < lacking {
				continue
			}
		}
		end.consider(&moves[least], before, len(s.out))
		return
	}
}

// next takes the best move off the heap that begins at an index. What a wide move makes may have changed
// since it was listed.
func (s *clearance) next(from int, r region) (move, bool) {
	for len(s.moves) > from {
		h := s.moves[from:]
		m := pop(h, compareMoves)
		s.moves = s.moves[:len(s.moves)-1]
		if !m.wide {
			if m.version == s.version[m.node] {
				return m, true
			}
			continue
		}
		s.weigh(&m, r)
		switch {
		case m.gain <= 0:
			s.weighed[s.named[m.lo]] = 0 // it may make some again, beside others
		case len(s.moves) == from || compareMoves(&m, &s.moves[from]) <= 0:
			return m, true
		default:
			s.push(from, m)
		}
	}
	return move{}, false
}

func (s *clearance) push(from int, m move) {
	s.moves = append(s.moves, m)
	push(s.moves[from:], compareMoves)
}

// weigh finds out what a move makes and loses now.
func (s *clearance) weigh(m *move, r region) {
	mark, before := len(s.out), s.room(r)
	s.apply(m)
	m.gain, m.loss = s.room(r)-before, s.lossSince(mark)
	s.rollBack(mark)
}

func (s *clearance) apply(m *move) {
	for _, i := range s.named[m.lo:m.hi] {
		s.leave(i)
	}
}

// relist lists the moves anew on the nodes of those that went since a mark.
func (s *clearance) relist(mark, from int, r region, need int64) {
	s.touched = s.touched[:0]
	for _, i := range s.out[mark:] {
		for _, at := range s.victims[i].On {
			if r.lo <= at.Node && at.Node < r.hi {
				s.touched = append(s.touched, at.Node)
			}
		}
	}
	slices.Sort(s.touched)
	for i, node := range s.touched {
		if i > 0 && s.touched[i-1] == node {
			continue
		}
		s.version[node]++
		listed := len(s.moves)
		s.appendMoves(node, r, need)
		for next := listed; next < len(s.moves); next++ {
			push(s.moves[from:next+1], compareMoves)
		}
	}
}

// appendMove lists the end of some of the local victims of a node.
func (s *clearance) appendMove(node NodeID, r region, b *bundle) {
	m := move{loss: b.loss, gain: b.gain, node: node, version: s.version[node], lo: int32(len(s.named))}
	for mask := b.mask; mask != 0; mask &= mask - 1 {
		k := &s.local[bits.TrailingZeros64(mask)]
		m.wide = m.wide || k.wide
		s.named = append(s.named, k.victim)
	}
	m.hi = int32(len(s.named))
	if m.wide {
		// One gang's end is the same move on all its nodes.
		if only := s.named[m.lo]; m.hi-m.lo == 1 {
			if s.weighed[only] == s.opening {
				s.named = s.named[:m.lo]
				return
			}
			s.weighed[only] = s.opening
		}
		s.weigh(&m, r)
	}
	s.moves = append(s.moves, m)
}

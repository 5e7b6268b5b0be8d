package coscheduling

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// placedNodes returns a copy of the members on their way to their nodes.
func (g *gangs) placedNodes(key types.NamespacedName) map[types.UID]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok {
		return nil
	}
	return maps.Clone(x.placed)
}

// planned returns a copy of the members on their way to their nodes and of those with a seat in the commit that
// is under way.
func (g *gangs) planned(key types.NamespacedName) map[types.UID]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok {
		return nil
	}
	nodes := maps.Clone(x.placed)
	if x.commit != nil {
		for uid, s := range x.commit.seats {
			nodes[uid] = s.Node
		}
	}
	return nodes
}

// isPlanned reports whether a member is among those.
func (g *gangs) isPlanned(key types.NamespacedName, uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	return ok && (x.placed[uid] != "" || x.commit != nil && x.commit.seats[uid] != nil)
}

// seated counts the members that are on their way to their nodes after their commit, and the seats in the commit
// that is under way.
func (g *gangs) seated(key types.NamespacedName) (coming, seats int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	switch {
	case !ok:
		return 0, 0
	case x.commit == nil:
		return len(x.placed), 0
	default:
		return len(x.placed) - x.commit.reserved, len(x.commit.seats)
	}
}

// commits reports whether a commit of the gang is under way.
func (g *gangs) commits(key types.NamespacedName) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	return ok && x.commit != nil
}

// bindsAlone reports whether a member is on its way to its node after its commit, so that it would come back alone.
func (g *gangs) bindsAlone(key types.NamespacedName, uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	return ok && x.placed[uid] != "" && (x.commit == nil || x.commit.seats[uid] == nil)
}

// arrived notes that the index of members shows a member on its node, or no longer has it. It
// reports whether the member was on its way.
func (g *gangs) arrived(key types.NamespacedName, uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok || x.placed[uid] == "" {
		return false
	}
	delete(x.placed, uid)
	return true
}

// unboundBeside returns the members that could not be bound and pause, besides the one whose turn it is: it
// pauses no more.
func (g *gangs) unboundBeside(key types.NamespacedName, turn types.UID) sets.Set[types.UID] {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok {
		return nil
	}
	x.unbound.Delete(turn)
	if x.unbound.Len() == 0 {
		return nil
	}
	return x.unbound.Clone()
}

// paused returns the members that could not be bound and pause: if each commit put an end to that, two of them would
// take turns for ever.
func (g *gangs) paused(key types.NamespacedName) sets.Set[types.UID] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x, ok := g.byKey[key]; ok {
		return x.unbound.Clone()
	}
	return nil
}

// pausesNoMore notes that a member that could not be bound is bound after all, or gone. It reports whether it was
// one.
func (g *gangs) pausesNoMore(key types.NamespacedName, uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok || !x.unbound.Has(uid) {
		return false
	}
	x.unbound.Delete(uid)
	return true
}

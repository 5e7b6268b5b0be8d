package coscheduling

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// After a preemption that did not bring its gang to its place, the gang preempts no one for a while, which
// doubles from the first to the last.
const (
	firstRest = 30 * time.Second
	lastRest  = 10 * time.Minute
)

// preempting is what a refused gang waits for: pods that are on their way out, most often because it had them
// evicted. Its seats are kept for it meanwhile.
type preempting struct {
	seats    map[types.UID]*seat
	priority int32
	// awaited are the pods that must end before the gang starts, with their nodes.
	awaited map[types.UID]string
	// evicts is set if some of them are evicted for this gang.
	evicts bool
	until  time.Time
	// message says whom the gang waits for, and why them.
	message string
}

// inOrder returns the seats in rank order.
func (p *preempting) inOrder() []*seat {
	return (&commit{seats: p.seats}).inOrder()
}

// preempt notes what a gang waits for.
func (g *gangs) preempt(key types.NamespacedName, p *preempting) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.get(key).preempting = p
	g.keeping.Insert(key)
}

// preemptingOf returns what a gang waits for, nil if nothing.
func (g *gangs) preemptingOf(key types.NamespacedName) *preempting {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x, ok := g.byKey[key]; ok {
		return x.preempting
	}
	return nil
}

// nominatedNode returns the node that is kept for a member until there is room on it, "" if none is.
func (g *gangs) nominatedNode(key types.NamespacedName, uid types.UID) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x, ok := g.byKey[key]; ok && x.preempting != nil && x.preempting.seats[uid] != nil {
		return x.preempting.seats[uid].Node
	}
	return ""
}

// lastAwaited notes that a pod is gone, and reports whether it was the last one that the gang waited for.
func (g *gangs) lastAwaited(key types.NamespacedName, uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok || x.preempting == nil || x.preempting.awaited[uid] == "" {
		return false
	}
	delete(x.preempting.awaited, uid)
	return len(x.preempting.awaited) == 0
}

// awaitedOf returns a copy of the pods that a gang waits for.
func (g *gangs) awaitedOf(p *preempting) map[types.UID]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make(map[types.UID]string, len(p.awaited))
	for uid, node := range p.awaited {
		out[uid] = node
	}
	return out
}

// stopPreempting ends the wait of a gang, if it is still this one, or whichever it is if p is nil. It returns what
// ended. A wait that was in vain makes the gang rest: it preempts nobody before that is over.
func (g *gangs) stopPreempting(key types.NamespacedName, p *preempting, vainAt time.Time) *preempting {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok || x.preempting == nil || p != nil && x.preempting != p {
		return nil
	}
	p, x.preempting = x.preempting, nil
	if !vainAt.IsZero() && p.evicts {
		x.vain++
		x.preemptsFrom = vainAt.Add(min(firstRest<<min(x.vain-1, 16), lastRest))
	}
	return p
}

// preemptsFrom returns the time before which a gang preempts nobody.
func (g *gangs) preemptsFrom(key types.NamespacedName) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x, ok := g.byKey[key]; ok {
		return x.preemptsFrom
	}
	return time.Time{}
}

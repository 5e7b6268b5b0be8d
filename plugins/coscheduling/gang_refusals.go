package coscheduling

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// refusalOf returns the verdict on a gang, if there is one.
func (g *gangs) refusalOf(key types.NamespacedName) *refusal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x, ok := g.byKey[key]; ok {
		return x.refusal
	}
	return nil
}

// refusedForRoom lists the gangs that wait for room, in no order.
func (g *gangs) refusedForRoom() []inLine {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []inLine
	for key, x := range g.byKey {
		if r := x.refusal; r != nil && x.complete && r.reason == ReasonUnschedulable && !r.surplus && !r.resting {
			out = append(out, inLine{gang: key, priority: r.priority})
		}
	}
	return out
}

// refusedBeside lists the gangs that are refused, in the order of their names, without the given
// one.
func (g *gangs) refusedBeside(except types.NamespacedName) []types.NamespacedName {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []types.NamespacedName
	for key, x := range g.byKey {
		if key != except && x.refusal != nil {
			out = append(out, key)
		}
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// elect makes another member the representative of a refused gang, if it is still the given one.
func (g *gangs) elect(key types.NamespacedName, present, next types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok || x.refusal == nil || x.refusal.representative != present {
		return
	}
	r := *x.refusal
	r.representative = next
	x.refusal = &r
}

package coscheduling

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// sighted is told of every pod on a node that came there or changed. Where it is and its labels may help a gang that
// other plugins' filters had a part in refusing, because it is to be near or far from such pods. This is no event of the
// queue, which would show each pod that is bound to each pod that waits.
func (pl *Coscheduling) sighted(logger klog.Logger, old, pod *corev1.Pod) {
	if pod.Spec.NodeName == "" || old != nil && old.Spec.NodeName != "" && maps.Equal(old.Labels, pod.Labels) {
		return
	}
	pl.sightings.Add(1) // before the look at who is refused: whoever is refused from now on looks at this
	for _, key := range pl.gangs.refusedByFilters() {
		pl.tryLater(logger, key)
	}
}

// tryLater puts a gang in line after a while that other plugins' filters had a part in refusing. The while becomes
// longer with each time, as that does for which the queue makes pods wait that are woken by events.
func (pl *Coscheduling) tryLater(logger klog.Logger, key types.NamespacedName) {
	times, first := pl.gangs.startPause(key)
	if !first {
		return
	}
	pl.clock.AfterFunc(retryAfter(times), func() {
		if pl.gangs.endPause(key) {
			pl.activateRepresentative(logger, key)
		}
	})
}

// refusedByFilters lists the gangs that other plugins' filters had a part in refusing, in the order of their names.
func (g *gangs) refusedByFilters() []types.NamespacedName {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []types.NamespacedName
	for key := range g.learned {
		if x, ok := g.byKey[key]; ok && x.refusal != nil && x.refusal.learned {
			out = append(out, key)
		} else {
			g.learned.Delete(key)
		}
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// startPause notes that a gang which filters had a part in refusing is to be tried after a pause, and how many pauses
// it has had since its last plan. It reports first == false if it is in one already, or was not refused so.
func (g *gangs) startPause(key types.NamespacedName) (times int, first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok || x.pausing || x.refusal == nil || !x.refusal.learned {
		return 0, false
	}
	x.pausing = true
	x.pauses++
	return x.pauses, true
}

// endPause reports whether the gang is to be tried now.
func (g *gangs) endPause(key types.NamespacedName) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok {
		return false
	}
	x.pausing = false
	return x.refusal != nil && x.refusal.learned
}

package coscheduling

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"

	"github.com/muster-sched/muster/podgroup"
)

// asideLimit is how long a member that was told its gang's verdict is kept out of line. It is shorter than the five
// minutes after which the scheduler's queue tries whoever still waits, so that this last resort stays one.
const asideLimit = 4 * time.Minute

// aside is a member that was told the verdict on its gang, and has not been put in line again.
type aside struct {
	// told is when that was.
	told time.Time
	// kept is set from when PreEnqueue is to keep it out of line.
	kept bool
}

// setAside has the members kept out of line that were told their gang's verdict before this turn. The scheduler's
// queue shows every event to every pod that waits, but to a pod that PreEnqueue keeps out only the events for which this
// plugin registered; most are not among these. It must come after their turns are over: what happened during a
// turn is shown to a pod when it is put back, and is lost for one that was activated meanwhile.
func (pl *Coscheduling) setAside(logger klog.Logger) {
	if len(pl.told) == 0 {
		return
	}
	byName := make(map[string]*corev1.Pod, len(pl.told))
	for _, pod := range pl.told {
		if key, ok := podgroup.Key(pod); ok && pl.gangs.keepAside(key, pod.UID) {
			byName[pod.Namespace+"/"+pod.Name] = pod
		}
	}
	clear(pl.told)
	pl.told = pl.told[:0]
	if len(byName) > 0 {
		pl.handle.Activate(logger, byName) // the queue asks PreEnqueue
	}
}

// tell notes that a member's turn ends with the verdict on its gang, if it is that.
func (pl *Coscheduling) tell(key types.NamespacedName, pod *corev1.Pod) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.SchedulerPopFromBackoffQ) {
		return // a member that was called during its turn waits for the end of its backoff before PreEnqueue is asked
	}
	if pl.gangs.toldAside(key, pod.UID, pl.clock.Now()) {
		pl.told = append(pl.told, pod)
	}
}

// toldAside notes that a member is told the verdict on its gang now. It reports false if that was not passed on it.
func (g *gangs) toldAside(key types.NamespacedName, uid types.UID, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok || x.refusal == nil || !x.refusal.passedOn(uid) {
		return false
	}
	if x.refusal.aside == nil {
		x.refusal.aside = map[types.UID]aside{}
	}
	x.refusal.aside[uid] = aside{told: now}
	return true
}

// keepAside has a member kept out of line. It reports false if the member was put in line since it was told, or if
// the gang has another verdict.
func (g *gangs) keepAside(key types.NamespacedName, uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok || x.refusal == nil {
		return false
	}
	a, told := x.refusal.aside[uid]
	if told {
		a.kept = true
		x.refusal.aside[uid] = a
	}
	return told
}

// isAside reports whether a member is to be kept out of line. If not, its turn comes, and it is told anew.
func (g *gangs) isAside(key types.NamespacedName, pod *corev1.Pod, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok || x.refusal == nil {
		return false
	}
	a, told := x.refusal.aside[pod.UID]
	if told && a.kept && x.refusal.holds(pod) && now.Sub(a.told) < asideLimit {
		return true
	}
	delete(x.refusal.aside, pod.UID)
	return false
}

// call has a member let into line, where it is to be put now.
func (g *gangs) call(key types.NamespacedName, uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x, ok := g.byKey[key]; ok && x.refusal != nil {
		delete(x.refusal.aside, uid)
	}
}

package coscheduling

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/podgroup/planner"
)

// maxKindsLeftOut bounds how many kinds of members are left out of one plan.
const maxKindsLeftOut = 8

// planOthers plans members of a gang that has its minimum when the first of them has no room: one whose slice is
// full must not keep those of other slices waiting. Members of the first one's kind are left out, then those of the
// next that has no room. Without a plan, any change of the cluster may help some kind, so that the verdict must
// not wait for a particular one.
func (pl *Coscheduling) planOthers(ctx context.Context, key types.NamespacedName, group *v1alpha1.PodGroup, c census, d *gangplan.Demand, verdict *refusal) (*gangplan.Demand, *planner.Plan, error) {
	for range maxKindsLeftOut {
		others := ofOtherKinds(d)
		if len(others) == 0 {
			return nil, nil, nil
		}
		verdict.watch = nil
		var err error
		if d, err = pl.demand(ctx, group, c, others, 1); err != nil {
			return nil, nil, err
		}
		plan, _, err := pl.plan(ctx, key, d)
		if err != nil || plan != nil {
			return d, plan, err
		}
	}
	return nil, nil, nil
}

// ofOtherKinds returns the members that the planner can tell from the first one.
func ofOtherKinds(d *gangplan.Demand) []*corev1.Pod {
	var others []*corev1.Pod
	for i, m := range d.Members {
		if m != d.Members[0] {
			others = append(others, d.Pods[i])
		}
	}
	return others
}

// goOnWithout lets a commit go on without a member that is gone, if it has as many as it needs without it. It
// reports false if it has not, or if there is no such commit.
func (pl *Coscheduling) goOnWithout(logger klog.Logger, key types.NamespacedName, uid types.UID) bool {
	left, last := pl.gangs.without(key, uid, pl.waits)
	if left == nil {
		return false
	}
	logger.V(2).Info("Gang goes on without a surplus member", "podGroup", key, "pod", klog.KObj(left.pod))
	pl.handle.DeleteNominatedPodIfExists(left.pod)
	if left.reserved {
		pl.reject(uid, "the member is gone")
	}
	pl.reviewRepair(logger, key) // before anybody is put in line for the seat
	pl.heldNoMore(logger, key, []*seat{left})
	if last {
		pl.carryOut(logger, key)
	}
	return true
}

// carryOut ends a commit of which all members wait for each other, as Permit does for the last of them.
func (pl *Coscheduling) carryOut(logger klog.Logger, key types.NamespacedName) {
	if why := pl.tooFewPlaces(key); why != "" {
		pl.letCommitGo(logger, key, why)
		return
	}
	if waiting, done, _ := pl.gangs.complete(key, "", pl.waits); done {
		pl.placedWhole(logger, key, waiting, len(waiting))
	}
}

// without takes the seat of a member out of the commit under way, if the commit has enough others. With last the
// others are all reserved, and wait to be let go on.
func (g *gangs) without(key types.NamespacedName, uid types.UID, waits func(types.UID) bool) (gone *seat, last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok || x.commit == nil || x.commit.seats[uid] == nil || len(x.commit.seats) <= max(x.commit.need, 1) {
		return nil, false
	}
	c := x.commit
	gone = c.seats[uid]
	reserved := c.reserved
	if gone.reserved {
		reserved--
	}
	if last = reserved == len(c.seats)-1; last {
		for other := range c.seats {
			if other != uid && !waits(other) {
				return nil, false // it was rejected, or is about to begin to wait: nobody would let it go on
			}
		}
	}
	g.releases++
	delete(c.seats, uid)
	c.reserved = reserved
	if gone.reserved {
		delete(x.placed, uid)
		x.leaving.Insert(uid)
	}
	return gone, last
}

// isGone reports whether a pod was deleted, or is about to be.
func (pl *Coscheduling) isGone(pod *corev1.Pod) bool {
	now, err := pl.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name)
	return err != nil || now.UID != pod.UID || now.DeletionTimestamp != nil
}

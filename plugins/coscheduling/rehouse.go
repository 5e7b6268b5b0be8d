package coscheduling

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/planner"
)

// findOldRoom keeps for a loss what it had on its node, if the node is of use to its replacement.
func (pl *Coscheduling) findOldRoom(logger klog.Logger, l *loss) {
	if !pl.usable(logger, l.pod, l.pod.Spec.NodeName) {
		return
	}
	claim, err := gangplan.ClaimOf(l.pod, l.pod.Spec.NodeName)
	if err != nil {
		logger.Error(err, "Room of a lost member is not kept", "pod", klog.KObj(l.pod))
		return
	}
	l.claim = &claim
}

// usable reports whether a pod like this one could be put on a node.
func (pl *Coscheduling) usable(logger klog.Logger, pod *corev1.Pod, name string) bool {
	node, err := pl.handle.SharedInformerFactory().Core().V1().Nodes().Lister().Get(name)
	return err == nil && gangplan.Barred(logger, pod, node) == ""
}

// leaving is told of a member that is being deleted. Its room is its own until it is gone, except on a node that
// is of no use: there it may take for ever, and its replacement needs room elsewhere.
func (pl *Coscheduling) leaving(logger klog.Logger, key types.NamespacedName, name string, uid types.UID) {
	pod, err := pl.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(key.Namespace).Get(name)
	if err != nil || pod.UID != uid || pod.Spec.NodeName == "" || pl.usable(logger, pod, pod.Spec.NodeName) {
		return
	}
	pl.lost(logger, key, pod)
}

// nodeChanged is told of a node that changed, or is gone if now is nil, or came if old is nil: room that was kept on
// it may be of no use any more, and room that was not found may be there now.
func (pl *Coscheduling) nodeChanged(logger klog.Logger, old, now *corev1.Node) {
	if !pl.repairs.any.Load() {
		return
	}
	if now == nil {
		pl.nodeLost(logger, old.Name, func(*loss) bool { return true })
		return
	}
	pl.nodeLost(logger, now.Name, func(l *loss) bool { return gangplan.Barred(logger, l.pod, now) != "" })
	pl.nodeMayHouse(old, now)
}

// nodeLost gives up the room on a node that is of no use any more for some losses.
func (pl *Coscheduling) nodeLost(logger klog.Logger, node string, barred func(*loss) bool) {
	freed := map[types.NamespacedName][]gangplan.Claim{}
	pl.repairs.mu.Lock()
	for key, losses := range pl.repairs.byGang {
		for _, l := range losses {
			if l.taker == nil && l.claim != nil && l.claim.Node == node && barred(l) {
				logger.V(2).Info("Room for a lost member is kept elsewhere: its node is of no use now", "podGroup", key, "pod", klog.KObj(l.pod), "node", node)
				l.claim, l.sought = nil, false
			}
		}
		freed[key] = pl.keepRoom(key)
	}
	pl.repairs.note()
	pl.repairs.mu.Unlock()
	for key, claims := range freed {
		pl.claimsFreed(logger, key, claims)
	}
}

// nodeMayHouse has room sought again that a node may have which came or changed. It may be called under the lock of
// the scheduler's queue.
func (pl *Coscheduling) nodeMayHouse(old, now *corev1.Node) {
	if pl.repairs.lastNode.Swap(now) == now {
		return
	}
	pl.mayHouse(func(w *gangplan.Watch) bool { return w.NodeHelps(old, now) })
}

// podMayHouse has room sought again that a pod may have left. It may be called under the lock of the scheduler's queue.
func (pl *Coscheduling) podMayHouse(pod *corev1.Pod) {
	pl.mayHouse(func(w *gangplan.Watch) bool {
		freed, err := pl.freed.By(pod, nil)
		return err != nil || w.PodHelps(freed)
	})
}

// claimsMayHouse has room sought again that was claimed until now.
func (pl *Coscheduling) claimsMayHouse(claims []gangplan.Claim) {
	pl.mayHouse(func(w *gangplan.Watch) bool { return slices.ContainsFunc(claims, w.ClaimHelps) })
}

// mayHouse has room sought again for losses of which the watch says so, or that have none.
func (pl *Coscheduling) mayHouse(helps func(*gangplan.Watch) bool) {
	if !pl.repairs.any.Load() {
		return
	}
	pl.repairs.mu.Lock()
	defer pl.repairs.mu.Unlock()
	pl.repairs.changes++
	for _, losses := range pl.repairs.byGang {
		for _, l := range losses {
			if l.sought && (l.watch == nil || helps(l.watch)) {
				l.sought = false
			}
		}
	}
	pl.repairs.note()
}

// rehouse finds nodes for losses whose old ones are of no use: where the planner would put the lost members now,
// beside the rest of their gang. It is part of a scheduling cycle, before anybody else is placed in it.
func (pl *Coscheduling) rehouse(ctx context.Context, nodes []fwk.NodeInfo) {
	if !pl.repairs.seeking.Load() {
		return
	}
	pl.repairs.tellAgain()
	seeking := map[types.NamespacedName][]*loss{}
	pl.repairs.mu.Lock()
	changes := pl.repairs.changes
	for key, losses := range pl.repairs.byGang {
		for _, l := range losses {
			if l.seeks() {
				seeking[key] = append(seeking[key], l)
			}
		}
	}
	pl.repairs.mu.Unlock()
	keys := make([]types.NamespacedName, 0, len(seeking))
	for key := range seeking {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range keys {
		if err := pl.rehouseGang(ctx, nodes, key, seeking[key], changes); err != nil {
			klog.FromContext(ctx).Error(err, "No room is sought for lost members", "podGroup", key)
		}
	}
}

// rehouseGang finds nodes for some losses of a gang, as many as there are. It is given how many changes had been told
// before.
func (pl *Coscheduling) rehouseGang(ctx context.Context, nodes []fwk.NodeInfo, key types.NamespacedName, losses []*loss, changes uint64) error {
	logger := klog.FromContext(ctx)
	group := pl.group(key)
	if group == nil || pl.gangs.commits(key) {
		return nil // who is being placed may be the replacement
	}
	pl.cluster.Sync(nodes)
	phantoms := make([]*corev1.Pod, len(losses))
	for i, l := range losses {
		phantoms[i] = phantom(l.pod)
	}
	order := make([]int, len(losses))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return podgroup.CompareMembers(phantoms[a], phantoms[b]) })
	sorted, pods := make([]*loss, len(losses)), make([]*corev1.Pod, len(losses))
	for to, from := range order {
		sorted[to], pods[to] = losses[from], phantoms[from]
	}
	d, err := pl.demand(ctx, group, pl.without(key, pods), pods, 1)
	if err != nil {
		return pl.unhoused(sorted, changes, nil, err)
	}
	beside := pl.mustLeave(key, pods...)
	if own := pl.holds.of(holdOwner{key, repairHold}); own != nil {
		beside = append(beside, own.claims...)
	}
	plan, explanation, err := gangplan.PlanVacancies(ctx, pl.handle, pl.cluster, d, beside)
	switch {
	case err != nil:
		return pl.unhoused(sorted, changes, nil, err)
	case explanation != nil:
		logger.V(2).Info("There is no room for lost members", "podGroup", key, "why", explanation.String())
		return pl.unhoused(sorted, changes, pl.cluster.Watch(d, explanation), nil)
	}
	pl.repairs.mu.Lock()
	for i, l := range sorted {
		if node := plan.Nodes[i]; node != planner.NoNode && l.seeks() {
			claim := pl.cluster.ClaimFor(d, i, node)
			l.claim = &claim
			logger.V(2).Info("Room for a lost member is kept on another node", "podGroup", key, "pod", klog.KObj(l.pod), "node", claim.Node, "until", l.until)
		}
	}
	pl.repairs.note()
	freed := pl.keepRoom(key)
	pl.repairs.mu.Unlock()
	pl.claimsFreed(logger, key, freed)
	return nil
}

// unhoused notes for losses that there is no room until the watch says so, or, without a watch, until the next
// change. If something changed while it was sought, it is sought again at once. It returns the error.
func (pl *Coscheduling) unhoused(losses []*loss, changes uint64, watch *gangplan.Watch, err error) error {
	pl.repairs.mu.Lock()
	defer pl.repairs.mu.Unlock()
	for _, l := range losses {
		if l.seeks() && pl.repairs.changes == changes {
			l.sought, l.watch = true, watch
		}
	}
	pl.repairs.note()
	return err
}

// phantom is a lost member as it was before it had a place.
func phantom(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = nil
	pod.Spec.NodeName = ""
	pod.Status = corev1.PodStatus{}
	return pod
}

// without takes the gang's census as if lost members waited to be placed.
func (pl *Coscheduling) without(key types.NamespacedName, phantoms []*corev1.Pod) census {
	isPhantom := func(uid types.UID) bool {
		return slices.ContainsFunc(phantoms, func(p *corev1.Pod) bool { return p.UID == uid })
	}
	c := census{}
	planned := pl.gangs.planned(key)
	for _, m := range pl.members.Members(key) {
		if isPhantom(m.UID) {
			continue
		}
		c.members = append(c.members, m)
		switch node := planned[m.UID]; {
		case m.State == podgroup.Bound, m.State == podgroup.Running:
			c.placed = append(c.placed, gangplan.Placed{UID: m.UID, Node: m.Node})
		case m.State == podgroup.Waiting && node != "":
			c.placed = append(c.placed, gangplan.Placed{UID: m.UID, Node: node})
		}
	}
	for _, pod := range phantoms {
		c.members = append(c.members, podgroup.MemberOf(pod))
	}
	slices.SortFunc(c.members, podgroup.Member.Compare)
	return c
}

// tellLosses says that a gang goes on without members, on its PodGroup about the first. A scheduler that waits for its
// lease knows the same and tells nobody.
func (pl *Coscheduling) tellLosses(logger klog.Logger, key types.NamespacedName, losses []*loss) {
	for i, l := range losses {
		membersLost.Inc()
		where := "its node is of no use now, so that a place is kept elsewhere as soon as there is one"
		if l.claim != nil {
			where = "its place is kept for the replacement"
		}
		why := fmt.Sprintf("lost pod %q on node %q; %s, until %s at the latest", l.pod.Name, l.pod.Spec.NodeName, where, l.until.UTC().Format(time.RFC3339))
		logger.V(2).Info("Gang goes on without a member", "podGroup", key, "why", why)
		if group := pl.group(key); i == 0 && group != nil && pl.leads.Load() {
			pl.report.event(logger, group, corev1.EventTypeWarning, ReasonMemberLost, why)
		}
	}
}

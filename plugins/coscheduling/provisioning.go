package coscheduling

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// Reasons of the PodGroup condition Provisioning.
const (
	// ReasonNodesArriving means that nodes which joined the cluster are held for the gang.
	ReasonNodesArriving = "NodesArriving"
	// ReasonWindowOver means that the gang did not fit by the end of its window.
	ReasonWindowOver = "WindowOver"
)

// joinedLately is for how long after it was created a node counts as new. It becomes of use minutes later, when its
// kubelet and its device plugins are ready.
const joinedLately = 15 * time.Minute

// provisioning is which new nodes are held for gangs. An autoscaler adds the nodes for a gang one at a time, and
// without a hold each of them would be taken by the next small pod. It is safe for concurrent use, and is called under
// the lock of the scheduler's queue.
type provisioning struct {
	mu     sync.Mutex
	byGang map[types.NamespacedName]*window
	// last is the node that was looked at last: an event is put to every waiting gang.
	last *corev1.Node
}

// window is the time in which nodes are held for one gang, from the first of them on. It is followed by a rest as
// long, in which none are.
type window struct {
	until, rest time.Time
	newcomers   []newcomer // in the order in which they came
	domain      []string
	over        bool
}

// newcomer is a new node, and what is held of it.
type newcomer struct {
	node   string
	claims []gangplan.Claim
	taken  []int // members by kind
}

// claims are all that is held.
func (w *window) claims() (all []gangplan.Claim) {
	for _, n := range w.newcomers {
		all = append(all, n.claims...)
	}
	return all
}

// taken counts the members for which room is held, by kind.
func (w *window) taken() (sum []int) {
	for _, n := range w.newcomers {
		if sum == nil {
			sum = make([]int, len(n.taken))
		}
		for i := range min(len(n.taken), len(sum)) {
			sum[i] += n.taken[i]
		}
	}
	return sum
}

// has returns the position of a node among those that are held, -1 if it is not.
func (w *window) has(node string) int {
	return slices.IndexFunc(w.newcomers, func(n newcomer) bool { return !w.over && n.node == node })
}

func newProvisioning() *provisioning {
	return &provisioning{byGang: map[types.NamespacedName]*window{}}
}

// provisioningWindow is for how long new nodes are held for a gang, 0 for not at all.
func (pl *Coscheduling) provisioningWindow(group *v1alpha1.PodGroup) time.Duration {
	settings, _ := podgroup.ParseSettings(group.Annotations) // the default for what cannot be read
	if settings.ProvisioningWindow != nil {
		return min(*settings.ProvisioningWindow, maxProvisioningWindow)
	}
	return pl.args.provisioningWindow()
}

// watchNewcomers looks at nodes that come of use for a gang of which no member is asked about it, because it
// waits elsewhere in the scheduler's queue.
func (pl *Coscheduling) watchNewcomers(logger klog.Logger) error {
	_, err := pl.handle.SharedInformerFactory().Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { pl.nodeJoins(logger, obj.(*corev1.Node)) },
		UpdateFunc: func(_, obj any) { pl.nodeJoins(logger, obj.(*corev1.Node)) },
		DeleteFunc: func(obj any) {
			if node, ok := untombed[*corev1.Node](obj); ok {
				pl.newcomerGone(logger, node.Name)
			}
		},
	})
	return err
}

// waiter is a gang that waits for room, and what it could use of new nodes.
type waiter struct {
	key       types.NamespacedName
	group     *v1alpha1.PodGroup
	newcomers *gangplan.Newcomers
	priority  int32
	share     int
	window    time.Duration
}

// nodeJoins holds a new node for the first gang in line that could use some of it and has a window.
func (pl *Coscheduling) nodeJoins(logger klog.Logger, node *corev1.Node) {
	now := pl.clock.Now()
	if now.Sub(node.CreationTimestamp.Time) > joinedLately {
		return
	}
	pl.provisioning.mu.Lock()
	defer pl.provisioning.mu.Unlock()
	if pl.provisioning.last == node {
		return
	}
	pl.provisioning.last = node
	for key, w := range pl.provisioning.byGang {
		if w.has(node.Name) >= 0 {
			return
		}
		if w.over && !now.Before(w.rest) {
			delete(pl.provisioning.byGang, key)
		}
	}
	for _, w := range pl.waiters() {
		if node.CreationTimestamp.Before(&w.group.CreationTimestamp) {
			continue // it did not come for this gang
		}
		if pl.holdNewcomer(logger, w, node, now) {
			return
		}
	}
}

// waiters lists the gangs with a window that wait for room, in the order of the queue.
func (pl *Coscheduling) waiters() []waiter {
	all := pl.gangs.awaitingNodes()
	waiters := all[:0]
	for _, w := range all {
		if w.group = pl.group(w.key); w.group == nil {
			continue
		}
		if w.window = pl.provisioningWindow(w.group); w.window <= 0 {
			continue
		}
		w.share = pl.line.shareOf(w.key.Namespace)
		waiters = append(waiters, w)
	}
	slices.SortFunc(waiters, waiter.compare)
	return waiters
}

// awaitingNodes lists the gangs that nodes could let in and for which new ones are to be held.
func (g *gangs) awaitingNodes() (waiters []waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, x := range g.byKey {
		if r := x.refusal; r != nil && x.complete && r.newcomers != nil && !r.surplus && r.podReason() == ReasonUnschedulable {
			waiters = append(waiters, waiter{key: key, newcomers: r.newcomers, priority: r.priority})
		}
	}
	return waiters
}

// compare orders gangs as the queue does.
func (w waiter) compare(other waiter) int {
	return cmp.Or(cmp.Compare(other.priority, w.priority), cmp.Compare(w.share, other.share),
		w.group.CreationTimestamp.Compare(other.group.CreationTimestamp.Time), strings.Compare(w.key.String(), other.key.String()))
}

// goesBefore reports whether a candidate is a gang that stands before another in line. New nodes are held against
// those behind a gang, also if the one before it asks for no window.
func (pl *Coscheduling) goesBefore(c candidate, w waiter) bool {
	group := pl.group(c.gang)
	if group == nil {
		return false
	}
	w.share = pl.line.shareOf(w.key.Namespace)
	return waiter{key: c.gang, group: group, priority: c.priority, share: pl.line.shareOf(c.gang.Namespace)}.compare(w) < 0
}

// holdNewcomer holds what a gang could use of a node, and reports whether that is anything. The lock is held.
func (pl *Coscheduling) holdNewcomer(logger klog.Logger, g waiter, node *corev1.Node, now time.Time) bool {
	w := pl.provisioning.byGang[g.key]
	if w != nil && w.over {
		return false // it rests
	}
	domain, ok := g.newcomers.Domain(node)
	if !ok || w != nil && !slices.Equal(domain, w.domain) {
		return false
	}
	first := w == nil
	if first {
		w = &window{until: now.Add(g.window), rest: now.Add(2 * g.window), domain: domain}
	}
	claims, taken := g.newcomers.Claim(logger, node, w.taken())
	if len(claims) == 0 {
		return false
	}
	w.newcomers = append(w.newcomers, newcomer{node.Name, claims, taken})
	pl.provisioning.byGang[g.key] = w
	pl.setNewcomers(g, w)
	logger.V(2).Info("New node is held", "podGroup", g.key, "node", node.Name, "members", len(claims), "until", w.until)
	message := fmt.Sprintf("new nodes are held for %d of the %d members that have no place, until %s: %s", len(w.claims()), g.newcomers.Needed(),
		w.until.UTC().Format(time.RFC3339), w.names())
	pl.report.say(g.key, v1alpha1.ConditionProvisioning, report{metav1.ConditionTrue, ReasonNodesArriving, message})
	if first {
		pl.clock.AfterFunc(g.window, func() { pl.endProvisioning(logger, g.key, w, ReasonWindowOver, "the gang did not fit in time") })
	}
	return true
}

// setNewcomers holds what is claimed, in place of what was held. Nobody is put in line by that: it is more than before,
// or on a node that is gone.
func (pl *Coscheduling) setNewcomers(g waiter, w *window) {
	pl.holds.set(holdOwner{g.key, provisioningHold}, &hold{
		claims: w.claims(), priority: g.priority, until: w.until,
		// What runs on every node is part of the node.
		admits: func(c candidate) bool { return c.daemon || pl.goesBefore(c, g) },
	})
}

// maxNodesNamed bounds how many nodes a message names.
const maxNodesNamed = 8

// names lists the nodes.
func (w *window) names() string {
	var names []string
	for _, n := range w.newcomers[:min(len(w.newcomers), maxNodesNamed)] {
		names = append(names, n.node)
	}
	if more := len(w.newcomers) - len(names); more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), more)
	}
	return strings.Join(names, ", ")
}

// newcomerGone gives up what is held on a node that left the cluster.
func (pl *Coscheduling) newcomerGone(logger klog.Logger, node string) {
	pl.provisioning.mu.Lock()
	defer pl.provisioning.mu.Unlock()
	for key, w := range pl.provisioning.byGang {
		at := w.has(node)
		if at < 0 {
			continue
		}
		group, before := pl.group(key), pl.holds.of(holdOwner{key, provisioningHold})
		if group == nil || before == nil {
			continue
		}
		w.newcomers = slices.Delete(w.newcomers, at, at+1)
		pl.setNewcomers(waiter{key: key, group: group, priority: before.priority}, w)
		logger.V(2).Info("A node that was held left the cluster", "podGroup", key, "node", node)
	}
}

// endProvisioning ends a gang's window, whichever it is if w is nil, and puts those in line who may use what was held.
func (pl *Coscheduling) endProvisioning(logger klog.Logger, key types.NamespacedName, w *window, reason, why string) {
	pl.provisioning.mu.Lock()
	is := pl.provisioning.byGang[key]
	if is == nil || w != nil && is != w || is.over {
		pl.provisioning.mu.Unlock()
		return
	}
	if is.over = true; reason != ReasonWindowOver {
		delete(pl.provisioning.byGang, key) // the next refusal is another matter
	}
	pl.provisioning.mu.Unlock()
	logger.V(2).Info("New nodes are held no more", "podGroup", key, "nodes", is.names(), "why", why)
	pl.report.say(key, v1alpha1.ConditionProvisioning, report{metav1.ConditionFalse, reason, why})
	pl.unhold(logger, holdOwner{key, provisioningHold})
}

// correctProvisioning takes back a condition of a scheduler that died.
func (pl *Coscheduling) correctProvisioning(key types.NamespacedName, group *v1alpha1.PodGroup) {
	if meta.IsStatusConditionTrue(group.Status.Conditions, v1alpha1.ConditionProvisioning) && !pl.report.saidOf(key, v1alpha1.ConditionProvisioning) {
		pl.report.say(key, v1alpha1.ConditionProvisioning, report{metav1.ConditionFalse, ReasonWindowOver, "no node is held for the gang"})
	}
}

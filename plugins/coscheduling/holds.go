package coscheduling

import (
	"cmp"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup"
)

// holdKind is what a gang keeps room for. A gang has at most one hold of each kind.
type holdKind int

const (
	// repairHold is room for members that were lost, until others took their place.
	repairHold holdKind = iota
	// reservationHold is room that becomes free bit by bit, until the gang fits.
	reservationHold
	// provisioningHold is room on nodes that joined the cluster for the gang.
	provisioningHold
)

// String says what the room is kept for.
func (k holdKind) String() string {
	switch k {
	case repairHold:
		return "the replacement of lost members"
	case reservationHold:
		return "a reservation"
	default:
		return "nodes that are being provisioned"
	}
}

// hold is capacity that is kept for a gang although none of its members has it yet. It ends by itself.
type hold struct {
	claims []gangplan.Claim
	// priority of the gang: candidates of a higher one need not mind.
	priority int32
	until    time.Time
	// admits reports whether a candidate may use the room all the same; nil if nobody may.
	admits func(candidate) bool
}

// candidate is a gang, or a pod without a gang, that looks for room.
type candidate struct {
	gang        types.NamespacedName // zero for a pod without a gang
	priority    int32
	preemptible bool
	// daemon is set for a pod of a DaemonSet.
	daemon bool
	// runTime is the longest that it runs, 0 if that is not known.
	runTime time.Duration
}

type holdOwner struct {
	gang types.NamespacedName
	kind holdKind
}

func (a holdOwner) compare(b holdOwner) int {
	return cmp.Or(cmp.Compare(a.gang.Namespace, b.gang.Namespace), cmp.Compare(a.gang.Name, b.gang.Name), cmp.Compare(a.kind, b.kind))
}

// holds is what is kept for gangs. It is safe for concurrent use and never calls out with its lock held, except to
// hold.admits.
type holds struct {
	mu      sync.RWMutex
	byOwner map[holdOwner]*hold
	order   []holdOwner
	// byNode counts the holds on each node.
	byNode map[string]int
	// kept are pods without a gang that were kept from a node by a hold, or by the seats of a gang: no event tells them
	// of the end of that.
	kept map[types.UID]*corev1.Pod
}

// maxKept bounds how many pods are remembered that were kept from a node. The others try again with the
// scheduler's own retries.
const maxKept = 10_000

func newHolds() *holds {
	return &holds{byOwner: map[holdOwner]*hold{}, byNode: map[string]int{}, kept: map[types.UID]*corev1.Pod{}}
}

// set begins a hold, or ends one if h is nil, and returns the one that was there before.
func (s *holds) set(owner holdOwner, h *hold) (before *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.byOwner[owner]
	s.replace(owner, before, h)
	return before
}

// end ends the hold if it is still this one, and reports whether it was.
func (s *holds) end(owner holdOwner, h *hold) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byOwner[owner] != h {
		return false
	}
	s.replace(owner, h, nil)
	return true
}

func (s *holds) replace(owner holdOwner, before, now *hold) {
	if before != nil {
		for _, node := range nodesOf(before.claims) {
			if s.byNode[node]--; s.byNode[node] == 0 {
				delete(s.byNode, node)
			}
		}
		delete(s.byOwner, owner)
	}
	at, found := slices.BinarySearchFunc(s.order, owner, holdOwner.compare)
	switch {
	case now == nil && found:
		s.order = slices.Delete(s.order, at, at+1)
	case now != nil && !found:
		s.order = slices.Insert(s.order, at, owner)
	}
	if now != nil {
		s.byOwner[owner] = now
		for _, node := range nodesOf(now.claims) {
			s.byNode[node]++
		}
	}
}

// nodesOf returns the nodes of claims, each once.
func nodesOf(claims []gangplan.Claim) []string {
	nodes := make([]string, len(claims))
	for i := range claims {
		nodes[i] = claims[i].Node
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// empty reports whether nothing is held.
func (s *holds) empty() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.byOwner) == 0
}

// of returns a hold, nil if there is none.
func (s *holds) of(owner holdOwner) *hold {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byOwner[owner]
}

// against lists what a candidate must leave alone, in the order of the owners' names.
func (s *holds) against(c candidate, now time.Time) []gangplan.Claim {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var claims []gangplan.Claim
	for _, owner := range s.order {
		if h := s.byOwner[owner]; h.binds(owner, c, now) {
			claims = append(claims, h.claims...)
		}
	}
	return claims
}

// binds reports whether a candidate must leave the room alone.
func (h *hold) binds(owner holdOwner, c candidate, now time.Time) bool {
	return owner.gang != c.gang && c.priority <= h.priority && now.Before(h.until) && (h.admits == nil || !h.admits(c))
}

// bind reports whether a candidate must leave a hold alone.
func (s *holds) bind(owner holdOwner, c candidate, now time.Time) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	h := s.byOwner[owner]
	return h != nil && h.binds(owner, c, now)
}

// onNode lists what a pod without a gang must leave alone on a node.
func (s *holds) onNode(node string, c candidate, now time.Time) []gangplan.Claim {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.byNode[node] == 0 {
		return nil
	}
	var claims []gangplan.Claim
	for _, owner := range s.order {
		h := s.byOwner[owner]
		if !h.binds(owner, c, now) {
			continue
		}
		for _, claim := range h.claims {
			if claim.Node == node {
				claims = append(claims, claim)
			}
		}
	}
	return claims
}

// keptFrom notes a pod that was kept from a node.
func (s *holds) keptFrom(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) < maxKept {
		s.kept[pod.UID] = pod
	}
}

// takeKept returns the pods that were kept from nodes, and forgets them.
func (s *holds) takeKept() []*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) == 0 {
		return nil
	}
	pods := make([]*corev1.Pod, 0, len(s.kept))
	for _, pod := range s.kept {
		pods = append(pods, pod)
	}
	s.kept = map[types.UID]*corev1.Pod{}
	return pods
}

// hold keeps room for a gang in place of what it keeps by a hold of that kind, until the hold's time is over.
// Whoever may fit into what is kept no more is put in line. It must not be called with a lock held.
func (pl *Coscheduling) hold(logger klog.Logger, owner holdOwner, h *hold) {
	pl.claimsFreed(logger, owner.gang, pl.changeHold(logger, owner, h))
}

// unhold ends a hold, if there is one.
func (pl *Coscheduling) unhold(logger klog.Logger, owner holdOwner) {
	pl.claimsFreed(logger, owner.gang, pl.changeHold(logger, owner, nil))
}

// changeHold is hold, or unhold if h is nil, for callers with a lock: it puts nobody in line, and returns the claims
// that are held no more.
func (pl *Coscheduling) changeHold(logger klog.Logger, owner holdOwner, h *hold) (freed []gangplan.Claim) {
	before := pl.holds.set(owner, h)
	if h != nil {
		pl.clock.AfterFunc(h.until.Sub(pl.clock.Now()), func() {
			if pl.holds.end(owner, h) {
				logger.V(2).Info("Room is held no more: its time is over", "podGroup", owner.gang, "for", owner.kind)
				pl.claimsFreed(logger, owner.gang, h.claims)
			}
		})
	}
	switch {
	case before == nil:
		return nil
	case before.admits != nil:
		return before.claims // whom it admits may differ now
	default:
		return before.without(h)
	}
}

// without lists the claims of a hold that another one, nil for none, does not have.
func (h *hold) without(other *hold) []gangplan.Claim {
	if other == nil {
		return h.claims
	}
	return claimsWithout(h.claims, other.claims)
}

// claimsWithout lists those of the claims that are not among others, each of which stands for one.
func claimsWithout(claims, others []gangplan.Claim) (rest []gangplan.Claim) {
	others = slices.Clone(others)
	for _, claim := range claims {
		if i := slices.IndexFunc(others, func(o gangplan.Claim) bool { return o.SameAs(&claim) }); i >= 0 {
			others = slices.Delete(others, i, i+1)
		} else {
			rest = append(rest, claim)
		}
	}
	return rest
}

// keptByHold says why a pod without a gang may not use a node, or returns "".
func (pl *Coscheduling) keptByHold(pod *corev1.Pod, info fwk.NodeInfo) string {
	claims := pl.holds.onNode(info.Node().Name, candidateFor(types.NamespacedName{}, nil, pod), pl.clock.Now())
	if len(claims) == 0 {
		return ""
	}
	short, fits := gangplan.FitsBeside(pod, info, claims)
	if fits {
		return ""
	}
	pl.holds.keptFrom(pod)
	return "room on the node is held for a gang (" + short + ")"
}

// mustLeave lists the claims that a plan for the pods of a gang must leave alone: the seats of other gangs'
// commits, and what is held for other gangs.
func (pl *Coscheduling) mustLeave(key types.NamespacedName, pods ...*corev1.Pod) []gangplan.Claim {
	c := pl.candidate(key, pods...)
	return append(pl.gangs.held(key, c.priority), pl.holds.against(c, pl.clock.Now())...)
}

// candidate describes the pods of a gang as its PodGroup is now.
func (pl *Coscheduling) candidate(key types.NamespacedName, pods ...*corev1.Pod) candidate {
	var annotations map[string]string
	if group := pl.group(key); group != nil {
		annotations = group.Annotations
	}
	return candidateFor(key, annotations, pods...)
}

// candidateFor describes the pods of a gang with the annotations of its PodGroup, or a pod without a gang.
func candidateFor(key types.NamespacedName, annotations map[string]string, pods ...*corev1.Pod) candidate {
	c := candidate{gang: key, priority: corev1helpers.PodPriority(pods[0])}
	if key == (types.NamespacedName{}) {
		annotations = pods[0].Annotations
	}
	owner := metav1.GetControllerOfNoCopy(pods[0])
	c.daemon = c.gang == (types.NamespacedName{}) && owner != nil && owner.Kind == "DaemonSet"
	// A setting that cannot be read is the default, which promises least; who owns the object is told elsewhere.
	settings, _ := podgroup.ParseSettings(annotations)
	c.preemptible = settings.Preemptible
	if c.runTime = settings.RunTime; c.runTime == 0 {
		c.runTime = activeDeadline(pods)
	}
	return c
}

// activeDeadline returns the longest of the pods' own deadlines, 0 if one of them has none.
func activeDeadline(pods []*corev1.Pod) time.Duration {
	longest := time.Duration(0)
	for _, pod := range pods {
		seconds := pod.Spec.ActiveDeadlineSeconds
		if seconds == nil {
			return 0
		}
		longest = max(longest, time.Duration(*seconds)*time.Second)
	}
	return longest
}

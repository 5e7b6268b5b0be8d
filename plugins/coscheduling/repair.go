package coscheduling

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup"
)

// repairs are the members that gangs lost and whose room is kept. A member is lost when its room is free and
// its work is not done: its pod was deleted, evicted or failed, its kubelet would not have it, its binding failed, or
// it is being deleted on a node that nobody can use. Room is kept only for what a gang lacks to minMember, and only
// while other members of it have their places: a gang without any starts anew, as it began.
//
// Its methods do not lock; whoever calls them holds the lock, and calls nothing that puts pods in line before
// the lock is given back.
type repairs struct {
	mu     sync.Mutex
	byGang map[types.NamespacedName][]*loss
	// kept are the claims that each gang's hold was made of.
	kept map[types.NamespacedName][]*gangplan.Claim
	// any is set while there are losses, and seeking while one of them needs a node.
	any, seeking atomic.Bool
	// lastPod is the pod that was seen to go last, and lastNode the node that was seen to change: events are told
	// once for every pod that waits.
	lastPod  atomic.Pointer[corev1.Pod]
	lastNode atomic.Pointer[corev1.Node]
	// changes counts what was told that may have left room.
	changes uint64
}

// loss is a member that a gang lost, and the room that is kept for who replaces it.
type loss struct {
	// pod is the member as the scheduler saw it last.
	pod      *corev1.Pod
	identity podgroup.Identity
	since    time.Time
	until    time.Time
	// claim is the room that is kept, nil if its old node is of no use and no other is found yet.
	claim *gangplan.Claim
	// sought is set once a node was sought for it in vain, and watch then tells which changes could help; nil
	// if any could.
	sought bool
	watch  *gangplan.Watch
	// confirmed is set once it is known that the member did not just finish.
	confirmed bool
	// taker is the member that was planned in place of the lost one; nil if there is none. A member that could not
	// be bound is its own.
	taker *corev1.Pod
}

func newRepairs() *repairs {
	return &repairs{byGang: map[types.NamespacedName][]*loss{}, kept: map[types.NamespacedName][]*gangplan.Claim{}}
}

// tellAgain has the last change heard once more, should it be told again: the first time may have been before the snapshot
// showed it.
func (r *repairs) tellAgain() {
	r.lastPod.Store(nil)
	r.lastNode.Store(nil)
}

// set replaces what a gang lost.
func (r *repairs) set(key types.NamespacedName, losses []*loss) {
	if len(losses) == 0 {
		delete(r.byGang, key)
	} else {
		r.byGang[key] = losses
	}
	r.any.Store(len(r.byGang) > 0)
	r.note()
}

// note notes whether a node is to be sought for any loss.
func (r *repairs) note() {
	for _, losses := range r.byGang {
		if slices.ContainsFunc(losses, (*loss).seeks) {
			r.seeking.Store(true)
			return
		}
	}
	r.seeking.Store(false)
}

// seeks reports whether a node is to be sought for the loss.
func (l *loss) seeks() bool { return l.taker == nil && l.claim == nil && !l.sought }

// takenBy reports whether a member was planned in place of the lost one.
func (l *loss) takenBy(pod *corev1.Pod) bool { return l.taker != nil && l.taker.UID == pod.UID }

// open counts the losses that nobody was planned for.
func open(losses []*loss) int {
	n := 0
	for _, l := range losses {
		if l.taker == nil {
			n++
		}
	}
	return n
}

// footing is what a gang has without the members that it lost.
type footing struct {
	// holding is how many members have a place, or are on their way to one.
	holding int
	// missing is how many more must be placed or planned until there are minMember.
	missing int
}

// footing looks at the gang. The losses are those that are known of it.
func (pl *Coscheduling) footing(key types.NamespacedName, losses []*loss) footing {
	group := pl.group(key)
	if group == nil {
		return footing{}
	}
	if settings, _ := podgroup.ParseSettings(group.Annotations); settings.NotBefore.After(pl.clock.Now()) {
		return footing{} // it was released whole, and rests
	}
	counts := pl.members.Get(key)
	for _, l := range losses {
		// Lost, whatever the index of members still says.
		if !l.confirmed && !l.takenBy(l.pod) && pl.inPlace(l.pod) {
			counts.Bound--
		}
	}
	coming, seats := pl.gangs.seated(key)
	holding := counts.Bound + coming
	return footing{holding: holding, missing: int(group.Spec.MinMember) - holding - counts.Finished - seats}
}

// inPlace reports whether the index of members shows a pod on its node.
func (pl *Coscheduling) inPlace(pod *corev1.Pod) bool {
	state, known := pl.members.StateOf(pod)
	return known && (state == podgroup.Bound || state == podgroup.Running)
}

// succeeded reports whether the index of members shows that a pod did its work.
func (pl *Coscheduling) succeeded(pod *corev1.Pod) bool {
	state, known := pl.members.StateOf(pod)
	return known && state == podgroup.Succeeded
}

// vanished is told of every pod that the scheduler no longer sees on its node, as it saw it last: of a pod that
// finished as of one that was deleted. The index of members may know more by now, or less. It may be called under
// the lock of the scheduler's queue, before any pod that waits for the room is put in line.
func (pl *Coscheduling) vanished(logger klog.Logger, pod *corev1.Pod) {
	if pl.repairs.lastPod.Swap(pod) == pod {
		return
	}
	defer pl.podMayHouse(pod)
	key, ok := podgroup.Key(pod)
	if !ok || pod.Spec.NodeName == "" {
		return
	}
	if !pl.succeeded(pod) {
		pl.lost(logger, key, pod)
	}
}

// couldNotBind is told of a member that had its place and could not be bound to it: it is its own replacement.
func (pl *Coscheduling) couldNotBind(logger klog.Logger, key types.NamespacedName, pod *corev1.Pod, node string) {
	if pod.Spec.NodeName != node {
		pod = pod.DeepCopy()
		pod.Spec.NodeName = node
	}
	pl.lost(logger, key, pod)
	pl.reviewRepair(logger, key)
}

// lost notes that a gang goes on without a member that had its place, and keeps the place. It may be called under
// the lock of the scheduler's queue.
func (pl *Coscheduling) lost(logger klog.Logger, key types.NamespacedName, pod *corev1.Pod) {
	wait := pl.repairTimeout(key)
	if wait == 0 {
		return
	}
	l := &loss{pod: pod, identity: podgroup.IdentityOf(pod), since: pl.clock.Now()}
	l.until = l.since.Add(wait)
	pl.repairs.mu.Lock()
	// Before the look at the index: whoever changes it from now on reviews what is found here.
	pl.repairs.any.Store(true)
	losses := pl.repairs.byGang[key]
	after := append(slices.Clone(losses), l)
	s := pl.footing(key, after)
	known := slices.ContainsFunc(losses, func(k *loss) bool { return k.pod.UID == pod.UID })
	if known || s.holding <= 0 || s.missing < open(after) {
		pl.repairs.set(key, losses)
		pl.repairs.mu.Unlock()
		return
	}
	pl.findOldRoom(logger, l)
	pl.repairs.set(key, after)
	freed := pl.keepRoom(key)
	confirmed := pl.confirm(after)
	pl.repairs.mu.Unlock()
	pl.clock.AfterFunc(wait, func() { pl.reviewRepair(logger, key) })
	pl.claimsFreed(logger, key, freed)
	pl.tellLosses(logger, key, confirmed)
}

// confirm returns the losses that the index of members now shows too.
func (pl *Coscheduling) confirm(losses []*loss) (confirmed []*loss) {
	for _, l := range losses {
		if !l.confirmed && !pl.inPlace(l.pod) {
			l.confirmed = true
			confirmed = append(confirmed, l)
		}
	}
	return confirmed
}

// repairTimeout is how long room is kept for a replacement; 0 if none is.
func (pl *Coscheduling) repairTimeout(key types.NamespacedName) time.Duration {
	wait := time.Duration(*pl.args.RepairTimeoutSeconds) * time.Second
	group := pl.group(key)
	if group == nil || wait == 0 {
		return 0
	}
	if settings, _ := podgroup.ParseSettings(group.Annotations); settings.RendezvousTimeout != nil && *settings.RendezvousTimeout > 0 {
		return *settings.RendezvousTimeout
	}
	return wait
}

// keepRoom makes the gang's hold what its losses need, and returns what is held no more. The lock is held. A hold needs
// no timer of its own: every loss has one.
func (pl *Coscheduling) keepRoom(key types.NamespacedName) (freed []gangplan.Claim) {
	var h *hold
	var claims []*gangplan.Claim
	for _, l := range pl.repairs.byGang[key] {
		if l.taker != nil || l.claim == nil {
			continue
		}
		if h == nil {
			h = &hold{priority: corev1helpers.PodPriority(l.pod)}
		}
		claims = append(claims, l.claim)
		h.claims = append(h.claims, *l.claim)
		if l.until.After(h.until) {
			h.until = l.until
		}
	}
	before := pl.repairs.kept[key]
	if slices.Equal(before, claims) {
		return nil
	}
	pl.holds.set(holdOwner{key, repairHold}, h)
	pl.repairs.kept[key] = claims
	if h == nil {
		delete(pl.repairs.kept, key)
	}
	if n := len(before); len(claims) > n && slices.Equal(before, claims[:n]) {
		return nil
	}
	still := sets.New(claims...)
	for _, claim := range before {
		if !still.Has(claim) {
			freed = append(freed, *claim)
		}
	}
	return freed
}

// takeOver notes which losses the members of a commit stand for: it keeps their room from now on.
func (pl *Coscheduling) takeOver(logger klog.Logger, key types.NamespacedName, seats []*seat) {
	if !pl.repairs.any.Load() {
		return
	}
	pl.repairs.mu.Lock()
	losses := pl.repairs.byGang[key]
	if len(losses) == 0 {
		pl.repairs.mu.Unlock()
		return
	}
	nodes := map[string]bool{}
	for _, s := range seats {
		nodes[s.Node] = true
		if l := lossFor(losses, s.pod, s.Node); l != nil {
			l.taker = s.pod
		}
	}
	pl.repairs.note()
	freed := pl.keepRoom(key)
	pl.repairs.mu.Unlock()
	// What the seats have on the same nodes is not free.
	freed = slices.DeleteFunc(freed, func(claim gangplan.Claim) bool { return nodes[claim.Node] })
	pl.claimsFreed(logger, key, freed)
}

// lossFor returns the loss that a member on a node makes good: that of its own place in the gang, or else one on
// the node, or else the first. It is nil if none is open.
func lossFor(losses []*loss, pod *corev1.Pod, node string) *loss {
	identity := podgroup.IdentityOf(pod)
	var best *loss
	fit := func(l *loss) int {
		switch {
		case l.identity == identity:
			return 3
		case l.claim != nil && l.claim.Node == node:
			return 2
		default:
			return 1
		}
	}
	for _, l := range losses {
		if l.taker == nil && (best == nil || fit(l) > fit(best)) {
			best = l
		}
	}
	return best
}

// reviewRepair brings what a gang lost in line with what became of the gang. It is called after every change of the
// gang, and costs nothing while the gang lost nobody.
func (pl *Coscheduling) reviewRepair(logger klog.Logger, key types.NamespacedName) {
	if !pl.repairs.any.Load() {
		return
	}
	pl.repairs.mu.Lock()
	before := pl.repairs.byGang[key]
	if len(before) == 0 {
		pl.repairs.mu.Unlock()
		return
	}
	now := pl.clock.Now()
	var losses []*loss
	for _, l := range before {
		switch {
		case l.taker == nil:
		case pl.inPlace(l.taker) || pl.succeeded(l.taker):
			repairDuration.Observe(now.Sub(l.since).Seconds())
			continue
		case !pl.gangs.isPlanned(key, l.taker.UID):
			l.taker = nil
		}
		if !pl.succeeded(l.pod) && now.Before(l.until) {
			losses = append(losses, l)
		}
	}
	s := pl.footing(key, losses)
	if s.holding <= 0 {
		losses = nil
	}
	losses = pl.trim(key, losses, s.missing)
	pl.repairs.set(key, losses)
	freed := pl.keepRoom(key)
	confirmed := pl.confirm(losses)
	pl.repairs.mu.Unlock()
	pl.claimsFreed(logger, key, freed)
	pl.tellLosses(logger, key, confirmed)
	if len(losses) == 0 {
		logger.V(2).Info("No room is kept for replacements any more", "podGroup", key, "lost", len(before))
	}
}

// trim drops losses beyond what a gang is missing: first those whose place in the gang another pod has, then the
// last. The lock is held.
func (pl *Coscheduling) trim(key types.NamespacedName, losses []*loss, missing int) []*loss {
	excess := open(losses) - max(missing, 0)
	if excess <= 0 {
		return losses
	}
	filled := map[podgroup.Identity]bool{}
	for _, m := range pl.members.Members(key) {
		if m.State >= podgroup.Bound && !slices.ContainsFunc(losses, func(l *loss) bool { return l.pod.UID == m.UID }) {
			filled[m.Identity] = true
		}
	}
	order := slices.Clone(losses)
	slices.Reverse(order)
	slices.SortStableFunc(order, func(a, b *loss) int {
		rank := func(l *loss) int {
			if filled[l.identity] {
				return 0
			}
			return 1
		}
		return cmp.Compare(rank(a), rank(b))
	})
	dropped := map[*loss]bool{}
	for _, l := range order {
		if l.taker == nil && len(dropped) < excess {
			dropped[l] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(losses), func(l *loss) bool { return dropped[l] })
}

// inRepair reports whether a gang has members with a place, and fewer than it needs. It may be called under the lock of
// the scheduler's queue.
func (pl *Coscheduling) inRepair(key types.NamespacedName) bool {
	counts := pl.members.Get(key)
	if counts.Bound == 0 {
		return false
	}
	group := pl.group(key)
	coming, seats := pl.gangs.seated(key)
	return group != nil && counts.Bound+counts.Finished+coming+seats < int(group.Spec.MinMember)
}

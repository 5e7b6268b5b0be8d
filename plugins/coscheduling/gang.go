package coscheduling

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/muster-sched/muster/plugins/gangplan"
)

// gangs is what the plugin remembers about gangs between scheduling cycles. Its methods only
// change state and say what follows from it; they never call the scheduler's queue, which calls
// back into the plugin with its own lock held.
type gangs struct {
	mu    sync.Mutex
	byKey map[types.NamespacedName]*gang
	// keeping has all gangs with seats, in a commit or kept until pods end, and some that had them: what a plan must
	// leave alone is found
	// without a look at all gangs that wait.
	keeping sets.Set[types.NamespacedName]
	// learned has all gangs that filters had a part in refusing, and some that are not any more.
	learned sets.Set[types.NamespacedName]
	// releases counts how often something was given up that had been held.
	releases uint64
}

// gang is one of four things: unknown (no entry), refused, being committed, or in between.
type gang struct {
	// commit is the plan that members are following right now.
	commit *commit
	// refusal is why the gang was turned away last; nil from the moment a plan is found.
	refusal *refusal
	// placed are members that were reserved and are on their way to their node, until the index of
	// members shows them there.
	placed map[types.UID]string
	// leaving are members that were reserved in a commit that was let go, until the scheduler has
	// taken them back.
	leaving sets.Set[types.UID]
	// unbound are members that were placed and could not be bound, until their own turn comes again: the scheduler
	// makes them pause, and the turn of another member must not put an end to that.
	unbound sets.Set[types.UID]
	// failures counts the commits let go since the last one that succeeded.
	failures int
	// early are members whose turn came before the scheduler saw enough of the others. They have no
	// verdict yet.
	early []*corev1.Pod
	// preempting is what a refused gang waits for, with its seats kept; nil if nothing.
	preempting *preempting
	// vain counts the preemptions since the last commit that succeeded, and before preemptsFrom there is no other.
	vain         int
	preemptsFrom time.Time
	// complete is whether the gang could be planned when its members or PodGroup last changed.
	complete bool
	// sweeping is set while somebody is about to look for devices that the gang holds in vain, and freeing
	// counts those who take some back.
	sweeping bool
	freeing  int
	// pausing is set while the gang waits to be tried again for pods that came, and pauses counts how often it did so
	// since it had a plan.
	pausing bool
	pauses  int
	// takingBack is set while somebody is about to make members of an incomplete gang stop asking for nodes.
	takingBack bool
}

func newGangs() *gangs {
	return &gangs{byKey: map[types.NamespacedName]*gang{}, keeping: sets.New[types.NamespacedName](), learned: sets.New[types.NamespacedName]()}
}

func (g *gangs) get(key types.NamespacedName) *gang {
	x, ok := g.byKey[key]
	if !ok {
		x = &gang{placed: map[types.UID]string{}, leaving: sets.New[types.UID](), unbound: sets.New[types.UID]()}
		g.byKey[key] = x
	}
	return x
}

// forget drops everything about a gang without members.
func (g *gangs) forget(key types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.byKey, key)
}

// verdict is what a member finds when its turn comes.
type verdict struct {
	node    string   // its place in the commit under way
	busy    bool     // a commit is under way without it
	refused *refusal // the gang was turned away, and it is not for this member to try again
}

// verdictFor returns how things stand for a member; the zero verdict means the gang should be
// planned now.
func (g *gangs) verdictFor(key types.NamespacedName, uid types.UID) verdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	switch {
	case !ok:
		return verdict{}
	case x.commit != nil:
		if s, ok := x.commit.seats[uid]; ok {
			return verdict{node: s.Node}
		}
		x.unbound.Delete(uid) // its turn came: it is to be put in line with the others that come after this commit
		return verdict{busy: true}
	case x.refusal != nil && x.refusal.forMember(uid):
		return verdict{refused: x.refusal}
	}
	return verdict{}
}

// begin starts a commit.
func (g *gangs) begin(key types.NamespacedName, c *commit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.get(key)
	x.commit, x.refusal, x.early, x.preempting, x.pauses = c, nil, nil, nil, 0
	g.keeping.Insert(key)
}

// refuse records a verdict, and returns the members that came too early for one.
func (g *gangs) refuse(key types.NamespacedName, r *refusal) (early []*corev1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.get(key)
	early, x.early = x.early, nil
	x.commit, x.refusal = nil, r
	if r.learned {
		g.learned.Insert(key)
	}
	return early
}

// cameEarly notes a member that comes back for the verdict on its gang.
func (g *gangs) cameEarly(key types.NamespacedName, pod *corev1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.get(key)
	x.early = append(x.early, pod)
}

// takeEarly returns the members that came too early for a verdict, and forgets them.
func (g *gangs) takeEarly(key types.NamespacedName) (early []*corev1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x, ok := g.byKey[key]; ok {
		early, x.early = x.early, nil
	}
	return early
}

// reserve takes a member's seat. It reports false if the member has no seat on that node, because
// its gang was let go in the meantime.
func (g *gangs) reserve(key types.NamespacedName, uid types.UID, node string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok || x.commit == nil {
		return false
	}
	s, ok := x.commit.seats[uid]
	if !ok || s.Node != node {
		return false
	}
	if !s.reserved {
		s.reserved = true
		x.commit.reserved++
	}
	x.placed[uid] = node
	return true
}

// allReserved reports whether the commit under way has a seat for the member, and lacks no reservation.
func (g *gangs) allReserved(key types.NamespacedName, uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	return ok && x.commit != nil && x.commit.seats[uid] != nil && x.commit.reserved == len(x.commit.seats)
}

// complete ends the commit if the given member was the last to be reserved, and returns the
// members that wait for it; without a member, all wait. It reports done == false while others are still to come, and known ==
// false if there is no such commit, or if one of the others waits no more: it was rejected, and is
// about to give its place back.
func (g *gangs) complete(key types.NamespacedName, uid types.UID, waits func(types.UID) bool) (waiting []types.UID, done, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok || x.commit == nil {
		return nil, false, false
	}
	c := x.commit
	if s := c.seats[uid]; uid != "" && (s == nil || !s.reserved) {
		return nil, false, false
	}
	if c.reserved < len(c.seats) {
		return nil, false, true
	}
	for other := range c.seats {
		if other == uid {
			continue
		}
		if !waits(other) {
			return nil, false, false
		}
		waiting = append(waiting, other)
	}
	slices.Sort(waiting)
	x.commit, x.refusal, x.failures = nil, nil, 0
	x.vain, x.preemptsFrom = 0, time.Time{}
	return waiting, true, true
}

// unplace takes back a member's reservation and lets its commit go, if one is under way. A member
// of an earlier commit, which was let go already, leaves the present one alone.
func (g *gangs) unplace(key types.NamespacedName, uid types.UID, message string) *released {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok {
		return nil
	}
	if x.leaving.Has(uid) {
		x.leaving.Delete(uid)
		return nil
	}
	placed := x.placed[uid] != ""
	delete(x.placed, uid)
	if x.commit == nil || x.commit.seats[uid] == nil {
		if placed {
			x.unbound.Insert(uid)
		}
		return nil
	}
	r := g.giveUp(x, message)
	x.leaving.Delete(uid)
	return r
}

// giveUp ends the commit of a gang. The lock is held.
func (g *gangs) giveUp(x *gang, message string) *released {
	g.releases++
	return x.release(message)
}

// countRelease notes that something is given up that was held for a gang.
func (g *gangs) countRelease() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.releases++
}

// releasesSoFar tells a caller that looked at what is held whether some of it was given up since.
func (g *gangs) releasesSoFar() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.releases
}

// release lets the commit go that has a seat for the member.
func (g *gangs) release(key types.NamespacedName, uid types.UID, message string) *released {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok || x.commit == nil || x.commit.seats[uid] == nil {
		return nil
	}
	return g.giveUp(x, message)
}

// releaseAny lets the commit go that is under way, whoever is in it.
func (g *gangs) releaseAny(key types.NamespacedName, message string) *released {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok || x.commit == nil {
		return nil
	}
	return g.giveUp(x, message)
}

// expire lets the given commit go if it is still under way.
func (g *gangs) expire(key types.NamespacedName, c *commit, message string) *released {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok || x.commit != c {
		return nil
	}
	return g.giveUp(x, message)
}

// becameComplete asks whether a gang could be planned now, and reports whether it could not when
// that was asked last. It asks with its lock held, so that of two callers the later one has the
// later answer.
func (g *gangs) becameComplete(key types.NamespacedName, complete func() bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	is := complete()
	x, ok := g.byKey[key]
	if !ok {
		if !is {
			return false
		}
		x = g.get(key)
	}
	was := x.complete
	x.complete = is
	return is && !was
}

// sweep reports whether the caller is the one to look for devices that the gang holds in vain.
func (g *gangs) sweep(key types.NamespacedName) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.get(key)
	was := x.sweeping
	x.sweeping = true
	return !was
}

// swept ends what sweep began.
func (g *gangs) swept(key types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x, ok := g.byKey[key]; ok {
		x.sweeping = false
	}
}

// freeing notes that devices are being taken back from the gang (1), no more (-1), or nothing new (0). It
// reports whether some are.
func (g *gangs) freeing(key types.NamespacedName, change int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok {
		if change <= 0 {
			return false
		}
		x = g.get(key)
	}
	x.freeing = max(x.freeing+change, 0)
	return x.freeing > 0
}

// rested ends the rest of a gang that was let go for the given number of times in a row. It returns
// the members that the scheduler has not taken back yet.
func (g *gangs) rested(key types.NamespacedName, failures int) (leaving []types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok {
		return nil
	}
	if x.refusal != nil && x.refusal.resting && x.failures == failures {
		r := *x.refusal
		r.resting = false
		x.refusal = &r
	}
	return sets.List(x.leaving)
}

// replan returns the unreserved seats of a commit and how many are reserved. It reports false if no member was reserved since the commit was last planned anew: another
// plan would end the same way, and the commit must be let go.
func (g *gangs) replan(key types.NamespacedName, uid types.UID) (open []*seat, reserved int, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, known := g.byKey[key]
	if !known || x.commit == nil || x.commit.seats[uid] == nil || x.commit.replanned > x.commit.reserved {
		return nil, 0, false
	}
	x.commit.replanned = x.commit.reserved + 1
	for _, s := range x.commit.inOrder() {
		if !s.reserved {
			open = append(open, s)
		}
	}
	return open, x.commit.reserved, true
}

// reseat moves unreserved members of a commit to new nodes. It reports false if the commit ended
// in the meantime.
func (g *gangs) reseat(key types.NamespacedName, seats []*seat) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok || x.commit == nil {
		return false
	}
	g.releases++
	for _, s := range seats {
		if _, still := x.commit.seats[s.pod.UID]; still {
			x.commit.seats[s.pod.UID] = s
		}
	}
	return true
}

// held lists the seats of other gangs that are planned but not reserved yet, or kept until pods on them end, as
// far as a gang of the given priority must respect them.
func (g *gangs) held(except types.NamespacedName, priority int32) []gangplan.Claim {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []gangplan.Claim
	for key := range g.keeping {
		x, known := g.byKey[key]
		if !known || x.commit == nil && x.preempting == nil {
			g.keeping.Delete(key)
			continue
		}
		if key == except {
			continue
		}
		if x.preempting != nil && x.preempting.priority >= priority {
			for _, s := range x.preempting.seats {
				out = append(out, s.Claim)
			}
		}
		if x.commit == nil || x.commit.priority < priority {
			continue
		}
		for _, s := range x.commit.seats {
			if !s.reserved {
				out = append(out, s.Claim)
			}
		}
	}
	return out
}

package coscheduling

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/stage"
)

var testKey = types.NamespacedName{Namespace: "ns", Name: "gang"}

// everyone waits at Permit.
func everyone(types.UID) bool { return true }

// testCommit has n members, member i on node i.
func testCommit(n int) *commit {
	c := &commit{seats: map[types.UID]*seat{}, need: n}
	for i := range n {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("m-%d", i), UID: stage.UID(i)}}
		c.seats[stage.UID(i)] = &seat{pod: pod, Claim: gangplan.Claim{Node: fmt.Sprint(i)}}
	}
	return c
}

func TestVerdicts(t *testing.T) {
	g := newGangs()
	if v := g.verdictFor(testKey, stage.UID(0)); v != (verdict{}) {
		t.Errorf("unknown gang: %+v, want a plan to be made", v)
	}
	r := &refusal{message: "no", representative: stage.UID(0), members: map[types.UID]version{stage.UID(0): {}, stage.UID(1): {}}}
	g.refuse(testKey, r)
	for member, want := range map[int]*refusal{
		0: nil, // the representative tries again
		1: r,   // the others share its verdict
		2: nil, // a newcomer may change the answer
	} {
		if v := g.verdictFor(testKey, stage.UID(member)); v.refused != want {
			t.Errorf("member %d of a refused gang: %+v", member, v)
		}
	}
	g.begin(testKey, testCommit(2))
	if v := g.verdictFor(testKey, stage.UID(1)); v.node != "1" {
		t.Errorf("planned member: %+v", v)
	}
	if v := g.verdictFor(testKey, stage.UID(2)); !v.busy {
		t.Errorf("member that came during the commit: %+v", v)
	}
	if g.refusalOf(testKey) != nil {
		t.Error("a gang with a plan is still refused")
	}
}

func TestCommitEndsWithItsLastMember(t *testing.T) {
	g := newGangs()
	g.begin(testKey, testCommit(3))
	for i := range 3 {
		if !g.reserve(testKey, stage.UID(i), fmt.Sprint(i)) {
			t.Fatalf("member %d: no seat", i)
		}
		waiting, done, known := g.complete(testKey, stage.UID(i), everyone)
		if !known || done != (i == 2) {
			t.Fatalf("after member %d: done %v, known %v", i, done, known)
		}
		if done && len(waiting) != 2 {
			t.Fatalf("waiting: %v", waiting)
		}
	}
	if got := g.placedNodes(testKey); len(got) != 3 {
		t.Errorf("on their way: %v", got)
	}
	g.arrived(testKey, stage.UID(1))
	if got := g.placedNodes(testKey); len(got) != 2 {
		t.Errorf("after one arrived: %v", got)
	}
	// A member that fails to bind now does not take the others with it.
	if r := g.unplace(testKey, stage.UID(0), "bind failed"); r != nil {
		t.Errorf("let go after the commit: %+v", r)
	}
	if v := g.verdictFor(testKey, stage.UID(0)); v != (verdict{}) {
		t.Errorf("the member that came back: %+v, want a new plan", v)
	}
}

func TestReserveOnAnotherNodeIsRefused(t *testing.T) {
	g := newGangs()
	g.begin(testKey, testCommit(2))
	if g.reserve(testKey, stage.UID(0), "1") {
		t.Error("member 0 reserved on the node of member 1")
	}
	if g.reserve(testKey, stage.UID(7), "1") {
		t.Error("a stranger reserved")
	}
	if g.reserve(types.NamespacedName{Namespace: "other", Name: "gang"}, stage.UID(0), "0") {
		t.Error("reserved in a gang of the same name elsewhere")
	}
}

func TestOneFailureLetsTheWholeCommitGo(t *testing.T) {
	for name, fail := range map[string]func(*gangs) *released{
		"a reserved member gives up":       func(g *gangs) *released { return g.unplace(testKey, stage.UID(0), "no") },
		"a member without a place is gone": func(g *gangs) *released { return g.release(testKey, stage.UID(2), "no") },
		"the group is deleted":             func(g *gangs) *released { return g.releaseAny(testKey, "no") },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGangs()
			g.begin(testKey, testCommit(3))
			g.reserve(testKey, stage.UID(0), "0")
			r := fail(g)
			if r == nil || len(r.seats) != 3 || r.failures != 1 {
				t.Fatalf("released %+v", r)
			}
			if g.reserve(testKey, stage.UID(1), "1") {
				t.Error("a member took its seat after the commit was let go")
			}
			if _, _, known := g.complete(testKey, stage.UID(0), everyone); known {
				t.Error("a member waits for a commit that was let go")
			}
			if refused := g.refusalOf(testKey); refused == nil || refused.representative != stage.UID(0) {
				t.Errorf("refusal %+v", refused)
			}
			if placed := g.placedNodes(testKey); len(placed) != 0 {
				t.Errorf("members count as placed although they lost their places: %v", placed)
			}
			if v := g.verdictFor(testKey, stage.UID(0)); v.refused == nil {
				t.Error("the gang is planned again at once")
			}
			g.rested(testKey, 1)
			if v := g.verdictFor(testKey, stage.UID(0)); v != (verdict{}) {
				t.Errorf("after its rest: %+v", v)
			}
			if fail(g) != nil {
				t.Error("let go twice")
			}
		})
	}
}

// A member that was reserved leaves its place some time after its commit was let go. By then its gang
// may have a new one, in which it has a seat.
func TestLateUnreserveLeavesTheNextCommitAlone(t *testing.T) {
	g := newGangs()
	g.begin(testKey, testCommit(3))
	g.reserve(testKey, stage.UID(0), "0")
	g.reserve(testKey, stage.UID(1), "1")
	g.unplace(testKey, stage.UID(1), "no")
	g.begin(testKey, testCommit(3))
	if r := g.unplace(testKey, stage.UID(0), "rejected"); r != nil {
		t.Errorf("a member of the old commit let the new one go: %+v", r)
	}
	if r := g.unplace(testKey, stage.UID(1), "no"); r == nil {
		t.Error("the member that gave up had left already; this is about the new commit")
	}
}

func TestCommitEndsInTime(t *testing.T) {
	g := newGangs()
	first, second := testCommit(2), testCommit(2)
	g.begin(testKey, first)
	if r := g.expire(testKey, first, "too late"); r == nil || len(r.seats) != 2 {
		t.Errorf("released %+v", r)
	}
	g.begin(testKey, second)
	if r := g.expire(testKey, first, "too late"); r != nil {
		t.Error("the end of the first commit let the second go")
	}
}

// A member that was rejected at Permit is on its way out before it is unreserved.
func TestNobodyBindsBesideARejectedMember(t *testing.T) {
	g := newGangs()
	g.begin(testKey, testCommit(3))
	for i := range 3 {
		g.reserve(testKey, stage.UID(i), fmt.Sprint(i))
	}
	if _, done, known := g.complete(testKey, stage.UID(2), func(other types.UID) bool { return other != stage.UID(1) }); done || known {
		t.Errorf("done %v, known %v: a member no longer waits", done, known)
	}
}

func TestReplanOnceForEachReservedMember(t *testing.T) {
	g := newGangs()
	g.begin(testKey, testCommit(3))
	g.reserve(testKey, stage.UID(0), "0")
	open, reserved, ok := g.replan(testKey, stage.UID(1))
	if !ok || len(open) != 2 || reserved != 1 {
		t.Fatalf("open %v, %d reserved, %v", open, reserved, ok)
	}
	moved := *open[0]
	moved.Node = "9"
	if !g.reseat(testKey, []*seat{&moved}) {
		t.Fatal("not reseated")
	}
	if v := g.verdictFor(testKey, stage.UID(1)); v.node != "9" {
		t.Errorf("after the new plan: %+v", v)
	}
	if _, _, ok := g.replan(testKey, stage.UID(1)); ok {
		t.Error("planned anew twice with the same members reserved")
	}
	g.reserve(testKey, stage.UID(1), "9")
	if open, reserved, ok := g.replan(testKey, stage.UID(2)); !ok || len(open) != 1 || reserved != 2 {
		t.Errorf("after another member was reserved: open %v, %d reserved, %v", open, reserved, ok)
	}
}

func TestHeldSeats(t *testing.T) {
	g := newGangs()
	c := testCommit(3)
	c.priority = 5
	g.begin(testKey, c)
	g.reserve(testKey, stage.UID(0), "0")
	other := types.NamespacedName{Namespace: "ns", Name: "other"}
	for _, tc := range []struct {
		priority int32
		want     int
	}{{0, 2}, {5, 2}, {6, 0}} {
		if got := len(g.held(other, tc.priority)); got != tc.want {
			t.Errorf("a gang of priority %d must respect %d seats, want %d", tc.priority, got, tc.want)
		}
	}
	if got := len(g.held(testKey, 0)); got != 0 {
		t.Errorf("a gang is in its own way with %d seats", got)
	}
}

// What others hold costs a plan nothing for the gangs that wait.
func BenchmarkHeldBesideWaitingGangs(b *testing.B) {
	g := newGangs()
	for i := range 2000 {
		g.refuse(types.NamespacedName{Namespace: "ns", Name: fmt.Sprint(i)}, &refusal{})
	}
	g.begin(testKey, testCommit(8))
	b.ReportAllocs()
	for b.Loop() {
		if n := len(g.held(types.NamespacedName{}, 0)); n != 8 {
			b.Fatal(n)
		}
	}
}

func TestRepresentativeIsReplaced(t *testing.T) {
	g := newGangs()
	g.refuse(testKey, &refusal{representative: stage.UID(0), members: map[types.UID]version{stage.UID(0): {}, stage.UID(1): {}}})
	g.elect(testKey, stage.UID(5), stage.UID(1)) // somebody else's business
	if r := g.refusalOf(testKey); r.representative != stage.UID(0) {
		t.Error("replaced although it is still there")
	}
	g.elect(testKey, stage.UID(0), stage.UID(1))
	if r := g.refusalOf(testKey); r.representative != stage.UID(1) {
		t.Errorf("representative %s", r.representative)
	}
}

func TestBecameComplete(t *testing.T) {
	g := newGangs()
	for i, step := range []struct{ now, want bool }{{false, false}, {true, true}, {true, false}, {false, false}, {true, true}} {
		if got := g.becameComplete(testKey, func() bool { return step.now }); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	g.forget(testKey)
	if len(g.byKey) != 0 {
		t.Error("a forgotten gang is remembered")
	}
}

// Whatever happens in whatever order, no member may bind before all members of its commit are
// reserved, and a commit that was let go holds nothing.
func TestNoMemberBindsAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGangs()
		n := rapid.IntRange(1, 5).Draw(t, "members")
		reserved, leaving := sets.New[int](), sets.New[int]()
		under := false
		letGo := func() {
			if under {
				leaving = leaving.Union(reserved)
			}
			under = false
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				if under {
					t.Skip("a commit is under way")
				}
				g.begin(testKey, testCommit(n))
				reserved, under = sets.New[int](), true
			},
			"reserve": func(t *rapid.T) {
				i := rapid.IntRange(0, n-1).Draw(t, "member")
				if leaving.Has(i) {
					t.Skip("the scheduler has not taken it back yet")
				}
				if got := g.reserve(testKey, stage.UID(i), fmt.Sprint(i)); got != under {
					t.Fatalf("reserved: %v, commit under way: %v", got, under)
				}
				if under {
					reserved.Insert(i)
				}
			},
			"permit": func(t *rapid.T) {
				i := rapid.IntRange(0, n-1).Draw(t, "member")
				_, done, known := g.complete(testKey, stage.UID(i), everyone)
				if done && reserved.Len() != n {
					t.Fatalf("%d of %d are reserved, and they bind", reserved.Len(), n)
				}
				if known != (under && reserved.Has(i)) {
					t.Fatalf("member %d waits: %v", i, known)
				}
				if done {
					under = false
				}
			},
			"unreserve": func(t *rapid.T) {
				i := rapid.IntRange(0, n-1).Draw(t, "member")
				late := leaving.Has(i)
				if r := g.unplace(testKey, stage.UID(i), "no"); (r != nil) != (under && !late) {
					t.Fatalf("let go: %v, commit under way: %v, left late: %v", r != nil, under, late)
				}
				if !late {
					letGo()
				}
				leaving.Delete(i)
			},
			"gone": func(t *rapid.T) {
				i := rapid.IntRange(0, n-1).Draw(t, "member")
				g.release(testKey, stage.UID(i), "gone")
				letGo()
			},
			"": func(t *rapid.T) {
				want := 0
				if under {
					want = n - reserved.Len()
				}
				if got := len(g.held(types.NamespacedName{}, 0)); got != want {
					t.Fatalf("%d seats held, want %d", got, want)
				}
				placed := g.placedNodes(testKey)
				for i := range leaving {
					if placed[stage.UID(i)] != "" {
						t.Fatalf("member %d counts as placed and has lost its place", i)
					}
				}
			},
		})
	})
}

// A member whose turn came before the others were seen comes back for the verdict, and only once.
func TestEarlyMembersGetTheVerdict(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "early", UID: stage.UID(0)}}
	g := newGangs()
	g.cameEarly(testKey, pod)
	if v := g.verdictFor(testKey, stage.UID(1)); v != (verdict{}) {
		t.Errorf("a member that came early decided for the gang: %+v", v)
	}
	if early := g.refuse(testKey, &refusal{representative: stage.UID(1)}); len(early) != 1 || early[0] != pod {
		t.Errorf("came early: %v", early)
	}
	if early := g.refuse(testKey, &refusal{representative: stage.UID(1)}); len(early) != 0 {
		t.Errorf("came early to the second verdict: %v", early)
	}
	g.cameEarly(testKey, pod)
	g.begin(testKey, testCommit(1))
	if early := g.refuse(testKey, &refusal{}); len(early) != 0 {
		t.Errorf("came early before a commit: %v", early)
	}
}

func TestVerdictHoldsUntilThePodChanges(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: stage.UID(0), Generation: 1}}
	r := &refusal{members: map[types.UID]version{stage.UID(0): versionOf(pod)}}
	for name, change := range map[string]func(*corev1.Pod){
		"its spec": func(p *corev1.Pod) { p.Generation++ },
		"its claims": func(p *corev1.Pod) {
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "device"}}
		},
	} {
		changed := pod.DeepCopy()
		changed.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Message: "no"}}
		if r.resting = false; !r.holds(changed) {
			t.Error("a condition is no change of rules")
		}
		if change(changed); r.holds(changed) {
			t.Errorf("%s changed, and the verdict still holds", name)
		}
		if r.resting = true; !r.holds(changed) {
			t.Errorf("%s changed, and the gang does not rest", name)
		}
	}
}

package coscheduling

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/podgroup/planner"
)

// What the real scheduler does with reservations is in plugins/simulation/reservation_test.go.

func TestReservationArgs(t *testing.T) {
	for _, test := range []struct{ args, err string }{
		{"reservation: {afterSeconds: 60}", ""},
		{"reservation: {afterSeconds: 0}", ""},
		{"reservation: {}", ""},
		{"reservation: {afterSeconds: -1}", "reservation.afterSeconds: Invalid value: -1: must be from 0 to 31536000"},
		{"reservation: {afterSeconds: 60, maxSeconds: 0}", "reservation.maxSeconds: Invalid value: 0: must be from 1 to 31536000"},
		{"reservation: {after: 60}", `unknown field "after"`},
	} {
		args, err := decodeArgs(&runtime.Unknown{Raw: []byte(test.args)})
		if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%s: error is %v, want %q", test.args, err, test.err)
		}
		if err == nil && args.Reservation.longest() != 4*time.Hour {
			t.Errorf("%s: kept for %v", test.args, args.Reservation.longest())
		}
	}
	if args, _ := decodeArgs(nil); args.Reservation.after() != 0 {
		t.Error("room is reserved although nobody asked for it")
	}
}

func TestLineForTheReservation(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	key := func(name string) types.NamespacedName { return types.NamespacedName{Name: name} }
	first := inLine{key("z"), 1, noon}
	for _, later := range []inLine{{key("a"), 0, noon.Add(-time.Hour)}, {key("a"), 1, noon.Add(time.Second)}, {key("zz"), 1, noon}} {
		if first.compare(later) >= 0 || later.compare(first) <= 0 {
			t.Errorf("%+v is not before %+v", first, later)
		}
	}
}

func TestReservationInWords(t *testing.T) {
	r := &reservation{
		gang: types.NamespacedName{Namespace: "ns", Name: "big"}, where: "rack r1", until: time.Date(2026, 3, 1, 18, 0, 0, 0, time.UTC),
	}
	for i := range 10 {
		r.wait.Waiting = append(r.wait.Waiting, planner.Tenant{Name: "ns/t" + string(rune('0'+i))})
	}
	r.wait.Unknown = 3
	if got, want := r.String(), "room for 0 members is reserved in rack r1; free when these have ended: ns/t0, ns/t1, ns/t2, ns/t3, ns/t4, ns/t5, ns/t6, ns/t7, 2 more; kept until 2026-03-01T18:00:00Z at most"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := r.whose(), "ns/big until 2026-03-01T18:00:00Z at most"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r.wait = planner.Wait{At: time.Date(2026, 3, 1, 14, 5, 0, 0, time.UTC).UnixNano()}
	if got, want := r.whose(), "ns/big until about 2026-03-01T14:05:00Z"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestEndOf(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	started := metav1.NewTime(now.Add(-10 * time.Minute))
	for name, test := range map[string]struct {
		deadline *int64
		runTime  time.Duration
		deleted  *time.Time
		waits    bool
		want     time.Time
	}{
		"nothing is known":          {},
		"run time":                  {runTime: time.Hour, want: now.Add(50 * time.Minute)},
		"run time of one to start":  {runTime: time.Hour, waits: true, want: now.Add(time.Hour)},
		"run time that is over":     {runTime: 5 * time.Minute},
		"deadline":                  {deadline: ptr.To[int64](1200), want: now.Add(10 * time.Minute)},
		"deadline that has passed":  {deadline: ptr.To[int64](60), want: now},
		"the earlier of the two":    {deadline: ptr.To[int64](1200), runTime: 15 * time.Minute, want: now.Add(5 * time.Minute)},
		"being deleted":             {runTime: time.Hour, deleted: ptr.To(now.Add(time.Minute)), want: now.Add(time.Minute)},
		"deleted and yet not gone":  {deleted: ptr.To(now.Add(-time.Minute)), want: now},
		"deadline and broken times": {deadline: ptr.To[int64](1200), runTime: 5 * time.Minute, want: now.Add(10 * time.Minute)},
	} {
		pod := st.MakePod().Name("p").Obj()
		pod.Spec.ActiveDeadlineSeconds = test.deadline
		if !test.waits {
			pod.Status.StartTime = &started
		}
		if test.deleted != nil {
			pod.DeletionTimestamp = ptr.To(metav1.NewTime(*test.deleted))
		}
		if got := endOf(pod, test.runTime, now); !got.Equal(test.want) {
			t.Errorf("%s: ends %v, want %v", name, got, test.want)
		}
	}
}

// What others hold is not reserved a second time: neither is it waited for nor counted as free.
func TestReservationLeavesWhatOthersHold(t *testing.T) {
	for name, occupied := range map[string][]string{
		"there is room elsewhere, later":       {"n1", "n2"},
		"it would fit, were it not for a hold": {"n2"},
	} {
		t.Run(name, func(t *testing.T) {
			var pods []*corev1.Pod
			for i, node := range occupied {
				pod := stage.Pod(50+i, 8).Node(node).Obj()
				pod.Spec.ActiveDeadlineSeconds = ptr.To(int64(600 * (i + 1)))
				pods = append(pods, pod)
			}
			p := newPlayBeside(t, pods, stage.Nodes(3, 8)...)
			p.args.Reservation = &ReservationArgs{AfterSeconds: ptr.To[int64](60)}
			p.keep("n0", func(h *hold) { h.until = p.clock.Now().Add(time.Hour) })
			p.group(2)
			members := p.wholeNodeMembers(2)
			if node, _ := p.turn(members[0]); node != "" {
				t.Fatalf("placed on %s beside the hold", node)
			}
			p.clock.Step(time.Minute)
			if node, _ := p.turn(members[0]); node != "" {
				t.Fatalf("placed on %s beside the hold", node)
			}
			r := p.reserving.now()
			if r == nil {
				t.Fatal("nothing is reserved")
			}
			if got := nodesOf(r.claims); !slices.Equal(got, []string{"n1", "n2"}) {
				t.Errorf("reserved on %v", got)
			}
		})
	}
}

// A reservation is looked at again whenever its gang is refused. Its seats stay where they are for as long as they become
// free when that was expected, or sooner; otherwise they move where they are free sooner.
func TestReservationsAreRevised(t *testing.T) {
	start := (&handClock{}).Now()
	runs := func(i int, node string, runTime string) *corev1.Pod {
		pod := stage.Pod(50+i, 8).Node(node).Annotation(podgroup.RunTimeAnnotation, runTime).Obj()
		pod.Status.StartTime = ptr.To(metav1.NewTime(start))
		return pod
	}
	first, second, third := runs(0, "n0", "10m"), runs(1, "n1", "20m"), runs(2, "n2", "30m")
	all := stage.Nodes(3, 8)
	for name, test := range map[string]struct {
		at      time.Duration
		pods    []*corev1.Pod
		nodes   []*corev1.Node
		members bool // a member is replaced
		seats   []string
		by      time.Duration // from the start; 0 if that is not known
		same    bool          // nothing new is said
	}{
		"nothing changed":                     {at: 2 * time.Minute, pods: []*corev1.Pod{first, second, third}, nodes: all, seats: []string{"n0", "n1"}, by: 20 * time.Minute, same: true},
		"one has ended as it should":          {at: 11 * time.Minute, pods: []*corev1.Pod{second, third}, nodes: all, seats: []string{"n0", "n1"}, by: 20 * time.Minute},
		"the last has ended early":            {at: 2 * time.Minute, pods: []*corev1.Pod{first, third}, nodes: all, seats: []string{"n0", "n1"}, by: 10 * time.Minute},
		"one runs on, and others end":         {at: 21 * time.Minute, pods: []*corev1.Pod{second, third}, nodes: all, seats: []string{"n0", "n2"}, by: 30 * time.Minute},
		"one runs on, and nobody ends sooner": {at: 31 * time.Minute, pods: []*corev1.Pod{second, third}, nodes: all, seats: []string{"n0", "n1"}},
		"a node is gone":                      {at: 2 * time.Minute, pods: []*corev1.Pod{first, third}, nodes: []*corev1.Node{all[0], all[2]}, seats: []string{"n0", "n2"}, by: 30 * time.Minute},
		"no other nodes are left":             {at: 2 * time.Minute, pods: []*corev1.Pod{first}, nodes: all[:1]},
		"the gang has another member":         {at: 2 * time.Minute, pods: []*corev1.Pod{first, second, third}, nodes: all, members: true, seats: []string{"n0", "n1"}, by: 20 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlayBeside(t, []*corev1.Pod{first, second, third}, all...)
			snapshot := &resnapped{Framework: p.handle, fresh: p.handle.MutableSnapshotSharedLister()}
			p.handle = snapshot // before others look at it in the background
			p.args.Reservation = &ReservationArgs{AfterSeconds: ptr.To[int64](60)}
			p.group(2)
			members := p.wholeNodeMembers(2)
			p.turn(members[0])
			p.clock.Step(time.Minute)
			p.turn(members[0])
			before := p.reserving.now()
			if before == nil {
				t.Fatal("nothing is reserved")
			}
			if at, known := before.expected(); !slices.Equal(nodesOf(before.claims), []string{"n0", "n1"}) || !known || !at.Equal(start.Add(20*time.Minute)) {
				t.Fatalf("reserved at first: %s", before)
			}

			p.clock.Step(test.at - time.Minute)
			fw, infos := stage.NewFramework(t, test.pods, test.nodes...)
			p.nodes, snapshot.fresh = infos, fw.MutableSnapshotSharedLister()
			if test.members {
				other := members[1].DeepCopy()
				other.Name, other.UID = "other", "other"
				p.see(nil, other)
				p.podDeleted(p.logger, members[1])
			}
			if node, _ := p.turn(members[0]); node != "" {
				t.Fatalf("placed on %s", node)
			}
			after, said := p.reserving.now(), p.report.wanted[testKey][v1alpha1.ConditionReserved]
			if test.seats == nil {
				if after != nil || said.status != metav1.ConditionFalse || said.reason != ReasonNoRoom {
					t.Errorf("reserved: %s; said: %+v", after, said)
				}
				return
			}
			if after == nil {
				t.Fatalf("nothing is reserved any more: %+v", said)
			}
			seats := nodesOf(after.claims)
			slices.Sort(seats)
			if !slices.Equal(seats, test.seats) {
				t.Errorf("seats on %v, want %v", seats, test.seats)
			}
			if at, known := after.expected(); known != (test.by > 0) || known && !at.Equal(start.Add(test.by)) {
				t.Errorf("expected by %v (%v), want %v after the start", at, known, test.by)
			}
			if !after.made.Equal(before.made) || !after.until.Equal(before.until) {
				t.Errorf("made at %v until %v, was %v until %v", after.made, after.until, before.made, before.until)
			}
			if (after == before) != test.same || said.message != after.String() {
				t.Errorf("said: %q; reserved: %s", said.message, after)
			}
		})
	}
}

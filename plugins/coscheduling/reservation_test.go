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

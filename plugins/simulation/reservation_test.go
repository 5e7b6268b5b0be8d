package simulation

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// stream is a cluster of nodes of 8 GPUs that small gangs keep full, and a large gang that came later than the first
// of them and earlier than all others.
type stream struct {
	*Cluster
	t       testing.TB
	nodes   int
	small   int
	runTime func(i int) time.Duration
	// declared is set if the small gangs declare their run time, and protected if nobody may preempt them.
	declared, protected bool
}

func newStream(t testing.TB, nodes int, args string, runTime func(int) time.Duration) *stream {
	t.Helper()
	c, err := New(Options{Coscheduling: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	s := &stream{Cluster: c, t: t, nodes: nodes, runTime: runTime, declared: true}
	for i := range nodes {
		c.AddNode(testNode(fmt.Sprintf("n%d", i), "b", fmt.Sprintf("r%d", i/2), 8))
	}
	return s
}

// feed submits small gangs until two of them wait.
func (s *stream) feed() {
	s.t.Helper()
	s.settle()
	for s.waiting() < 2 {
		runs := s.runTime(s.small)
		j := Job{Name: fmt.Sprintf("small-%d", s.small), Sizes: []int64{8}, MinMember: 1, RunTime: runs}
		j.Annotations = map[string]string{podgroup.PreemptibleAnnotation: fmt.Sprint(!s.protected)}
		if s.declared {
			// A pod starts a moment after it was placed.
			j.Annotations[podgroup.RunTimeAnnotation] = (runs + time.Second).String()
		}
		s.small++
		s.Submit(j)
		s.settle()
	}
}

func (s *stream) settle() {
	s.t.Helper()
	if err := s.Settle(); err != nil {
		s.t.Fatal(err)
	}
}

// waiting counts the small gangs without a place.
func (s *stream) waiting() int {
	n := 0
	for _, pod := range s.api.pods {
		if pod.Spec.NodeName == "" && strings.HasPrefix(pod.Name, "small-") {
			n++
		}
	}
	return n
}

// placed reports whether a gang has all of its places.
func (s *stream) placed(name string) bool {
	n := 0
	for _, pod := range s.api.pods {
		if pod.Labels[v1alpha1.GroupLabel] == name && pod.Spec.NodeName != "" {
			n++
		}
	}
	return n == len(s.jobs[name].Sizes)
}

// group returns a PodGroup as it is stored.
func (s *stream) group(name string) *v1alpha1.PodGroup {
	return s.api.groups[types.NamespacedName{Namespace: Namespace, Name: name}]
}

// reserved is what a PodGroup says of its reservation.
func (s *stream) reserved(name string) string {
	c := meta.FindStatusCondition(s.group(name).Status.Conditions, v1alpha1.ConditionReserved)
	if c == nil {
		return "absent"
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// until advances in small steps, and feeds small gangs, until a gang has its place. It returns how long that took,
// or limit if it took longer.
func (s *stream) until(name string, limit time.Duration) time.Duration {
	s.t.Helper()
	started := s.Clock().Now()
	for !s.placed(name) {
		if passed := s.Clock().Since(started); passed >= limit {
			return limit
		}
		if err := s.Advance(5 * time.Second); err != nil {
			s.t.Fatal(err)
		}
		s.feed()
	}
	return s.Clock().Since(started)
}

// large submits a gang that needs so many whole nodes.
func (s *stream) large(name string, nodes int) {
	s.t.Helper()
	var sizes []int64
	for range nodes {
		sizes = append(sizes, 8)
	}
	s.Submit(Job{Name: name, Sizes: sizes, MinMember: int32(nodes), RunTime: time.Hour})
	s.settle()
}

// steady are run times of which none ends together with another for long.
func steady(i int) time.Duration { return time.Duration(200+37*(i%5)) * time.Second }

func TestLargeGangStarvesWithoutAReservation(t *testing.T) {
	s := newStream(t, 4, "", steady)
	s.feed()
	s.large("large", 3)
	if took := s.until("large", 2*time.Hour); took < 2*time.Hour {
		t.Errorf("the large gang has its place after %v: the stream does not starve it, and proves nothing", took)
	}
}

func TestLargeGangStartsWithAReservation(t *testing.T) {
	s := newStream(t, 4, "reservation: {afterSeconds: 60}", steady)
	s.feed()
	s.large("large", 3)
	limit := 60*time.Second + steady(4) + 30*time.Second
	if took := s.until("large", time.Hour); took > limit {
		t.Errorf("the large gang has its place after %v, want at most %v", took, limit)
	}
	if got, want := s.reserved("large"), "False Placed: the gang has its place"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

func TestReservationIsExplained(t *testing.T) {
	s := newStream(t, 4, "reservation: {afterSeconds: 60}", func(i int) time.Duration { return time.Duration(10+i) * time.Minute })
	s.feed()
	s.large("large", 2)
	if err := s.Advance(time.Minute + time.Second); err != nil {
		t.Fatal(err)
	}
	got := s.reserved("large")
	for _, want := range []string{
		"True WaitingForRoom: room for 2 members is reserved in ", "free when these have ended: default/small-0, default/small-1; expected by 2026-01-01T00:11:", "; kept until 2026-01-01T04:01:00Z at most",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it says %q, which lacks %q", got, want)
		}
	}
	// When small-0 has ended, its node is free, and the small gang that waits may not have it: it runs for too long.
	if err := s.Advance(9*time.Minute + 30*time.Second); err != nil {
		t.Fatal(err)
	}
	refused := meta.FindStatusCondition(s.group("small-4").Status.Conditions, v1alpha1.ConditionUnschedulable)
	if refused == nil || !strings.Contains(refused.Message, "nvidia.com/gpu in ") || !strings.Contains(refused.Message, "reserved for default/large until about 2026-01-01T00:11:") {
		t.Errorf("small-4 is told %+v", refused)
	}
}

// A gang that ends before the reserved room is complete may use it meanwhile.
func TestBackfill(t *testing.T) {
	for name, test := range map[string]struct {
		job  Job
		want bool
	}{
		"ends in time":          {Job{Annotations: map[string]string{podgroup.RunTimeAnnotation: "2m"}}, true},
		"ends too late":         {Job{Annotations: map[string]string{podgroup.RunTimeAnnotation: "20m"}}, false},
		"may run for ever":      {Job{}, false},
		"can be preempted":      {Job{Priority: -1}, true},
		"cannot be preempted":   {Job{Priority: -1, Annotations: map[string]string{podgroup.PreemptibleAnnotation: "false"}}, false},
		"is more important":     {Job{Priority: 1}, true},
		"is a single pod alike": {Job{MinMember: -1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStream(t, 2, "reservation: {afterSeconds: 60}", func(i int) time.Duration { return time.Duration(5+10*i) * time.Minute })
			for i := range 2 {
				s.Submit(Job{
					Name: fmt.Sprintf("first-%d", i), Sizes: []int64{8}, MinMember: 1, RunTime: s.runTime(i),
					Annotations: map[string]string{podgroup.RunTimeAnnotation: (s.runTime(i) + time.Second).String()},
				})
				s.settle()
			}
			s.large("large", 2)
			if err := s.Advance(6 * time.Minute); err != nil { // first-0 has ended, first-1 runs for nine more
				t.Fatal(err)
			}
			if s.placed("large") || !strings.HasPrefix(s.reserved("large"), "True ") {
				t.Fatalf("nothing is reserved: %s", s.reserved("large"))
			}
			j := test.job
			j.Name, j.Sizes = "late", []int64{8}
			if j.MinMember == 0 {
				j.MinMember = 1
			}
			s.Submit(j)
			s.settle()
			if got := s.placed("late") || s.single("late"); got != test.want {
				t.Errorf("it has its place: %v, want %v; the reservation: %s", got, test.want, s.reserved("large"))
			}
		})
	}
}

// single reports whether the only pod of a Job without a gang has its place.
func (s *stream) single(name string) bool {
	for _, pod := range s.api.pods {
		if strings.HasPrefix(pod.Name, name+"-") && pod.Spec.NodeName != "" {
			return true
		}
	}
	return false
}

// Several large gangs have their turns one after another, the more important first, and never two reservations at a time.
func TestReservationsTakeTurns(t *testing.T) {
	s := newStream(t, 4, "reservation: {afterSeconds: 60, maxSeconds: 3600}", steady)
	s.protected = true
	s.feed()
	for _, name := range []string{"a", "b", "c"} {
		s.Submit(Job{Name: name, Sizes: []int64{8, 8, 8}, MinMember: 3, RunTime: 5 * time.Minute, Priority: map[string]int32{"b": 1}[name]})
		s.settle()
	}
	var order []string
	for range 2000 {
		if err := s.Advance(5 * time.Second); err != nil {
			t.Fatal(err)
		}
		s.feed()
		reservations := 0
		for _, name := range []string{"a", "b", "c"} {
			if strings.HasPrefix(s.reserved(name), "True ") {
				reservations++
			}
			if s.placed(name) && !strings.Contains(strings.Join(order, ""), name) {
				order = append(order, name)
			}
		}
		if reservations > 1 {
			t.Fatalf("%d reservations at a time", reservations)
		}
		if len(order) == 3 {
			break
		}
	}
	if got := strings.Join(order, ""); got != "bac" {
		t.Errorf("they start in the order %q, want bac; a: %s; b: %s; c: %s", got, s.reserved("a"), s.reserved("b"), s.reserved("c"))
	}
}

// A gang that nobody's end would let in does not keep the next one from its turn.
func TestHopelessGangReservesNothing(t *testing.T) {
	s := newStream(t, 4, "reservation: {afterSeconds: 60}", steady)
	s.feed()
	s.large("hopeless", 5)
	s.large("large", 3)
	if took := s.until("large", time.Hour); took > 10*time.Minute {
		t.Errorf("the large gang has its place after %v", took)
	}
	if got := s.reserved("hopeless"); got != "absent" {
		t.Errorf("it says %q", got)
	}
}

// A reservation that does not come to an end in time goes to the next gang.
func TestReservationIsBounded(t *testing.T) {
	s := newStream(t, 2, "reservation: {afterSeconds: 60, maxSeconds: 600}", func(int) time.Duration { return 0 })
	for i := range 2 { // they run for ever
		s.Submit(Job{Name: fmt.Sprintf("first-%d", i), Sizes: []int64{8}, MinMember: 1})
		s.settle()
	}
	s.large("a", 2)
	s.large("b", 2)
	if err := s.Advance(5 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if a, b := s.reserved("a"), s.reserved("b"); !strings.HasPrefix(a, "True ") || b != "absent" {
		t.Errorf("a: %s; b: %s", a, b)
	}
	if err := s.Advance(10 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if a, b := s.reserved("a"), s.reserved("b"); !strings.HasPrefix(a, "False TimeOver: ") || !strings.HasPrefix(b, "True ") {
		t.Errorf("a: %s; b: %s", a, b)
	}
	s.Withdraw("b")
	if err := s.Advance(time.Minute); err != nil {
		t.Fatal(err)
	}
	if a := s.reserved("a"); !strings.HasPrefix(a, "True ") {
		t.Errorf("b is gone, and a: %s", a)
	}
}

// Whatever the small gangs are like, the large one starts when all has ended that ran when its room was reserved.
func TestNoStarvation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nodes := rapid.IntRange(2, 6).Draw(rt, "nodes")
		needs := rapid.IntRange(1, nodes).Draw(rt, "needs")
		longest := rapid.IntRange(30, 600).Draw(rt, "longest")
		seed := rapid.IntRange(1, 1000).Draw(rt, "seed")
		after := rapid.IntRange(1, 300).Draw(rt, "after")
		c, err := New(Options{Coscheduling: fmt.Sprintf("reservation: {afterSeconds: %d}", after)})
		if err != nil {
			rt.Fatal(err)
		}
		defer c.Close()
		s := &stream{Cluster: c, t: t, nodes: nodes, declared: rapid.Bool().Draw(rt, "declared"), runTime: func(i int) time.Duration {
			return time.Duration(10+(i*seed*7919)%longest) * time.Second
		}}
		for i := range nodes {
			c.AddNode(testNode(fmt.Sprintf("n%d", i), "b", "r", 8))
		}
		s.feed()
		s.large("large", needs)
		limit := time.Duration(after+longest+10)*time.Second + 30*time.Second
		if took := s.until("large", limit+time.Minute); took > limit {
			rt.Fatalf("the large gang waits for more than %v: %s", limit, s.reserved("large"))
		}
	})
}

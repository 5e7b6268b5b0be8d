package integration

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	"github.com/muster-sched/muster/plugins/coscheduling"
	"github.com/muster-sched/muster/podgroup"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// withReservations starts the scheduler anew with reservations for gangs that have waited for two seconds.
func (s *scene) withReservations() {
	s.Helper()
	scheduler.Stop()
	s.startWithLevels(`{"reservation": {"afterSeconds": 2}}`)
}

// runsFor makes a pod end so long after it runs.
func runsFor(seconds int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{controlplane.RunSecondsAnnotation: strconv.Itoa(seconds)}
	}
}

// stream is a stream of gangs of one pod that fills a node each.
type stream struct {
	*scene
	made int
}

// longest is how long the longest of a stream run, in seconds: they do not end together.
const longest = 7

// feed makes small gangs until three of them wait.
func (s *stream) feed() {
	s.Helper()
	pods := &corev1.PodList{}
	s.must(kube.List(s.ctx, pods, client.InNamespace(s.namespace)))
	waiting := 0
	for _, p := range pods.Items {
		if strings.HasPrefix(p.Name, "small-") && p.Spec.NodeName == "" {
			waiting++
		}
	}
	for ; waiting < 3; waiting++ {
		name := fmt.Sprintf("small-%d", s.made)
		s.group(name, 1)
		s.create(s.members(name, 1, 8, runsFor(longest-s.made%4))...)
		s.made++
	}
}

// starts feeds the stream until a gang has its places, or for so long, and reports whether it got them.
func (s *stream) starts(gang string, n int, within time.Duration) bool {
	s.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); {
		s.feed()
		if len(s.bound(s.namespace, gang)) == n {
			return true
		}
	}
	return false
}

// A stream of small gangs starves a large one for as long as it comes. With a reservation the large one starts when it has
// waited for the configured time and all have ended that ran then.
func TestALargeGangStartsInAStreamOfSmallOnes(t *testing.T) {
	s := &stream{scene: newScene(t)}
	t.Cleanup(func() { scheduler.Stop(); s.restartScheduler() })
	s.nodes(4, controlplane.NodeShape{})
	s.feed()
	s.awaitBound("small-0", 1)
	s.feed()
	s.awaitBound("small-3", 1)
	s.group("large", 3)
	s.create(s.members("large", 3, 8)...)
	const bound = (2 + longest) * time.Second
	if s.starts("large", 3, bound+5*time.Second) {
		t.Fatal("the large gang starts without a reservation: the stream does not starve it, and proves nothing")
	}

	ended := s.metric("muster_reservation_duration_seconds")
	s.withReservations()
	started := time.Now()
	if !s.starts("large", 3, bound+20*time.Second) {
		t.Fatalf("the large gang does not start: %s", s.conditions(s.namespace, "large"))
	}
	t.Logf("the large gang starts after %v; the bound is %v", time.Since(started), bound)
	if c := s.awaitCondition(s.namespace, "large", podgroups.ConditionReserved, metav1.ConditionFalse); c.Reason != coscheduling.ReasonPlaced {
		t.Errorf("Reserved: %s %s", c.Reason, c.Message)
	}
	if got := s.metric("muster_reservation_duration_seconds") - ended; got != 1 {
		t.Errorf("%v reservations ended, want 1", got)
	}
}

// While room is reserved, those may use it that are not in the way when it is complete, and those that can be made to go.
func TestWhoUsesReservedRoom(t *testing.T) {
	s := newScene(t)
	t.Cleanup(func() { scheduler.Stop(); s.restartScheduler() })
	s.withReservations()
	s.nodes(2, controlplane.NodeShape{})
	small := func(name, runTime string, change ...func(*corev1.Pod)) {
		t.Helper()
		s.group(name, 1)
		if runTime != "" {
			s.settings(name, map[string]string{podgroup.RunTimeAnnotation: runTime})
		}
		s.create(s.members(name, 1, 8, change...)...)
	}
	small("soon", "1m")
	small("later", "10m")
	s.awaitBound("soon", 1)
	s.awaitBound("later", 1)
	s.group("large", 2)
	s.create(s.members("large", 2, 8)...)
	c := s.awaitCondition(s.namespace, "large", podgroups.ConditionReserved, metav1.ConditionTrue)
	if c.Reason != coscheduling.ReasonWaitingForRoom || !strings.HasPrefix(c.Message, "room for 2 members is reserved in ") ||
		!strings.Contains(c.Message, fmt.Sprintf("free when these have ended: %s/soon, %s/later; expected by ", s.namespace, s.namespace)) {
		t.Errorf("Reserved: %s %q", c.Reason, c.Message)
	}
	if active, waiting := s.metric("muster_reservation_active"), s.metric("muster_waiting_gangs"); active != 1 || waiting != 1 {
		t.Errorf("%v reservations, %v gangs wait; want 1 of each", active, waiting)
	}

	s.finish("soon-0")
	for _, late := range []struct{ name, runTime string }{{"too-long", "20m"}, {"for-ever", ""}} {
		small(late.name, late.runTime)
		s.await(late.name+" to be told for whom the room is", func() string {
			c := s.awaitRefused(late.name)
			if !strings.Contains(c.Message, "reserved for "+s.namespace+"/large until about ") {
				return c.Message
			}
			return ""
		})
	}

	before := s.metric("muster_reservation_backfills_total")
	small("in-time", "2m")
	s.awaitBound("in-time", 1)
	s.finish("in-time-0")
	small("humble", "", s.priority(-1))
	s.awaitBound("humble", 1)
	if got := s.metric("muster_reservation_backfills_total") - before; got != 2 {
		t.Errorf("%v gangs are counted that use the room, want 2", got)
	}
	for _, late := range []string{"too-long", "for-ever", "large"} {
		if n := len(s.bound(s.namespace, late)); n != 0 {
			t.Errorf("gang %s has %d places", late, n)
		}
	}

	s.remove("too-long-0", "for-ever-0") // the next in line for a reservation
	s.finish("later-0")
	s.awaitBound("large", 2) // which preempts the one that may use its room for so long
	s.awaitStaying("humble", 0)
	s.awaitCondition(s.namespace, "large", podgroups.ConditionReserved, metav1.ConditionFalse)
	if active := s.metric("muster_reservation_active"); active != 0 {
		t.Errorf("%v reservations are left", active)
	}
}

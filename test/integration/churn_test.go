package integration

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// waitingGangs is how many gangs wait in TestWaitingGangsCostNoPlan, if set.
const waitingGangs = "MUSTER_TEST_WAITING_GANGS"

// Gangs that wait for room cost no plan, whatever single pods come and go on the nodes that they wait for. What
// they cost in time is told, not judged: the API server and the test share the machine with the scheduler.
func TestWaitingGangsCostNoPlan(t *testing.T) {
	const rounds = 9
	waiting := 200
	if n, err := strconv.Atoi(os.Getenv(waitingGangs)); err == nil {
		waiting = n
	}
	s := newScene(t)
	s.nodes(2, controlplane.NodeShape{NamePrefix: "busy", Labels: map[string]string{laneLabel: "busy"}})
	s.nodes(2, controlplane.NodeShape{NamePrefix: "free", Labels: map[string]string{laneLabel: "free"}})
	s.create(s.pods("stays", "", 2, 5, inLane("busy"))...) // each leaves 3 of a node's GPUs
	s.awaitBound("", 2)
	churned := s.churn(t)

	before := s.admissions(rounds, 0)
	var objects []client.Object
	for i := range waiting {
		name := fmt.Sprintf("waits-%d", i)
		group := &podgroups.PodGroup{}
		group.Name, group.Namespace, group.Spec.MinMember = name, s.namespace, 1
		objects = append(objects, group, s.pod(name, name, 8, inLane("busy")))
	}
	s.createAtOnce(objects...)
	refusals := func(want int) string {
		groups := &podgroups.PodGroupList{}
		s.must(kube.List(s.ctx, groups, client.InNamespace(s.namespace)))
		refused := 0
		for i := range groups.Items {
			for _, c := range groups.Items[i].Status.Conditions {
				if c.Type == podgroups.ConditionUnschedulable && c.Status == "True" {
					refused++
				}
			}
		}
		if refused < want {
			return fmt.Sprintf("%d of %d", refused, want)
		}
		return ""
	}
	for want := min(waiting, 200); want < waiting; want += 200 { // however many there are, it goes on
		s.await("they are refused", func() string { return refusals(want) })
	}
	s.await("all of them are refused", func() string { return refusals(waiting) })
	plans, came := s.metric("muster_gang_plan_duration_seconds"), churned.Load()
	after := s.admissions(rounds, rounds)
	plans, came = s.metric("muster_gang_plan_duration_seconds")-plans, churned.Load()-came
	ratio := float64(after) / float64(before)
	t.Logf("a gang that fits starts in %v beside no waiting gang and in %v beside %d: ratio %.2f; %d single pods came and went meanwhile, and %v plans were made for %d gangs",
		before, after, waiting, ratio, came, plans, rounds)
	if came == 0 {
		t.Error("nothing came and went")
	}
	if plans > 3*rounds {
		t.Errorf("%v plans were made for %d gangs that fit: the others were planned again", plans, rounds)
	}
}

// churn lets single pods come to the busy nodes and go again until the test ends, and counts them.
func (s *scene) churn(t *testing.T) *atomic.Int64 {
	ctx, cancel := context.WithCancel(s.ctx)
	var came atomic.Int64
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			pod := s.pod(fmt.Sprintf("churn-%d", i), "", 1, inLane("busy"))
			if kube.Create(ctx, pod) != nil {
				continue // the test ends
			}
			for ctx.Err() == nil && pod.Spec.NodeName == "" {
				if err := kube.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
					break
				}
			}
			if kube.Delete(ctx, &corev1.Pod{ObjectMeta: pod.ObjectMeta}, client.GracePeriodSeconds(0)) == nil {
				came.Add(1)
			}
		}
	}()
	return &came
}

// admissions starts gangs that fit, one after another, and returns the median of the times from their creation
// until they are bound.
func (s *scene) admissions(rounds, from int) time.Duration {
	s.Helper()
	var times []time.Duration
	for i := range rounds {
		name := fmt.Sprintf("fits-%d", from+i)
		pods := s.members(name, 2, 8, inLane("free"))
		started := time.Now()
		s.group(name, 2)
		s.create(pods...)
		for _, p := range pods {
			for p.Spec.NodeName == "" { // at once: an await would round the time up
				if s.must(kube.Get(s.ctx, client.ObjectKeyFromObject(p), p)); time.Since(started) > patience {
					s.Fatalf("%s is not bound", p.Name)
				}
			}
		}
		times = append(times, time.Since(started))
		for _, p := range pods {
			s.remove(p.Name)
		}
	}
	s.Log(times)
	slices.Sort(times)
	return times[len(times)/2]
}

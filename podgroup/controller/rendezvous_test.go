package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	upstream "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

var tenMinutes = Options{Rendezvous: podgroup.RendezvousPolicy{Timeout: 10 * time.Minute, Limit: 2, Backoff: time.Minute, MaxBackoff: time.Hour}}

// overBudget is how the API server refuses an eviction that a PodDisruptionBudget does not allow.
func overBudget(string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: "needs 3 healthy pods"})
	return err
}

// late returns a gang of three, bound at a time, of which one member is ready.
func late(at time.Time) []*corev1.Pod {
	pods := newPods("ns", 3, running, boundAt(at))
	ready(pods[0])
	return pods
}

// at moves the clock to so long after noon.
func (e *env) at(after time.Duration) { e.clock.SetTime(noon.Add(after)) }

func (e *env) wantGone(when string, names []string, want ...string) {
	e.t.Helper()
	if !slices.Equal(names, want) {
		e.t.Errorf("%s: %q went, want %q", when, names, want)
	}
}

func TestGangIsReleasedWhole(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 3)), withOptions(tenMinutes))
	e.setPods(slices.Concat(late(noon), newPods("ns2", 3, running, boundAt(noon)))...)
	if result := e.settle(); result.RequeueAfter != 10*time.Minute {
		t.Errorf("looked at again after %s, want the deadline", result.RequeueAfter)
	}
	e.wantEvents("bound", "Normal Scheduled 3 of 3 members scheduled")
	e.at(10*time.Minute - time.Second)
	if result := e.settle(); result.RequeueAfter != time.Second {
		t.Errorf("looked at again after %s, want the rest until the deadline", result.RequeueAfter)
	}
	e.wantGone("before the deadline", e.evicted)

	e.at(10 * time.Minute)
	e.reconcile("ns") // the record
	e.restart()
	e.reconcile("ns") // why
	e.restart()
	e.wantGone("before it is told why", e.evicted)
	e.settle()
	slices.Sort(e.evicted)
	e.wantGone("at the deadline", e.evicted, "pod-0", "pod-1", "pod-2")
	const why = "2 of 3 members not ready after 10m0s: pod-1 not ready, pod-2 not ready"
	if got := e.condition(v1alpha1.ConditionRendezvousTimedOut); got != "True MembersNotReady: "+why {
		t.Errorf("RendezvousTimedOut is %s", got)
	}
	if got := e.condition(v1alpha1.ConditionScheduled); got != "False Resting: released after 1 rendezvous that timed out; planned again from 2026-03-01T12:11:00Z on" {
		t.Errorf("Scheduled is %s", got)
	}
	if got := e.group("ns").Annotations; got[podgroup.NotBeforeAnnotation] != "2026-03-01T12:11:00Z" || got[podgroup.RendezvousAttemptsAnnotation] != "1" {
		t.Errorf("annotations are %v", got)
	}
	e.restart()
	result := e.settle()
	if result.RequeueAfter != time.Minute {
		t.Errorf("looked at again after %s, want the end of the rest", result.RequeueAfter)
	}

	// The second time it is given up.
	e.at(15 * time.Minute)
	e.setPods(late(noon.Add(15 * time.Minute))...)
	e.settle()
	e.at(25 * time.Minute)
	e.evicted = nil
	e.settle()
	slices.Sort(e.evicted)
	e.wantGone("at the second deadline", e.evicted, "pod-0", "pod-1", "pod-2")
	if group := e.group("ns"); group.Status.Phase != upstream.PodGroupFailed || group.Annotations[podgroup.GivenUpAnnotation] != "true" || group.Annotations[podgroup.NotBeforeAnnotation] != "" {
		t.Errorf("phase is %s and annotations are %v", group.Status.Phase, group.Annotations)
	}
	finished := e.condition(v1alpha1.ConditionFinished)
	if !strings.HasPrefix(finished, "True RendezvousLimit: given up after 2 rendezvous that timed out, the last with "+why) {
		t.Errorf("Finished is %s", finished)
	}
	e.setPods(newPods("ns", 3)...)
	e.settle()
	if got := e.condition(v1alpha1.ConditionFinished); got != finished {
		t.Errorf("with members that wait, Finished becomes %s", got)
	}
}

func TestReleasesAreCounted(t *testing.T) {
	for reason, pods := range map[string][]*corev1.Pod{
		v1alpha1.ReasonMembersNotReady: late(noon),
		v1alpha1.ReasonMembersMissing:  slices.Concat(late(noon)[:2], newPods("ns", 3)[2:]),
	} {
		t.Run(reason, func(t *testing.T) {
			before := map[string]float64{}
			for _, r := range []string{v1alpha1.ReasonMembersNotReady, v1alpha1.ReasonMembersMissing} {
				before[r] = testutil.ToFloat64(releases.WithLabelValues(r))
			}
			e := newEnv(t, withGroups(newGroup("ns", 3)), withOptions(tenMinutes))
			e.setPods(pods...)
			e.settle()
			e.at(10 * time.Minute)
			e.settle()
			e.restart()
			e.settle()
			for r, n := range before {
				want := 0.0
				if r == reason {
					want = 1
				}
				if got := testutil.ToFloat64(releases.WithLabelValues(r)) - n; got != want {
					t.Errorf("%v releases are counted for %s, want %v; %s", got, r, want, e.condition(v1alpha1.ConditionRendezvousTimedOut))
				}
			}
		})
	}
}

func TestEventsOfARelease(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 3)), withOptions(tenMinutes))
	const why = "2 of 3 members not ready after 10m0s: pod-1 not ready, pod-2 not ready"
	for attempt, want := range []string{
		"Warning RendezvousTimedOut " + why,
		"Warning RendezvousLimit given up after 2 rendezvous that timed out, the last with " + why + "; to try once more, remove the annotation muster.dev/given-up",
	} {
		from := time.Duration(attempt) * time.Hour
		e.at(from)
		e.setPods(late(noon.Add(from))...)
		e.settle()
		e.wantEvents("bound", "Normal Scheduled 3 of 3 members scheduled")
		e.at(from + 10*time.Minute)
		e.reconcile("ns") // records it, and is not told about yet
		e.restart()
		e.settle()
		e.restart()
		e.settle()
		e.wantEvents(fmt.Sprint("release ", attempt+1), want)
	}
}

func TestGangThatMeetsIsForgiven(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 3)), withOptions(tenMinutes))
	e.setPods(late(noon)...)
	e.settle()
	e.at(10 * time.Minute)
	e.settle()
	e.at(15 * time.Minute)
	e.setPods(newPods("ns", 3, ready, boundAt(noon.Add(14*time.Minute)))...)
	e.settle()
	if got := e.condition(v1alpha1.ConditionRendezvousTimedOut); got != "False Met: 3 of 3 members ready" {
		t.Errorf("RendezvousTimedOut is %s", got)
	}
	if got := e.condition(v1alpha1.ConditionReady); got != "True Met: 3 of 3 members ready" {
		t.Errorf("Ready is %s", got)
	}
	if got := e.group("ns").Annotations; len(got) != 0 {
		t.Errorf("annotations are %v", got)
	}
	writes := e.applied[""] + e.applied["status"]
	e.at(99 * time.Hour)
	e.restart()
	if result := e.reconcile("ns"); result.RequeueAfter != 0 || e.applied[""]+e.applied["status"] != writes {
		t.Errorf("a gang that has met is written again, or looked at again after %s", result.RequeueAfter)
	}
}

func TestUsersAnnotationsStay(t *testing.T) {
	group := newGroup("ns", 3)
	group.Annotations = map[string]string{"note": "mine", podgroup.RendezvousTimeoutAnnotation: "1m"}
	e := newEnv(t, withGroups(group), withOptions(tenMinutes))
	e.setPods(late(noon)...)
	e.settle()
	e.at(time.Minute)
	e.settle()
	if got := e.group("ns").Annotations; len(got) != 5 || got["note"] != "mine" {
		t.Errorf("annotations are %v", got)
	}
	e.at(3 * time.Minute)
	e.setPods(newPods("ns", 3, ready, boundAt(noon.Add(2*time.Minute)))...)
	e.settle()
	if got := e.group("ns").Annotations; len(got) != 2 || got["note"] != "mine" || got[podgroup.RendezvousTimeoutAnnotation] != "1m" {
		t.Errorf("annotations are %v after it met", got)
	}
}

func TestBudgetsAreRespectedForAWhile(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 3)), withOptions(tenMinutes))
	e.setPods(late(noon)...)
	e.settle()
	e.refuseEviction = func(name string) error {
		if name == "pod-1" {
			return nil
		}
		return overBudget(name)
	}
	e.at(10 * time.Minute)
	result := e.settle()
	e.wantGone("at the deadline", e.evicted, "pod-1")
	if result.RequeueAfter != budgetRetry {
		t.Errorf("looked at again after %s, want %s", result.RequeueAfter, budgetRetry)
	}
	e.at(10*time.Minute + budgetGrace - time.Second)
	e.restart()
	e.settle()
	e.wantGone("within the grace", e.deleted)
	e.at(10*time.Minute + budgetGrace)
	e.settle()
	slices.Sort(e.deleted)
	e.wantGone("after the grace", e.deleted, "pod-0", "pod-2")
	slices.Sort(e.disrupted)
	e.wantGone("with a condition that says so", e.disrupted, "pod-0 True RendezvousTimedOut", "pod-2 True RendezvousTimedOut")
}

// What several budgets for one pod look like.
func TestInternalErrorsOfEvictionsAreNoWayOut(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 1)), withOptions(tenMinutes))
	e.setPods(newPods("ns", 1, running, boundAt(noon))...)
	e.settle()
	e.refuseEviction = func(string) error { return apierrors.NewInternalError(errors.New("more than one PodDisruptionBudget")) }
	e.at(10 * time.Minute)
	e.settle()
	e.wantGone("within the grace", e.deleted)
	e.at(11 * time.Minute)
	e.settle()
	e.wantGone("after the grace", e.deleted, "pod-0")
}

func TestOtherErrorsOfEvictionsAreTriedAgain(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 3)), withOptions(tenMinutes))
	e.setPods(late(noon)...)
	e.settle()
	e.at(10 * time.Minute)
	e.reconcile("ns")
	e.reconcile("ns")
	e.refuseEviction = func(name string) error {
		switch name {
		case "pod-0":
			return apierrors.NewForbidden(corev1.Resource("pods"), name, errors.New("no right"))
		case "pod-1":
			return apierrors.NewNotFound(corev1.Resource("pods"), name)
		}
		return nil
	}
	_, err := e.reconciler.Reconcile(e.ctx, requestFor("ns"))
	if err == nil || !strings.Contains(err.Error(), "evicting member pod-0") || strings.Contains(err.Error(), "pod-1") {
		t.Errorf("error is %v, want one about pod-0 alone", err)
	}
	e.wantGone("the others", e.evicted, "pod-2")
}

// A pod of the same name that came in between is not the one that was judged.
func TestSuccessorsAreNotEvicted(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 3)), withOptions(tenMinutes))
	e.setPods(late(noon)...)
	e.settle()
	e.at(10 * time.Minute)
	e.reconcile("ns")
	e.reconcile("ns")
	e.refuseEviction = func(string) error {
		successors := newPods("ns", 3)
		for _, pod := range successors {
			pod.UID = types.UID("another-" + pod.Name)
		}
		e.setPods(successors...)
		return nil
	}
	e.reconcile("ns")
	e.wantGone("by a stale look", e.evicted)
}

func TestLargeGangsAreEvictedInBatches(t *testing.T) {
	const size = 2*evictionBatch + 1
	e := newEnv(t, withGroups(newGroup("ns", size)), withOptions(tenMinutes))
	e.setPods(newPods("ns", size, running, boundAt(noon))...)
	e.settle()
	e.at(10 * time.Minute)
	e.reconcile("ns")
	e.reconcile("ns")
	for _, want := range []int{evictionBatch, 2 * evictionBatch, size} {
		result := e.reconcile("ns")
		for e.applied["status"] > 0 && len(e.evicted) < want { // the numbers in the status come between
			e.applied["status"] = 0
			result = e.reconcile("ns")
		}
		if len(e.evicted) != want || want < size && result.RequeueAfter != time.Millisecond {
			t.Errorf("%d members are evicted and the rest looked at after %s, want %d", len(e.evicted), result.RequeueAfter, want)
		}
	}
}

// Where conditions cannot be stored the controller remembers them, and after a restart releases nothing that may have
// met.
func TestRendezvousWithoutConditionsInTheSchema(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		e := newEnv(t, withGroups(newGroup("ns", 3)), withCRD(upstreamCRD(t)), withOptions(tenMinutes))
		e.setPods(late(noon)...)
		e.settle()
		if restarted {
			e.restart()
			e.settle()
		}
		e.at(10 * time.Minute)
		e.settle()
		if want := map[bool]int{false: 3, true: 0}[restarted]; len(e.evicted) != want {
			t.Errorf("restarted %v: %d members are evicted, want %d", restarted, len(e.evicted), want)
		}
		e.events()
		if err := e.client.Delete(t.Context(), e.group("ns")); err != nil {
			t.Fatal(err)
		}
		e.reconcile("ns")
		if n := len(e.reconciler.memory.known); n != 0 {
			t.Errorf("%d groups are remembered after they are gone", n)
		}
	}
}

func TestGangThatMetIsRepairedWithoutConditionsInTheSchema(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 3)), withCRD(upstreamCRD(t)), withOptions(tenMinutes))
	e.setPods(newPods("ns", 3, ready, boundAt(noon))...)
	e.settle()
	e.at(time.Hour)
	e.setPods(late(noon)...)
	e.settle()
	e.at(2 * time.Hour)
	e.settle()
	e.wantGone("unready", e.evicted)
}

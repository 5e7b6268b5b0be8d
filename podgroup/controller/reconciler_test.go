package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	upstream "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

func TestReconcileFollowsAGang(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 2)))
	for _, step := range []struct {
		name      string
		prepare   func()
		phase     upstream.PodGroupPhase
		scheduled string
		finished  string
	}{
		{"nothing yet", func() {}, "Pending", "False WaitingForMembers: 0 of 2 members created", "absent"},
		{"created", func() { e.setPods(newPods("ns", 2)...) }, "Pending", "False Scheduling: 2 of 2 members created, 0 scheduled", "absent"},
		{"refused", func() { e.refuse("no room") }, "Pending", "False Unschedulable: no room", "absent"},
		{"running", func() { e.setPods(newPods("ns", 2, running)...) }, "Running", "True Scheduled: 2 of 2 members scheduled", "absent"},
		{"finished", func() { e.setPods(newPods("ns", 2, succeeded)...) }, "Finished",
			"True Scheduled: 2 of 2 members scheduled", "True Succeeded: 2 of 2 members succeeded"},
		{"cleaned up", func() { e.setPods() }, "Finished",
			"True Scheduled: 2 of 2 members scheduled", "True Succeeded: 2 of 2 members succeeded"},
		{"used again", func() { e.setPods(newPods("ns", 1)...) }, "Pending",
			"False WaitingForMembers: 1 of 2 members created", "False InProgress: members appeared after the group had finished"},
	} {
		step.prepare()
		e.settle()
		if got := e.group("ns").Status.Phase; got != step.phase {
			t.Errorf("%s: phase is %s, want %s", step.name, got, step.phase)
		}
		if got := e.condition(v1alpha1.ConditionScheduled); got != step.scheduled {
			t.Errorf("%s: Scheduled is %s, want %s", step.name, got, step.scheduled)
		}
		if got := e.condition(v1alpha1.ConditionFinished); got != step.finished {
			t.Errorf("%s: Finished is %s, want %s", step.name, got, step.finished)
		}
	}
	if got := e.condition(v1alpha1.ConditionUnschedulable); got != "True NotEnoughResources: no room" {
		t.Errorf("the scheduler's condition became %s", got)
	}
}

func TestReconcileCountsOnlyItsNamespace(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 2), newGroup("ns2", 2)))
	e.setPods(slices.Concat(newPods("ns", 1, running), newPods("ns2", 2, running))...)
	e.reconcile("ns")
	e.reconcile("ns2")

	if got := e.group("ns").Status; got.Phase != upstream.PodGroupUnknown || got.Running != 1 {
		t.Errorf("the group of ns is %s with %d running, want Unknown with 1", got.Phase, got.Running)
	}
	if got := e.group("ns2").Status; got.Phase != upstream.PodGroupRunning || got.Running != 2 {
		t.Errorf("the group of ns2 is %s with %d running, want Running with 2", got.Phase, got.Running)
	}
}

func TestReconcileWritesOnlyChanges(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 2)), withOptions(Options{AdoptGroups: true}))
	e.setPods(newPods("ns", 2, running, ownedBy("Job", "job"))...)
	e.settle()
	before := e.group("ns")
	if e.applied["status"] != 1 || e.applied[""] != 1 {
		t.Errorf("applied the status %d times and the owner %d times, want once each", e.applied["status"], e.applied[""])
	}
	e.clock.SetTime(noon.Add(time.Hour))
	e.reconcile("ns")
	e.restart()
	e.reconcile("ns")
	if after := e.group("ns"); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("nothing changed and still it was written:\n%s", cmp.Diff(before, after))
	}
}

func TestReconcileGivesUpFieldsThatNoLongerHold(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 1)))
	e.setPods(newPods("ns", 1, running)...)
	e.settle()
	if e.group("ns").Status.ScheduleStartTime.IsZero() {
		t.Fatal("a gang that runs has no schedule start time")
	}
	e.setPods()
	e.settle()
	if status := e.group("ns").Status; !status.ScheduleStartTime.IsZero() || status.Running != 0 {
		t.Errorf("without pods, running is %d and the schedule start time %s; want 0 and none", status.Running, status.ScheduleStartTime)
	}
}

func TestReconcileRetriesWhatSomeoneElseChanged(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 1)))
	e.beforeApply = func() {
		e.beforeApply = func() {}
		group := e.group("ns")
		group.Spec.MinMember = 3
		if err := e.client.Update(t.Context(), group); err != nil {
			t.Fatal(err)
		}
	}
	e.setPods(newPods("ns", 1, running)...)
	result := e.reconcile("ns")
	if result.RequeueAfter != conflictDelay {
		t.Errorf("requeued after %s, want %s", result.RequeueAfter, conflictDelay)
	}
	if phase := e.group("ns").Status.Phase; phase != "" {
		t.Errorf("phase %s was written though the spec had changed", phase)
	}
	e.wantEvents("after the conflict")
	e.settle()
	if got := e.condition(v1alpha1.ConditionScheduled); got != "False WaitingForMembers: 1 of 3 members created" {
		t.Errorf("Scheduled is %s", got)
	}
}

func TestReconcileNeverMakesAGroup(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 1)))
	e.beforeApply = func() {
		e.beforeApply = func() {}
		if err := e.client.Delete(t.Context(), e.group("ns")); err != nil {
			t.Fatal(err)
		}
	}
	e.setPods(newPods("ns", 1)...)
	e.reconcile("ns")
	err := e.client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "gang"}, &v1alpha1.PodGroup{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the group that was deleted is back (error %v)", err)
	}
	e.reconcile("ns")
	e.reconcile("ns2")
	e.wantEvents("for groups that do not exist")
}

func TestReconcileLeavesAGroupThatIsBeingDeleted(t *testing.T) {
	group := newGroup("ns", 1)
	group.Finalizers = []string{"foregroundDeletion"}
	e := newEnv(t, withGroups(group))
	if err := e.client.Delete(t.Context(), e.group("ns")); err != nil {
		t.Fatal(err)
	}
	e.setPods(newPods("ns", 1, running)...)
	e.reconcile("ns")
	if e.applied["status"] != 0 {
		t.Error("the status of a group that is being deleted was written")
	}
}

func TestReconcileWithoutConditionsInTheSchema(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 1), newGroup("ns2", 1)), withCRD(upstreamCRD(t)))
	var logged []string
	e.ctx = klog.NewContext(t.Context(), funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}))
	e.setPods(newPods("ns", 1, running)...)
	e.settle()
	status := e.group("ns").Status
	if status.Phase != upstream.PodGroupRunning || status.Running != 1 || len(status.Conditions) != 0 {
		t.Errorf("status is %+v, want Running with 1 and no conditions", status)
	}
	e.wantEvents("running", "Normal Scheduled 1 of 1 member scheduled")
	if e.applied["status"] != 2 {
		t.Errorf("applied %d times, want 2: with conditions, then without", e.applied["status"])
	}

	e.reconcile("ns2")
	if e.applied["status"] != 3 {
		t.Errorf("applied %d times, want 3: what the schema lacks is not tried for each group", e.applied["status"])
	}
	e.events()

	e.setPods(newPods("ns", 1, succeeded)...)
	e.settle()
	e.reconcile("ns")
	e.wantEvents("finished", "Normal Finished 1 of 1 member succeeded")

	e.clock.SetTime(noon.Add(2 * probePeriod))
	e.setPods(newPods("ns", 1)...)
	e.settle()
	if e.applied["status"] < 6 {
		t.Errorf("applied %d times: conditions were not tried again", e.applied["status"])
	}
	if len(logged) != 1 || !strings.Contains(logged[0], "has no status.conditions") {
		t.Errorf("logged %q, want one line that says so", logged)
	}
}

func TestReconcileUsesConditionsOnceTheSchemaHasThem(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 1)), withCRD(upstreamCRD(t)))
	e.setPods(newPods("ns", 1, running)...)
	e.settle()

	e.useCRD(oursCRD, e.group("ns"))
	e.reconciler.client, e.reconciler.writer.client = e.client, e.client
	e.settle()
	if got := e.condition(v1alpha1.ConditionScheduled); got != "absent" {
		t.Errorf("Scheduled is %s before it was due to be tried again", got)
	}
	e.clock.SetTime(noon.Add(probePeriod))
	e.settle()
	if got := e.condition(v1alpha1.ConditionScheduled); got != "True Scheduled: 1 of 1 member scheduled" {
		t.Errorf("Scheduled is %s", got)
	}
}

func TestReconcileAdopts(t *testing.T) {
	owner := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: kind, Name: name, UID: "uid-" + "job"}}
	}
	owned := newGroup("ns", 2)
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "uid-other"}}
	on, off := Options{AdoptGroups: true}, Options{}
	for _, test := range []struct {
		name  string
		group *v1alpha1.PodGroup
		opts  Options
		pods  []podOption // of one pod each
		want  []metav1.OwnerReference
	}{
		{"one controller", newGroup("ns", 2), on, []podOption{ownedBy("Job", "job"), ownedBy("Job", "job")}, owner("Job", "job")},
		{"not asked for", newGroup("ns", 2), off, []podOption{ownedBy("Job", "job"), ownedBy("Job", "job")}, nil},
		{"several controllers", newGroup("ns", 2), on, []podOption{ownedBy("Job", "job"), ownedBy("Job", "job-1")}, nil},
		{"one without", newGroup("ns", 2), on, []podOption{ownedBy("Job", "job"), running}, nil},
		{"no pods", newGroup("ns", 2), on, nil, nil},
		{"owned already", owned, on, []podOption{ownedBy("Job", "job")}, owned.OwnerReferences},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newEnv(t, withGroups(test.group.DeepCopy()), withOptions(test.opts))
			pods := newPods("ns", len(test.pods))
			for i, option := range test.pods {
				option(pods[i])
			}
			e.setPods(pods...)
			e.settle()
			if diff := cmp.Diff(test.want, e.group("ns").OwnerReferences); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReconcileRemovesFinishedGroups(t *testing.T) {
	ttl := Options{TTLAfterFinished: ptr.To(10 * time.Minute)}
	controlled := newGroup("ns", 1)
	controlled.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: "train", UID: "uid-train", Controller: ptr.To(true)}}
	for _, test := range []struct {
		name  string
		group *v1alpha1.PodGroup
		opts  Options
		state podOption
		wait  time.Duration
		gone  bool
	}{
		{"finished", newGroup("ns", 1), ttl, succeeded, 10 * time.Minute, true},
		{"failed", newGroup("ns", 1), ttl, failed, 10 * time.Minute, true},
		{"at once", newGroup("ns", 1), Options{TTLAfterFinished: ptr.To(time.Duration(0))}, succeeded, 0, true},
		{"too early", newGroup("ns", 1), ttl, succeeded, 10*time.Minute - time.Second, false},
		{"not asked for", newGroup("ns", 1), Options{}, succeeded, time.Hour, false},
		{"running", newGroup("ns", 1), ttl, running, time.Hour, false},
		{"its controller's to remove", controlled, ttl, succeeded, time.Hour, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newEnv(t, withGroups(test.group.DeepCopy()), withOptions(test.opts))
			e.setPods(newPods("ns", 1, test.state)...)
			e.reconcile("ns")
			e.clock.SetTime(noon.Add(test.wait))
			result := e.reconcile("ns")
			err := e.client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "gang"}, &v1alpha1.PodGroup{})
			if gone := apierrors.IsNotFound(err); gone != test.gone {
				t.Errorf("group is gone: %v, want %v (error %v)", gone, test.gone, err)
			}
			if test.name == "too early" && result.RequeueAfter != time.Second {
				t.Errorf("looked at again after %s, want 1s", result.RequeueAfter)
			}
		})
	}
}

func TestReconcileKeepsAGroupThatIsUsedAgain(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 1)), withOptions(Options{TTLAfterFinished: ptr.To(time.Minute)}))
	e.setPods(newPods("ns", 1, succeeded)...)
	e.settle()
	e.clock.SetTime(noon.Add(time.Hour))
	e.setPods(newPods("ns", 1)...)
	e.settle()
	if meta.IsStatusConditionTrue(e.group("ns").Status.Conditions, v1alpha1.ConditionFinished) {
		t.Error("a group with a waiting member is still finished")
	}
}

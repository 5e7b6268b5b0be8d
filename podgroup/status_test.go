package podgroup

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	upstream "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type groupOption func(*v1alpha1.PodGroup)

func newGroup(minMember int32, options ...groupOption) *v1alpha1.PodGroup {
	group := &v1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: "gang", Namespace: "ns", UID: "uid-gang", Generation: 3},
		Spec:       upstream.PodGroupSpec{MinMember: minMember},
	}
	for _, option := range options {
		option(group)
	}
	return group
}

func wasInPhase(phase upstream.PodGroupPhase) groupOption {
	return func(group *v1alpha1.PodGroup) { group.Status.Phase = phase }
}

func withCondition(conditionType string, status metav1.ConditionStatus, reason, message string) groupOption {
	return func(group *v1alpha1.PodGroup) {
		group.Status.Conditions = append(group.Status.Conditions, metav1.Condition{
			Type: conditionType, Status: status, Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour)), ObservedGeneration: 1,
		})
	}
}

func refused(message string) groupOption {
	return withCondition(v1alpha1.ConditionUnschedulable, metav1.ConditionTrue, "NotEnoughResources", message)
}

// pods returns n pods "name-0" and so on, each with the options.
func pods(name string, n int, options ...podOption) []*corev1.Pod {
	var result []*corev1.Pod
	for i := range n {
		result = append(result, newPod(fmt.Sprintf("%s-%d", name, i), options...))
	}
	return result
}

func TestComputeStatus(t *testing.T) {
	bound := onNode("node-1")
	for _, test := range []struct {
		name    string
		group   *v1alpha1.PodGroup
		pods    []*corev1.Pod
		phase   upstream.PodGroupPhase
		counted [3]int32 // running, succeeded, failed
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		{"no members", newGroup(8), nil,
			"Pending", [3]int32{}, "False", "WaitingForMembers", "0 of 8 members created"},
		{"some members", newGroup(8), pods("a", 3),
			"Pending", [3]int32{}, "False", "WaitingForMembers", "3 of 8 members created"},
		{"members that do not count are named", newGroup(4),
			slices.Concat(pods("a", 1), pods("b", 2, failed()), pods("c", 1, running(), deleting())),
			"Pending", [3]int32{0, 0, 2}, "False", "WaitingForMembers", "1 of 4 members created, 2 failed, 1 being deleted"},
		{"complete", newGroup(2), pods("a", 2),
			"Pending", [3]int32{}, "False", "Scheduling", "2 of 2 members created, 0 scheduled"},
		{"complete and refused", newGroup(2, refused("8 GPUs needed, 4 free")), pods("a", 2),
			"Pending", [3]int32{}, "False", "Unschedulable", "8 GPUs needed, 4 free"},
		{"a refusal that was lifted", newGroup(2, withCondition(v1alpha1.ConditionUnschedulable, metav1.ConditionFalse, "Admitted", "")), pods("a", 2),
			"Pending", [3]int32{}, "False", "Scheduling", "2 of 2 members created, 0 scheduled"},
		{"a refusal from when there were more members", newGroup(2, refused("8 GPUs needed, 4 free")), pods("a", 1),
			"Pending", [3]int32{}, "False", "WaitingForMembers", "1 of 2 members created"},
		{"gated", newGroup(2), slices.Concat(pods("a", 1), pods("b", 1, gated())),
			"Pending", [3]int32{}, "False", "SchedulingGated",
			"2 of 2 members created, 1 held by scheduling gates, the first of them pod b-0"},
		{"gated above minMember", newGroup(1), slices.Concat(pods("a", 1), pods("b", 1, gated())),
			"Pending", [3]int32{}, "False", "Scheduling", "2 members (1 needed) created, 0 scheduled"},
		{"two schedulers", newGroup(3), slices.Concat(pods("a", 2), pods("b", 1, scheduledBy("default-scheduler"))),
			"Pending", [3]int32{}, "False", "MixedSchedulers",
			"spec.schedulerName differs between the members that wait: default-scheduler (1), muster (2)"},
		{"half bound", newGroup(4), slices.Concat(pods("a", 2), pods("b", 2, bound)),
			"Scheduling", [3]int32{}, "False", "Scheduling", "4 of 4 members created, 2 scheduled"},
		{"half bound and refused", newGroup(4, refused("no room")), slices.Concat(pods("a", 2), pods("b", 2, running())),
			"Unknown", [3]int32{2, 0, 0}, "False", "Unschedulable", "no room"},
		{"bound", newGroup(2), pods("a", 2, bound),
			"Scheduling", [3]int32{}, "True", "Scheduled", "2 of 2 members scheduled"},
		{"more bound than needed", newGroup(2), pods("a", 3, bound),
			"Scheduling", [3]int32{}, "True", "Scheduled", "3 members (2 needed) scheduled"},
		{"running", newGroup(2), pods("a", 2, running()),
			"Running", [3]int32{2, 0, 0}, "True", "Scheduled", "2 of 2 members scheduled"},
		{"running after a retry", newGroup(2),
			[]*corev1.Pod{newPod("a", ofJob("job", 0), running()), newPod("b", ofJob("job", 1), failed()), newPod("c", ofJob("job", 1), running())},
			"Running", [3]int32{2, 0, 0}, "True", "Scheduled", "2 of 2 members scheduled"},
		{"running with a surplus member that failed", newGroup(2), slices.Concat(pods("a", 2, running()), pods("b", 1, failed())),
			"Running", [3]int32{2, 0, 1}, "True", "Scheduled", "2 of 2 members scheduled"},
		{"one of the running failed", newGroup(2, wasInPhase("Running")), slices.Concat(pods("a", 1, running()), pods("b", 1, failed())),
			"Unknown", [3]int32{1, 0, 1}, "False", "WaitingForMembers", "1 of 2 members created, 1 failed"},
		{"one of the running failed and its successor waits", newGroup(2, wasInPhase("Running")),
			[]*corev1.Pod{newPod("a", running()), newPod("b", ofJob("job", 1), failed()), newPod("c", ofJob("job", 1))},
			"Scheduling", [3]int32{1, 0, 0}, "False", "Scheduling", "2 of 2 members created, 1 scheduled"},
		{"all evicted", newGroup(2, wasInPhase("Running")), pods("a", 2, failed(), deleting()),
			"Pending", [3]int32{}, "False", "WaitingForMembers", "0 of 2 members created, 2 being deleted"},
		{"some succeeded, some run", newGroup(2), slices.Concat(pods("a", 1, succeeded()), pods("b", 1, running())),
			"Running", [3]int32{1, 1, 0}, "True", "Scheduled", "2 of 2 members scheduled"},
		{"enough succeeded, more to come", newGroup(1), slices.Concat(pods("a", 2, succeeded()), pods("b", 1)),
			"Running", [3]int32{0, 2, 0}, "True", "Scheduled", "2 members (1 needed) scheduled"},
		{"all succeeded", newGroup(2), pods("a", 2, succeeded()),
			"Finished", [3]int32{0, 2, 0}, "True", "Scheduled", "2 of 2 members scheduled"},
		{"enough succeeded, one failed", newGroup(2), slices.Concat(pods("a", 2, succeeded()), pods("b", 1, failed())),
			"Finished", [3]int32{0, 2, 1}, "True", "Scheduled", "2 of 2 members scheduled"},
		{"finished and cleaned up", newGroup(2, wasInPhase("Finished"),
			withCondition(v1alpha1.ConditionScheduled, metav1.ConditionTrue, "Scheduled", "2 of 2 members scheduled")), nil,
			"Finished", [3]int32{}, "True", "Scheduled", "2 of 2 members scheduled"},
		{"finished, cleaned up but for a failed try", newGroup(2, wasInPhase("Finished"),
			withCondition(v1alpha1.ConditionScheduled, metav1.ConditionTrue, "Scheduled", "2 of 2 members scheduled")), pods("a", 1, failed()),
			"Finished", [3]int32{0, 0, 1}, "True", "Scheduled", "2 of 2 members scheduled"},
		{"finished and used again", newGroup(2, wasInPhase("Finished"),
			withCondition(v1alpha1.ConditionScheduled, metav1.ConditionTrue, "Scheduled", "2 of 2 members scheduled")), pods("a", 1),
			"Pending", [3]int32{}, "False", "WaitingForMembers", "1 of 2 members created"},
		{"failed", newGroup(3), slices.Concat(pods("a", 1, succeeded()), pods("b", 2, failed())),
			"Failed", [3]int32{0, 1, 2}, "False", "MembersFailed", "2 members failed, 1 of 3 succeeded, none is left to run"},
		{"failed and cleaned up", newGroup(3, wasInPhase("Failed"),
			withCondition(v1alpha1.ConditionScheduled, metav1.ConditionFalse, "MembersFailed", "2 members failed")), nil,
			"Failed", [3]int32{}, "False", "MembersFailed", "2 members failed"},
		{"failed and retried", newGroup(1, wasInPhase("Failed")),
			[]*corev1.Pod{newPod("a", ofJob("job", 0), failed()), newPod("b", ofJob("job", 0))},
			"Pending", [3]int32{}, "False", "Scheduling", "1 of 1 member created, 0 scheduled"},
		{"no minMember", newGroup(0), pods("a", 1),
			"Pending", [3]int32{}, "False", "InvalidSpec", "spec.minMember: Invalid value: 0: must be 1 or more"},
		{"no minMember and running all the same", newGroup(-2), pods("a", 1, running()),
			"Running", [3]int32{1, 0, 0}, "False", "InvalidSpec", "spec.minMember: Invalid value: -2: must be 1 or more"},
		{"spec corrected after the end", newGroup(1, wasInPhase("Finished"),
			withCondition(v1alpha1.ConditionScheduled, metav1.ConditionFalse, "InvalidSpec", "spec.minMember: ...")), pods("a", 1, succeeded()),
			"Finished", [3]int32{0, 1, 0}, "True", "Scheduled", "1 of 1 member scheduled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := test.group.DeepCopy()
			got := ComputeStatus(test.group, membersOf(test.pods...), noon)
			if diff := cmp.Diff(before, test.group); diff != "" {
				t.Fatalf("the group was changed (-before +after):\n%s", diff)
			}
			if got.Phase != test.phase {
				t.Errorf("phase is %q, want %q", got.Phase, test.phase)
			}
			if counted := [3]int32{got.Running, got.Succeeded, got.Failed}; counted != test.counted {
				t.Errorf("running, succeeded, failed are %v, want %v", counted, test.counted)
			}
			scheduled := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionScheduled)
			if scheduled == nil {
				t.Fatal("no Scheduled condition")
			}
			if scheduled.Status != test.status || scheduled.Reason != test.reason || scheduled.Message != test.message {
				t.Errorf("Scheduled is %s %s %q, want %s %s %q",
					scheduled.Status, scheduled.Reason, scheduled.Message, test.status, test.reason, test.message)
			}
			if scheduled.ObservedGeneration != test.group.Generation {
				t.Errorf("observed generation is %d, want %d", scheduled.ObservedGeneration, test.group.Generation)
			}
		})
	}
}

func TestComputeStatusFinishedCondition(t *testing.T) {
	group := newGroup(2)
	steps := []struct {
		name    string
		pods    []*corev1.Pod
		status  metav1.ConditionStatus // empty: absent
		reason  string
		message string
	}{
		{"running", pods("a", 2, running()), "", "", ""},
		{"failed", pods("a", 2, failed()), "True", "Failed", "2 members failed, 0 of 2 succeeded, none is left to run"},
		{"cleaned up", nil, "True", "Failed", "2 members failed, 0 of 2 succeeded, none is left to run"},
		{"again", pods("b", 1), "False", "InProgress", "members appeared after the group had finished"},
		{"succeeded", pods("b", 2, succeeded()), "True", "Succeeded", "2 of 2 members succeeded"},
		{"half cleaned up", pods("b", 1, succeeded()), "True", "Succeeded", "2 of 2 members succeeded"},
	}
	for i, step := range steps {
		group.Status = ComputeStatus(group, membersOf(step.pods...), noon.Add(time.Duration(i)*time.Minute))
		finished := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionFinished)
		switch {
		case finished == nil && step.status == "":
		case finished == nil || step.status == "":
			t.Errorf("%s: Finished is %v, want %q", step.name, finished, step.status)
		case finished.Status != step.status || finished.Reason != step.reason || finished.Message != step.message:
			t.Errorf("%s: Finished is %s %s %q, want %s %s %q", step.name,
				finished.Status, finished.Reason, finished.Message, step.status, step.reason, step.message)
		}
	}
}

func TestComputeStatusKeepsTransitionTimes(t *testing.T) {
	group := newGroup(2)
	transition := func(pods []*corev1.Pod, after time.Duration) time.Time {
		group.Status = ComputeStatus(group, membersOf(pods...), noon.Add(after))
		return meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionScheduled).LastTransitionTime.Time
	}
	for _, step := range []struct {
		name  string
		pods  []*corev1.Pod
		after time.Duration
		want  time.Duration
	}{
		{"first seen", pods("a", 1), 0, 0},
		{"another reason, same status", pods("a", 2), time.Minute, 0},
		{"scheduled", pods("a", 2, running()), 2 * time.Minute, 2 * time.Minute},
		{"still scheduled", pods("a", 2, succeeded()), 3 * time.Minute, 2 * time.Minute},
		{"no longer", pods("b", 1), 4 * time.Minute, 4 * time.Minute},
	} {
		if got := transition(step.pods, step.after); !got.Equal(noon.Add(step.want)) {
			t.Errorf("%s: last transition is %s, want %s", step.name, got, noon.Add(step.want))
		}
	}
}

func TestComputeStatusScheduleStartTime(t *testing.T) {
	group := newGroup(2)
	for _, step := range []struct {
		name  string
		pods  []*corev1.Pod
		after time.Duration
		want  time.Time
	}{
		{"incomplete", pods("a", 1), 0, time.Time{}},
		{"complete", pods("a", 2), time.Minute, noon.Add(time.Minute)},
		{"running", pods("a", 2, running()), 2 * time.Minute, noon.Add(time.Minute)},
		{"lost one", pods("a", 1, running()), 3 * time.Minute, noon.Add(time.Minute)},
		{"lost all", nil, 4 * time.Minute, time.Time{}},
		{"complete again", pods("b", 2), 5 * time.Minute, noon.Add(5 * time.Minute)},
		{"finished", pods("b", 2, succeeded()), 6 * time.Minute, noon.Add(5 * time.Minute)},
		{"cleaned up", nil, 7 * time.Minute, noon.Add(5 * time.Minute)},
	} {
		group.Status = ComputeStatus(group, membersOf(step.pods...), noon.Add(step.after))
		if got := group.Status.ScheduleStartTime.Time; !got.Equal(step.want) {
			t.Errorf("%s: schedule start time is %s, want %s", step.name, got, step.want)
		}
	}
}

func TestComputeStatusOccupiedBy(t *testing.T) {
	group := newGroup(2)
	for _, step := range []struct {
		name string
		pods []*corev1.Pod
		want string
	}{
		{"no members", nil, ""},
		{"no owner", pods("a", 1), ""},
		{"one Job", []*corev1.Pod{newPod("a", ofJob("job", 0))}, "ns/job"},
		{"the first member decides", []*corev1.Pod{newPod("b", ofJob("later", 1)), newPod("z", ofJob("first", 0))}, "ns/first"},
		{"not one that is being deleted", []*corev1.Pod{newPod("b", ofJob("later", 1)), newPod("z", ofJob("first", 0), deleting())}, "ns/later"},
		{"cleaned up", nil, "ns/later"},
	} {
		group.Status = ComputeStatus(group, membersOf(step.pods...), noon)
		if got := group.Status.OccupiedBy; got != step.want {
			t.Errorf("%s: occupied by %q, want %q", step.name, got, step.want)
		}
	}
}

func TestScheduledMessageFitsTheSchema(t *testing.T) {
	got := notScheduled(v1alpha1.ReasonUnschedulable, strings.Repeat("ä", maxMessage))
	if len(got.Message) > maxMessage {
		t.Errorf("message has %d bytes, more than %d", len(got.Message), maxMessage)
	}
}

func TestComputeStatusProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		group := newGroup(int32(rapid.IntRange(-1, 6).Draw(t, "minMember")))
		group.Status.Phase = rapid.SampledFrom([]upstream.PodGroupPhase{
			"", upstream.PodGroupPending, upstream.PodGroupScheduling, upstream.PodGroupRunning,
			upstream.PodGroupUnknown, upstream.PodGroupFinished, upstream.PodGroupFailed,
		}).Draw(t, "phase")
		if rapid.Bool().Draw(t, "refused") {
			refused("no room")(group)
		}
		index := NewMembership()
		for range rapid.IntRange(0, 10).Draw(t, "pods") {
			pod := randomPod(t)
			pod.Namespace = "ns"
			inGang("gang")(pod)
			index.Update(pod)
		}
		members := index.Members(gangKey)
		counts := index.Get(gangKey)

		first := ComputeStatus(group, members, noon)

		shuffled := slices.Clone(members)
		slices.Reverse(shuffled)
		if diff := cmp.Diff(first, ComputeStatus(group, shuffled, noon)); diff != "" {
			t.Fatalf("the order of the members matters:\n%s", diff)
		}

		settled := group.DeepCopy()
		settled.Status = first
		if diff := cmp.Diff(first, ComputeStatus(settled, members, noon.Add(time.Hour))); diff != "" {
			t.Fatalf("computed again an hour later, with nothing new, it differs:\n%s", diff)
		}

		minMember := max(int(group.Spec.MinMember), 1)
		if first.Phase == upstream.PodGroupRunning && counts.Running+counts.Finished < minMember {
			t.Fatalf("Running with %+v and minMember %d", counts, minMember)
		}
		if atRest(first.Phase) && counts.Live > 0 {
			t.Fatalf("%s with %d live members", first.Phase, counts.Live)
		}
		scheduled := meta.FindStatusCondition(first.Conditions, v1alpha1.ConditionScheduled)
		if enough := counts.Bound+counts.Finished >= minMember; group.Spec.MinMember >= 1 && !atRest(first.Phase) &&
			enough != (scheduled.Status == metav1.ConditionTrue) {
			t.Fatalf("Scheduled is %s with %+v and minMember %d", scheduled.Status, counts, minMember)
		}
		if got, want := meta.FindStatusCondition(first.Conditions, v1alpha1.ConditionUnschedulable),
			meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionUnschedulable); !cmp.Equal(got, want) {
			t.Fatalf("the scheduler's condition changed from %v to %v", want, got)
		}
		finished := meta.IsStatusConditionTrue(first.Conditions, v1alpha1.ConditionFinished)
		if finished != atRest(first.Phase) {
			t.Fatalf("Finished is %v in phase %s", finished, first.Phase)
		}
	})
}

func TestRefusesConditions(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("failed to create typed patch object (ns/gang; scheduling.x-k8s.io/v1alpha1, Kind=PodGroup): .status.conditions: field not declared in schema"), true},
		{errors.New("failed to create typed patch object (ns/gang; scheduling.x-k8s.io/v1alpha1, Kind=PodGroup): .status.other: field not declared in schema"), false},
		{apierrors.NewInternalError(errors.New("etcd is away")), false},
	} {
		if got := RefusesConditions(test.err); got != test.want {
			t.Errorf("%v: got %v, want %v", test.err, got, test.want)
		}
	}
}

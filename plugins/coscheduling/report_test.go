package coscheduling

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2/ktesting"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// desk is a reporter with an API server that takes what is applied; its cache shows it only when asked to.
type desk struct {
	t *testing.T
	*reporter
	stored, cached *v1alpha1.PodGroup
	clock          *clocktesting.FakePassiveClock
	events         *events.FakeRecorder
	applied        int
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, stored: &v1alpha1.PodGroup{}, clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0)), events: events.NewFakeRecorder(100)}
	d.stored.Namespace, d.stored.Name = testKey.Namespace, testKey.Name
	d.show()
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("patch", "podgroups", func(action clienttesting.Action) (bool, runtime.Object, error) {
		d.apply(action.(clienttesting.PatchAction).GetPatch())
		return true, nil, nil
	})
	d.reporter = &reporter{
		client:   client.Resource(v1alpha1.GroupVersion.WithResource("podgroups")),
		recorder: d.events,
		group:    func(types.NamespacedName) *v1alpha1.PodGroup { return d.cached },
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
		clock:    d.clock,
		wanted:   map[types.NamespacedName]map[string]report{},
		told:     map[subject]told{},
		written:  map[subject]report{},
	}
	return d
}

// apply is server-side apply by one manager: conditions that are not in the patch any more go away.
func (d *desk) apply(patch []byte) {
	d.applied++
	var group v1alpha1.PodGroup
	if err := json.Unmarshal(patch, &group); err != nil {
		d.t.Fatal(err)
	}
	others := slices.DeleteFunc(d.stored.Status.Conditions, func(c metav1.Condition) bool { return slices.Contains(ownedConditions, c.Type) })
	d.stored = d.stored.DeepCopy()
	d.stored.Status.Conditions = append(others, group.Status.Conditions...)
}

// show makes the cache show what is stored.
func (d *desk) show() { d.cached = d.stored.DeepCopy() }

// work writes all that is to be written.
func (d *desk) work() {
	d.t.Helper()
	_, ctx := ktesting.NewTestContext(d.t)
	for d.queue.Len() > 0 {
		d.next(ctx)
	}
}

func (d *desk) want(condition, want string) {
	d.t.Helper()
	got := "absent"
	if c := meta.FindStatusCondition(d.stored.Status.Conditions, condition); c != nil {
		got = string(c.Status) + " " + c.Reason
	}
	if got != want {
		d.t.Errorf("%s is %q, want %q", condition, got, want)
	}
}

func TestReportedConditions(t *testing.T) {
	d := newDesk(t)
	d.stored.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionScheduled, Status: metav1.ConditionFalse}}
	d.show()

	d.admitted(testKey)
	d.work()
	if d.applied != 0 {
		t.Error("it is written that a gang is not refused which never was")
	}

	d.refused(testKey, ReasonUnschedulable, "too big")
	d.work()
	d.show()
	d.say(testKey, v1alpha1.ConditionReserved, report{metav1.ConditionTrue, "Waiting", "on rack a"})
	d.work()
	d.want(v1alpha1.ConditionUnschedulable, "True Unschedulable")
	d.want(v1alpha1.ConditionReserved, "True Waiting")
	d.want(v1alpha1.ConditionScheduled, "False ")

	d.admitted(testKey)
	d.say(testKey, v1alpha1.ConditionReserved, report{metav1.ConditionFalse, "Used", "the gang has its place"})
	d.work()
	d.want(v1alpha1.ConditionUnschedulable, "False Placed")
	d.want(v1alpha1.ConditionReserved, "False Used")
	if d.applied != 3 {
		t.Errorf("%d writes, want 3", d.applied)
	}
}

// What was written counts, not what the cache still shows.
func TestReportsBesideAnOldCache(t *testing.T) {
	d := newDesk(t)
	d.refused(testKey, ReasonUnschedulable, "too big")
	d.work()
	d.admitted(testKey)
	d.work()
	d.want(v1alpha1.ConditionUnschedulable, "False Placed")
	d.show()
	d.refused(testKey, ReasonUnschedulable, "too big")
	d.work()
	d.admitted(testKey)
	d.work()
	d.want(v1alpha1.ConditionUnschedulable, "False Placed")
	d.say(testKey, v1alpha1.ConditionPreempting, report{metav1.ConditionTrue, "Evicting", "x"})
	d.work()
	d.want(v1alpha1.ConditionUnschedulable, "False Placed")
}

// A scheduler that starts keeps what one before it wrote.
func TestReportsAfterARestart(t *testing.T) {
	d := newDesk(t)
	since := metav1.NewTime(time.Unix(10, 0))
	d.stored.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionUnschedulable, Status: metav1.ConditionTrue, Reason: ReasonUnschedulable, Message: "too big", LastTransitionTime: since},
	}
	d.show()
	d.say(testKey, v1alpha1.ConditionProvisioning, report{metav1.ConditionTrue, "NodesJoin", "x"})
	d.refused(testKey, ReasonUnschedulable, "bigger")
	d.work()
	d.want(v1alpha1.ConditionProvisioning, "True NodesJoin")
	if got := meta.FindStatusCondition(d.stored.Status.Conditions, v1alpha1.ConditionUnschedulable); got.Message != "bigger" || !got.LastTransitionTime.Equal(&since) {
		t.Errorf("the condition says %q since %v", got.Message, got.LastTransitionTime)
	}
}

func TestReportedEvents(t *testing.T) {
	d := newDesk(t)
	expect := func(what string, want ...string) {
		t.Helper()
		d.work()
		d.show()
		var got []string
		for len(d.events.Events) > 0 {
			got = append(got, <-d.events.Events)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: events are %q, want %q", what, got, want)
		}
	}
	d.refused(testKey, ReasonUnschedulable, "too big")
	expect("refused", "Warning Unschedulable too big")
	d.refused(testKey, ReasonUnschedulable, "much too big")
	expect("refused in other words")
	d.clock.SetTime(d.clock.Now().Add(eventInterval))
	d.refused(testKey, ReasonUnschedulable, "too big")
	expect("refused later", "Warning Unschedulable too big")
	d.say(testKey, v1alpha1.ConditionReserved, report{metav1.ConditionTrue, "Waiting", "on rack a"})
	d.admitted(testKey)
	expect("reserved and admitted", "Normal Placed the gang has its place", "Normal Waiting on rack a")
	d.refused(testKey, ReasonUnschedulable, strings.Repeat("x", noteLimit+1))
	d.work()
	if note := <-d.events.Events; len(note) > noteLimit+len("Warning Unschedulable ") {
		t.Errorf("an event of %d bytes", len(note))
	}
	d.forget(testKey)
	if len(d.wanted)+len(d.written)+len(d.told) > 0 {
		t.Error("a PodGroup that is gone is remembered")
	}
}

// What a scheduler that died said of a gang that waited is taken back when the gang has its places.
func TestConditionsOfASchedulerThatDied(t *testing.T) {
	kinds := []string{v1alpha1.ConditionUnschedulable, v1alpha1.ConditionPreempting, v1alpha1.ConditionProvisioning, v1alpha1.ConditionReserved}
	p := newPlay(t, stage.Nodes(2, 8)...)
	group := p.group(2)
	for _, kind := range kinds {
		group.Status.Conditions = append(group.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Waits", Message: "once"})
	}
	pods := p.wholeNodeMembers(2)
	p.see(pods[0], binds(pods[0], "n0"))
	if says := p.report.wanted[testKey]; len(says) > 0 {
		t.Errorf("with one of two members it says %v", says)
	}
	p.see(pods[1], binds(pods[1], "n1"))
	for _, kind := range kinds {
		if got := p.report.wanted[testKey][kind]; got.status != metav1.ConditionFalse {
			t.Errorf("%s is %+v", kind, got)
		}
	}
	// This scheduler's own words stay.
	p.report.say(testKey, v1alpha1.ConditionReserved, report{metav1.ConditionFalse, ReasonPlaced, "the gang has its place"})
	p.correct(testKey)
	if got := p.report.wanted[testKey][v1alpha1.ConditionReserved]; got.reason != ReasonPlaced {
		t.Errorf("its own words are replaced: %+v", got)
	}
}

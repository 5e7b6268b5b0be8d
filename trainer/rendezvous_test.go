package trainer

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	upstream "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/muster-sched/muster/podgroup"
	group "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// giveUp does to a PodGroup what its controller does when its rendezvous timed out too often.
func giveUp(g *group.PodGroup) {
	g.Annotations = podgroup.Record{Attempts: 5, ReleasedAt: start, GivenUp: true}.Annotations()
	g.Status.Phase = upstream.PodGroupFailed
	g.Status.Conditions = []metav1.Condition{{
		Type: group.ConditionRendezvousTimedOut, Status: metav1.ConditionTrue, Reason: group.ReasonMembersNotReady,
		Message: "1 of 4 members not ready after 30m0s: llm-node-0-3 starting", LastTransitionTime: metav1.NewTime(start),
	}}
}

func TestTrainJobFailsWithAGangThatIsGivenUp(t *testing.T) {
	c := newCluster(t, trainJob(), gangRuntime(t))
	c.settle()
	groups := &group.PodGroupList{}
	if err := c.List(t.Context(), groups); err != nil || len(groups.Items) == 0 {
		t.Fatal(groups.Items, err)
	}
	for i := range groups.Items {
		if groups.Items[i].Name == c.job().Name {
			giveUp(&groups.Items[i])
			status := groups.Items[i].Status
			c.update(&groups.Items[i], func() {})
			groups.Items[i].Status = status
			if err := c.Status().Update(t.Context(), &groups.Items[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.settle()
	c.wantCondition(v1alpha1.TrainJobFailed, metav1.ConditionTrue, v1alpha1.ReasonRendezvousTimedOut,
		"PodGroup "+c.job().Name+" was given up: its members did not meet in time, 5 times in a row; the last time, "+
			"1 of 4 members not ready after 30m0s: llm-node-0-3 starting")
	if c.jobSet() != nil || c.podGroups() != nil {
		t.Errorf("JobSet %v and PodGroups %v stay and hold places", c.jobSet(), c.podGroups())
	}
	end := c.job().Status
	c.clock.SetTime(start.Add(2 * time.Hour))
	c.writes = nil
	c.mustReconcile()
	if len(c.writes) != 0 || len(c.job().Status.Conditions) != len(end.Conditions) {
		t.Errorf("writes after the end: %v", c.writes)
	}
}

// Other changes of a PodGroup's status are many, and none of the trainer's business.
func TestTrainJobIsLookedAtWhenItsGangIsGivenUp(t *testing.T) {
	before := &group.PodGroup{}
	running, failed := before.DeepCopy(), before.DeepCopy()
	running.Status.Phase = upstream.PodGroupRunning
	giveUp(failed)
	for _, test := range []struct {
		name     string
		from, to *group.PodGroup
		want     bool
	}{
		{"runs", before, running, false},
		{"given up", running, failed, true},
		{"given up already", failed, failed.DeepCopy(), false},
		{"taken up again", failed, running, false},
	} {
		if got := givenUp.Update(event.UpdateEvent{ObjectOld: test.from, ObjectNew: test.to}); got != test.want {
			t.Errorf("%s: looked at is %v, want %v", test.name, got, test.want)
		}
	}
	if givenUp.Update(event.UpdateEvent{ObjectOld: trainJob(), ObjectNew: trainJob()}) {
		t.Error("a TrainJob passes as a PodGroup")
	}
}

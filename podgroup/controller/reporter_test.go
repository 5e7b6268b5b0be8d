package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

func TestEventsFollowTheStateOfAGang(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 3)))
	at := func(after time.Duration) { e.clock.SetTime(noon.Add(after)) }

	result := e.settle()
	if result.RequeueAfter != incompleteGrace {
		t.Errorf("looked at again after %s, want %s", result.RequeueAfter, incompleteGrace)
	}
	e.wantEvents("at first")

	at(10 * time.Second)
	e.setPods(newPods("ns", 1)...)
	if result := e.settle(); result.RequeueAfter != 20*time.Second {
		t.Errorf("looked at again after %s, want the rest of the grace, 20s", result.RequeueAfter)
	}
	e.wantEvents("within the grace")

	at(30 * time.Second)
	e.settle()
	e.wantEvents("after the grace", "Normal WaitingForMembers 1 of 3 members created")

	at(time.Minute)
	e.setPods(newPods("ns", 2)...)
	e.settle()
	e.wantEvents("when only the number changes")

	e.setPods(newPods("ns", 3)...)
	e.settle()
	e.refuse("no room")
	e.settle()
	e.refuse("still no room")
	e.settle()
	e.wantEvents("for what the scheduler reports")

	e.setPods(newPods("ns", 3, running)...)
	e.settle()
	e.wantEvents("scheduled", "Normal Scheduled 3 of 3 members scheduled")

	e.setPods(slices.Concat(newPods("ns", 2, running))...)
	e.settle()
	e.setPods(newPods("ns", 3, running)...)
	e.settle()
	e.wantEvents("whole again", "Normal Scheduled 3 of 3 members scheduled")

	e.setPods(newPods("ns", 3, failed)...)
	e.settle()
	e.reconcile("ns")
	e.wantEvents("failed", "Warning Failed 3 members failed, 0 of 3 succeeded, none is left to run")
}

func TestEventsAreNotRepeatedAfterARestart(t *testing.T) {
	for _, test := range []struct {
		name   string
		group  *v1alpha1.PodGroup
		state  podOption
		events int // before the restart
	}{
		{"scheduled", newGroup("ns", 1), running, 1},
		{"finished", newGroup("ns", 1), succeeded, 1},
		{"invalid", newGroup("ns", 0), running, 1},
	} {
		e := newEnv(t, withGroups(test.group))
		e.setPods(newPods("ns", 1, test.state)...)
		e.settle()
		if got := e.events(); len(got) != test.events {
			t.Errorf("%s: events are %q, want %d", test.name, got, test.events)
		}
		e.restart()
		e.settle()
		e.wantEvents(test.name + ", after a restart")
	}
}

func TestEventOfAnIncompleteGangSurvivesARestart(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 2)))
	e.settle()
	e.clock.SetTime(noon.Add(20 * time.Second))
	e.restart()
	if result := e.settle(); result.RequeueAfter != 10*time.Second {
		t.Errorf("looked at again after %s, want 10s", result.RequeueAfter)
	}
	e.clock.SetTime(noon.Add(incompleteGrace))
	e.settle()
	e.wantEvents("after the grace", "Normal WaitingForMembers 0 of 2 members created")
}

func TestEventsOfAGroupMadeAnew(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 1)))
	e.setPods(newPods("ns", 1, running)...)
	e.settle()
	e.wantEvents("first", "Normal Scheduled 1 of 1 member scheduled")

	if err := e.client.Delete(t.Context(), e.group("ns")); err != nil {
		t.Fatal(err)
	}
	anew := newGroup("ns", 1)
	anew.UID = "another"
	if err := e.client.Create(t.Context(), anew); err != nil {
		t.Fatal(err)
	}
	e.settle()
	e.wantEvents("made anew", "Normal Scheduled 1 of 1 member scheduled")
}

func TestReporterForgetsGroupsThatAreGone(t *testing.T) {
	e := newEnv(t, withGroups(newGroup("ns", 1)))
	e.settle()
	if err := e.client.Delete(t.Context(), e.group("ns")); err != nil {
		t.Fatal(err)
	}
	e.reconcile("ns")
	if n := len(e.reconciler.reporter.last); n != 0 {
		t.Errorf("%d groups are remembered, want none", n)
	}
}

func TestNoteFitsAnEvent(t *testing.T) {
	if got := note("short"); got != "short" {
		t.Errorf("a short message became %q", got)
	}
	long := note(strings.Repeat("ä", maxNote))
	if len(long) > maxNote || !strings.HasSuffix(long, "ä...") {
		t.Errorf("a long message became %d bytes ending in %q", len(long), long[len(long)-8:])
	}
}

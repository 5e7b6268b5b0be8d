package coscheduling

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
)

// annotate changes the annotations of the tests' PodGroup, as its informer would show it; "" takes one away.
func (p *play) annotate(keysAndValues ...string) {
	p.t.Helper()
	old := p.Coscheduling.group(testKey)
	group := old.DeepCopy()
	if group.Annotations == nil {
		group.Annotations = map[string]string{}
	}
	for i := 0; i < len(keysAndValues); i += 2 {
		if group.Annotations[keysAndValues[i]] = keysAndValues[i+1]; keysAndValues[i+1] == "" {
			delete(group.Annotations, keysAndValues[i])
		}
	}
	if err := p.groups.Update(group); err != nil {
		p.t.Fatal(err)
	}
	p.groupChanged(p.logger, old, group)
}

// in is the time so long after the clock's beginning, as annotations have it.
func (c *handClock) in(d time.Duration) string {
	return c.Now().Add(d - c.now).Format(time.RFC3339)
}

// keptOut fails unless the member is kept out of the queue with these words, "" for not at all.
func (p *play) keptOut(pod *corev1.Pod, want string) {
	p.t.Helper()
	status := p.PreEnqueue(p.ctx, pod)
	if want == "" {
		if !status.IsSuccess() {
			p.t.Errorf("%s is kept out: %v", pod.Name, status)
		}
		return
	}
	if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), want) {
		p.t.Errorf("%s: %v, want %q", pod.Name, status, want)
	}
}

func TestGangRestsUntilItsTime(t *testing.T) {
	p := newPlay(t, stage.Nodes(2, 8)...)
	p.group(2)
	p.annotate(podgroup.ReleasedAtAnnotation, p.clock.in(0), podgroup.NotBeforeAnnotation, p.clock.in(time.Minute), podgroup.RendezvousAttemptsAnnotation, "1")
	pods := p.wholeNodeMembers(2)
	p.keptOut(pods[0], `PodGroup "gang" rests until 2026-03-01T12:01:00Z because its rendezvous timed out (1 so far)`)
	p.mustBeInLine()

	// A longer rest that comes meanwhile is what counts.
	p.annotate(podgroup.NotBeforeAnnotation, p.clock.in(2*time.Minute), podgroup.RendezvousAttemptsAnnotation, "2")
	p.clock.Step(time.Minute)
	p.keptOut(pods[0], "rests until 2026-03-01T12:02:00Z because its rendezvous timed out (2 so far)")
	p.mustBeInLine()
	p.clock.Step(time.Minute)
	p.mustBeInLine("ns/m-0", "ns/m-1")
	p.keptOut(pods[0], "")
	if _, why := p.turn(pods[0]); why != "" {
		t.Error(why)
	}
}

func TestTimeOfTheUser(t *testing.T) {
	p := newPlay(t, stage.Nodes(2, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(2)
	p.annotate(podgroup.NotBeforeAnnotation, p.clock.in(time.Hour))
	p.keptOut(pods[0], "is not planned before 2026-03-01T13:00:00Z, which its annotation muster.dev/not-before says")
	p.inLine()
	p.annotate(podgroup.NotBeforeAnnotation, "")
	p.keptOut(pods[0], "")
	p.mustBeInLine("ns/m-0", "ns/m-1")
}

func TestGivenUpGangIsKeptOut(t *testing.T) {
	p := newPlay(t, stage.Nodes(2, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(2)
	p.annotate(podgroup.GivenUpAnnotation, "true", podgroup.RendezvousAttemptsAnnotation, "5")
	p.inLine()
	p.keptOut(pods[1], `PodGroup "gang" was given up, its rendezvous timed out 5 times; to try once more, remove its annotation muster.dev/given-up`)
	p.clock.Step(1000 * time.Hour)
	p.mustBeInLine()
	p.annotate(podgroup.GivenUpAnnotation, "")
	p.keptOut(pods[1], "")
	p.mustBeInLine("ns/m-0", "ns/m-1")
}

func TestAnnotationsThatCannotBeReadKeepOut(t *testing.T) {
	p := newPlay(t, stage.Nodes(2, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(2)
	p.annotate(podgroup.RendezvousTimeoutAnnotation, "soon")
	p.keptOut(pods[0], `PodGroup "gang" is invalid: annotation muster.dev/rendezvous-timeout: "soon" is not a duration`)
	if node, _ := p.turn(pods[0]); node != "" {
		t.Errorf("placed on %s", node)
	}
	p.inLine()
	p.annotate(podgroup.RendezvousTimeoutAnnotation, "10m")
	p.mustBeInLine("ns/m-0", "ns/m-1")
	p.keptOut(pods[0], "")
}

// Members that are being placed when their gang is released let go.
func TestCommitOfAGangThatIsToRest(t *testing.T) {
	released := func(p *play) {
		p.annotate(podgroup.ReleasedAtAnnotation, p.clock.in(0), podgroup.NotBeforeAnnotation, p.clock.in(time.Minute))
	}
	p := newPlay(t, stage.Nodes(2, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(2)
	p.follow(pods[0])
	released(p)
	if status := p.handle.WaitOnPermit(p.ctx, pods[0]); !status.IsRejected() || !strings.Contains(status.Message(), "rests until") {
		t.Errorf("a reserved member: %v", status)
	}
	if held := p.gangs.held(testKey, 0); len(held) != 0 {
		t.Errorf("%d seats are held", len(held))
	}

	// The same while the gang is being planned: its event comes before the commit.
	p = newPlay(t, stage.Nodes(2, 8)...)
	group := p.group(2)
	pods = p.wholeNodeMembers(2)
	released(p)
	p.begin(p.logger, testKey, testCommit(2))
	for i, s := range p.gangs.byKey[testKey].commit.inOrder() {
		s.pod = pods[i]
	}
	p.checkStillThere(p.ctx, testKey, group, p.gangs.byKey[testKey].commit.inOrder())
	if p.gangs.byKey[testKey].commit != nil {
		t.Error("the commit goes on")
	}
}

func TestMatchPolicy(t *testing.T) {
	for _, test := range []struct {
		name        string
		annotations []string
		why         string
	}{
		{"default", nil, `PodGroup "gang" needs 3 members, 1 exist`},
		{"waiting and running", []string{podgroup.MatchPolicyAnnotation, string(podgroup.WaitingAndRunning)}, `PodGroup "gang" needs 3 members, 1 exist`},
		{"never satisfied", []string{podgroup.MatchPolicyAnnotation, string(podgroup.OnceSatisfied)}, `PodGroup "gang" needs 3 members, 1 exist`},
		{"default and admitted", []string{podgroup.AdmittedAtAnnotation, "2026-03-01T11:00:00Z"}, `PodGroup "gang" needs 3 members, 1 exist`},
		{"satisfied once", []string{podgroup.MatchPolicyAnnotation, string(podgroup.OnceSatisfied), podgroup.AdmittedAtAnnotation, "2026-03-01T11:00:00Z"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPlay(t, stage.Nodes(1, 8)...)
			p.group(3)
			pods := p.wholeNodeMembers(1)
			p.annotate(test.annotations...)
			p.keptOut(pods[0], test.why)
			if node, why := p.turn(pods[0]); (node == "") != (test.why != "") {
				t.Errorf("placed on %q: %s", node, why)
			}
			if test.why == "" {
				p.mustBeInLine("ns/m-0")
				if !p.follow(pods[0]) {
					t.Error("it waits for others")
				}
			}
		})
	}
}

// Late members of a gang that was satisfied once take what room there is, each for itself.
func TestOnceSatisfiedGangFillsTheRoom(t *testing.T) {
	p := newPlay(t, stage.Nodes(2, 8)...)
	p.group(4)
	pods := p.wholeNodeMembers(3)
	p.annotate(podgroup.MatchPolicyAnnotation, string(podgroup.OnceSatisfied), podgroup.AdmittedAtAnnotation, "2026-03-01T11:00:00Z")
	placed := 0
	for _, pod := range pods {
		if node, _ := p.turn(pod); node != "" {
			placed++
		}
	}
	if placed != 2 {
		t.Errorf("%d of 3 members are placed on 2 nodes", placed)
	}
}

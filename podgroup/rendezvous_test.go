package podgroup

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// testPolicy has times that are easy to tell apart.
var testPolicy = RendezvousPolicy{Timeout: 10 * time.Minute, Limit: 3, Backoff: time.Minute, MaxBackoff: 90 * time.Second}

func annotated(key, value string) groupOption {
	return func(group *v1alpha1.PodGroup) {
		if group.Annotations == nil {
			group.Annotations = map[string]string{}
		}
		group.Annotations[key] = value
	}
}

// story is a gang over time, with a controller that looks at it.
type story struct {
	t      *testing.T
	group  *v1alpha1.PodGroup
	pods   []*corev1.Pod
	now    time.Time
	policy RendezvousPolicy
}

func newStory(t *testing.T, minMember int32, options ...groupOption) *story {
	return &story{t: t, group: newGroup(minMember, options...), now: noon, policy: testPolicy}
}

func (s *story) members() []Member { return membersOf(s.pods...) }

// look is one pass of the controller: it writes the status, and the record if the status was up to date.
func (s *story) look() Verdict {
	return look(s.group, s.members(), s.policy, s.now)
}

func look(group *v1alpha1.PodGroup, members []Member, policy RendezvousPolicy, now time.Time) Verdict {
	for {
		group.Status = ComputeStatus(group, members, now)
		verdict := policy.Judge(group, members, now)
		settings, _ := ParseSettings(group.Annotations)
		if verdict.Record.Equal(settings.Record) {
			return verdict
		}
		writeRecord(group, settings.Record, verdict.Record)
		if verdict.Release {
			group.Status = ComputeStatus(group, members, now)
			return verdict
		}
	}
}

// writeRecord does what server-side apply does with the record's annotations.
func writeRecord(group *v1alpha1.PodGroup, before, after Record) {
	for key := range before.Annotations() {
		delete(group.Annotations, key)
	}
	for key, value := range after.Annotations() {
		annotated(key, value)(group)
	}
}

// at lets time pass until so long after noon.
func (s *story) at(after time.Duration) *story {
	s.now = noon.Add(after)
	return s
}

// set replaces a pod or adds one, bound now if it has a node.
func (s *story) set(name string, options ...podOption) *story {
	pod := newPod(name, options...)
	if pod.Spec.NodeName != "" && podCondition(pod, corev1.PodScheduled) == nil {
		at := s.now
		for _, old := range s.pods {
			if scheduled := podCondition(old, corev1.PodScheduled); old.Name == name && scheduled != nil {
				at = scheduled.LastTransitionTime.Time
			}
		}
		boundAt(at)(pod)
	}
	s.pods = slices.DeleteFunc(s.pods, func(old *corev1.Pod) bool { return old.Name == name })
	s.pods = append(s.pods, pod)
	return s
}

func (s *story) remove(names ...string) *story {
	s.pods = slices.DeleteFunc(s.pods, func(pod *corev1.Pod) bool { return slices.Contains(names, pod.Name) })
	return s
}

// is fails unless the gang is in a state, with the words of its Ready condition.
func (s *story) is(when string, state RendezvousState, words string) {
	s.t.Helper()
	s.look()
	settings, _ := ParseSettings(s.group.Annotations)
	if got := rendezvousOf(s.group, settings, speakers(s.members()), s.now).State; got != state {
		s.t.Errorf("%s: the gang is %s, want %s", when, got, state)
	}
	if got := s.says(v1alpha1.ConditionReady); got != words {
		s.t.Errorf("%s: Ready is %s, want %s", when, got, words)
	}
}

func (s *story) says(conditionType string) string {
	c := meta.FindStatusCondition(s.group.Status.Conditions, conditionType)
	if c == nil {
		return "absent"
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// timedOut fails unless the gang is released at this look.
func (s *story) timedOut(when, words string) {
	s.t.Helper()
	if verdict := s.look(); !verdict.Release {
		s.t.Fatalf("%s: nothing is released; Ready is %s", when, s.says(v1alpha1.ConditionReady))
	}
	if got := s.says(v1alpha1.ConditionRendezvousTimedOut); got != words {
		s.t.Errorf("%s: RendezvousTimedOut is %s, want %s", when, got, words)
	}
}

// evicted fails unless exactly these members are to be evicted.
func (s *story) evicted(when string, names ...string) {
	s.t.Helper()
	var got []string
	for _, m := range ToEvict(s.group, s.members(), s.now) {
		got = append(got, m.Name)
	}
	if !slices.Equal(got, names) {
		s.t.Errorf("%s: %q are to be evicted, want %q", when, got, names)
	}
}

var bound = onNode("node-1")

func pulling() podOption {
	return func(pod *corev1.Pod) {
		bound(pod)
		container("node", false, waits("ImagePullBackOff"))(pod)
	}
}

func TestRendezvousOfAGangThatMeets(t *testing.T) {
	s := newStory(t, 2)
	s.is("no pods", Assembling, "False Assembling: no member has a node")
	s.set("a").set("b").is("complete", Assembling, "False Assembling: no member has a node")
	s.at(time.Minute).set("a", bound).set("b", bound).is("bound", Meeting, "Unknown Meeting: 0 of 2 members ready")
	if again := s.at(2 * time.Minute).look().Again; !again.Equal(noon.Add(11 * time.Minute)) {
		t.Errorf("looked at again at %s, want ten minutes after the commit", again)
	}
	s.set("a", ready()).set("b", pulling()).is("one is ready", Meeting, `Unknown Meeting: 1 of 2 members ready: b ImagePullBackOff in container "node"`)
	s.at(3*time.Minute).set("b", ready()).is("both are ready", Met, "True Met: 2 of 2 members ready")
	if again := s.look().Again; !again.IsZero() {
		t.Errorf("looked at again at %s though it has met", again)
	}
	if got := s.says(v1alpha1.ConditionRendezvousTimedOut); got != "absent" {
		t.Errorf("RendezvousTimedOut is %s", got)
	}
	s.set("a", succeeded()).set("b", succeeded()).is("done", Met, "True Met: 2 of 2 members ready")
	s.remove("a", "b").is("cleaned up", Assembling, "True Met: 2 of 2 members ready")
	s.set("c").is("used again", Assembling, "False Assembling: no member has a node")
}

func TestRendezvousThatTimesOut(t *testing.T) {
	s := newStory(t, 3)
	s.set("a", bound).set("b", bound).set("c", bound).look()
	s.at(5*time.Minute).set("a", ready()).set("c", pulling()).look()
	s.at(10*time.Minute-time.Second).is("just before the deadline", Meeting, `Unknown Meeting: 1 of 3 members ready: c ImagePullBackOff in container "node"`)
	s.evicted("just before the deadline")

	const why = `True MembersNotReady: 2 of 3 members not ready after 10m0s: c ImagePullBackOff in container "node", b starting`
	s.at(10*time.Minute).timedOut("at the deadline", why)
	s.evicted("at the deadline", "a", "b", "c")
	s.is("released", Resting, "False Resting: released after 1 rendezvous that timed out; planned again from 2026-03-01T12:11:00Z on")
	if got := s.says(v1alpha1.ConditionScheduled); got != "False Resting: released after 1 rendezvous that timed out; planned again from 2026-03-01T12:11:00Z on" {
		t.Errorf("Scheduled is %s", got)
	}
	s.at(10*time.Minute+time.Second).set("a", running(), deleting()).remove("b").set("b2").is("being evicted", Resting,
		"False Resting: released after 1 rendezvous that timed out; planned again from 2026-03-01T12:11:00Z on")
	s.evicted("being evicted", "c")
	if got := s.says(v1alpha1.ConditionRendezvousTimedOut); got != why {
		t.Errorf("while its members go, RendezvousTimedOut becomes %s", got)
	}
	if verdict := s.look(); verdict.Release || !verdict.Again.Equal(noon.Add(11*time.Minute)) {
		t.Errorf("verdict is %+v, want to look again when the gang may be planned", verdict)
	}

	s.at(11*time.Minute).remove("a", "c").set("a2").set("c2").is("rested", Assembling, "False Assembling: no member has a node")
	s.at(12*time.Minute).set("a2", bound).set("b2", bound).set("c2", bound).is("bound again", Meeting, "Unknown Meeting: 0 of 3 members ready")
	s.evicted("bound again")
	if again := s.look().Again; !again.Equal(noon.Add(22 * time.Minute)) {
		t.Errorf("looked at again at %s, want ten minutes after the second commit", again)
	}
	s.set("a2", ready()).set("b2", ready()).set("c2", ready()).is("met", Met, "True Met: 3 of 3 members ready")
	if got := s.says(v1alpha1.ConditionRendezvousTimedOut); got != "False Met: 3 of 3 members ready" {
		t.Errorf("RendezvousTimedOut is %s after it met", got)
	}
	if len(s.group.Annotations) != 0 {
		t.Errorf("annotations %v stay after it met", s.group.Annotations)
	}
}

func TestRendezvousLimit(t *testing.T) {
	s := newStory(t, 2)
	attempt := func(n int, from time.Duration) {
		t.Helper()
		s.at(from).set(fmt.Sprint("a", n), bound).set(fmt.Sprint("b", n), bound).look()
		s.at(from+10*time.Minute).timedOut(fmt.Sprint("attempt ", n), fmt.Sprintf("True MembersNotReady: 2 of 2 members not ready after 10m0s: a%d starting, b%d starting", n, n))
		s.evicted(fmt.Sprint("attempt ", n), fmt.Sprint("a", n), fmt.Sprint("b", n))
		s.remove(fmt.Sprint("a", n), fmt.Sprint("b", n)).look()
	}
	attempt(1, 0)
	if got := s.group.Annotations[NotBeforeAnnotation]; got != "2026-03-01T12:11:00Z" {
		t.Errorf("the first rest ends at %s", got)
	}
	attempt(2, time.Hour)
	if got := s.group.Annotations[NotBeforeAnnotation]; got != "2026-03-01T13:11:30Z" {
		t.Errorf("the second rest ends at %s, want twice as long but for the most that is allowed", got)
	}
	attempt(3, 2*time.Hour)
	s.is("given up", GivenUp, "False RendezvousLimit: given up after 3 rendezvous that timed out")
	if s.group.Status.Phase != "Failed" {
		t.Errorf("phase is %s", s.group.Status.Phase)
	}
	const finished = "True RendezvousLimit: given up after 3 rendezvous that timed out, the last with 2 of 2 members not ready after 10m0s: " +
		"a3 starting, b3 starting; to try once more, remove the annotation muster.dev/given-up"
	if got := s.says(v1alpha1.ConditionFinished); got != finished {
		t.Errorf("Finished is %s", got)
	}
	s.at(24*time.Hour).set("a4").set("b4").is("recreated", GivenUp, "False RendezvousLimit: given up after 3 rendezvous that timed out")
	if got := s.says(v1alpha1.ConditionFinished); got != finished {
		t.Errorf("recreated: Finished is %s", got)
	}
	s.set("a4", bound)
	s.evicted("bound by somebody else", "a4")

	// One more try, as the message says.
	s.set("a4")
	delete(s.group.Annotations, GivenUpAnnotation)
	s.is("taken up again", Assembling, "False Assembling: no member has a node")
	if got := s.says(v1alpha1.ConditionFinished); !strings.HasPrefix(got, "False InProgress") {
		t.Errorf("taken up again: Finished is %s", got)
	}
	s.remove("a4", "b4")
	attempt(5, 25*time.Hour)
	s.is("given up again", GivenUp, "False RendezvousLimit: given up after 4 rendezvous that timed out")
}

func TestRendezvousWithoutLimit(t *testing.T) {
	s := newStory(t, 1)
	s.policy.Limit = 0
	for n := range 20 {
		from := time.Duration(n) * time.Hour
		s.at(from).set("a", bound, boundAt(noon.Add(from))).look()
		s.at(from+10*time.Minute).timedOut(fmt.Sprint("attempt ", n), "True MembersNotReady: 1 of 1 member not ready after 10m0s: a starting")
		s.remove("a").look()
	}
	if got := s.group.Annotations[RendezvousAttemptsAnnotation]; got != "20" {
		t.Errorf("%s attempts", got)
	}
}

func TestRest(t *testing.T) {
	policy := DefaultRendezvousPolicy()
	for attempts, want := range map[int]time.Duration{1: time.Minute, 2: 2 * time.Minute, 3: 4 * time.Minute, 5: 16 * time.Minute, 6: 30 * time.Minute, 1 << 40: 30 * time.Minute} {
		if got := policy.rest(attempts); got != want {
			t.Errorf("rest after %d attempts is %s, want %s", attempts, got, want)
		}
	}
	if got := (RendezvousPolicy{}).rest(3); got != 0 {
		t.Errorf("rest without backoff is %s", got)
	}
}

// A gang that met waits for its members, whatever they do, as long as they have their places.
func TestGangThatMetIsNotReleasedForUnreadyMembers(t *testing.T) {
	s := newStory(t, 2)
	s.set("a", ready()).set("b", ready()).look()
	blip := withPodCondition(corev1.PodReady, corev1.ConditionFalse, "")
	s.at(time.Hour).set("a", running(), blip).set("b", running(), blip).is("both nodes blip", Repairing, "False Repairing: 0 of 2 members ready: a node lost, b node lost")
	for _, after := range []time.Duration{2 * time.Hour, 100 * time.Hour} {
		if verdict := s.at(after).look(); verdict.Release || !verdict.Again.IsZero() {
			t.Errorf("after %s the verdict is %+v", after, verdict)
		}
	}
	s.set("a", ready()).set("b", ready()).is("back", Met, "True Met: 2 of 2 members ready")
}

func TestGangThatMetIsRepairedAndThenReleased(t *testing.T) {
	s := newStory(t, 2)
	s.set("a", ready()).set("b", ready()).look()
	// It is unready for long before it is lost: only the loss counts.
	s.at(time.Hour).set("b", running()).look()
	s.at(2*time.Hour).remove("b").set("b2").is("lost one", Repairing, "False Repairing: 1 of 2 members ready")
	if again := s.look().Again; !again.Equal(noon.Add(2*time.Hour + 10*time.Minute)) {
		t.Errorf("looked at again at %s, want ten minutes after the loss", again)
	}
	s.at(2*time.Hour+5*time.Minute).set("b2", bound).is("replaced", Repairing, "False Repairing: 1 of 2 members ready")
	if again := s.look().Again; !again.IsZero() {
		t.Errorf("looked at again at %s though all have a place", again)
	}
	if verdict := s.at(9 * time.Hour).look(); verdict.Release {
		t.Error("released for a late replacement")
	}
	s.set("b2", ready()).is("repaired", Met, "True Met: 2 of 2 members ready")

	s.at(10 * time.Hour).remove("b2").set("b3").look()
	s.at(10*time.Hour+10*time.Minute).timedOut("not repaired", "True MembersMissing: 1 of 2 members without a place after 10m0s: b3 not scheduled")
	s.evicted("not repaired", "a")
}

func TestOnceSatisfiedGangIsNotReleasedForLostMembers(t *testing.T) {
	s := newStory(t, 2, annotated(MatchPolicyAnnotation, "once-satisfied"))
	s.set("a", bound).look()
	if s.group.Annotations[AdmittedAtAnnotation] != "" {
		t.Error("admitted with one of two members")
	}
	s.set("b", bound).look()
	if got := s.group.Annotations[AdmittedAtAnnotation]; got != "2026-03-01T12:00:00Z" {
		t.Errorf("admitted at %q", got)
	}
	s.at(time.Minute).set("a", ready()).set("b", ready()).look()
	s.at(time.Hour).remove("b").is("lost one", Repairing, "False Repairing: 1 of 2 members ready")
	if verdict := s.at(99 * time.Hour).look(); verdict.Release || verdict.Record.AdmittedAt.IsZero() {
		t.Errorf("verdict is %+v", verdict)
	}
	// Before it met, it has the same deadline as any gang, and has to have its quorum again after it.
	s.remove("a").look()
	s.at(100*time.Hour).set("c", bound).look()
	s.at(100*time.Hour+10*time.Minute).timedOut("half bound", "True MembersMissing: 1 of 2 members without a place after 10m0s: 1 not created")
	if s.group.Annotations[AdmittedAtAnnotation] != "" {
		t.Error("still admitted after its release")
	}
}

// What a scheduler that died, or a failed bind, leaves behind.
func TestHalfBoundGangIsReleased(t *testing.T) {
	s := newStory(t, 3)
	s.set("a", bound).set("b").set("c").is("one is bound", Meeting, "Unknown Meeting: 0 of 3 members ready")
	s.at(9*time.Minute).set("a", ready()).set("b", bound).look() // another one does not prolong it
	s.at(10*time.Minute).timedOut("at the deadline", "True MembersMissing: 1 of 3 members without a place after 10m0s: c not scheduled")
	s.evicted("at the deadline", "a", "b")
}

func TestReplacementsDoNotProlongTheRendezvous(t *testing.T) {
	s := newStory(t, 2)
	s.set("a0", bound).set("b", bound).look()
	for i := range 9 { // each fails after a minute, and is replaced
		s.at(time.Duration(i+1)*time.Minute).remove(fmt.Sprint("a", i)).set(fmt.Sprint("a", i+1), bound).look()
	}
	s.at(10 * time.Minute).remove("b")
	s.timedOut("at the deadline", "True MembersMissing: 1 of 2 members without a place after 10m0s: 1 not created")
}

// After all of its pods were replaced, as by a restart of its JobSet, a gang has to meet again.
func TestGangMadeAnewMeetsAnew(t *testing.T) {
	for _, seen := range []bool{true, false} {
		s := newStory(t, 2)
		s.set("a", ready()).set("b", ready()).look()
		s.at(time.Hour).remove("a", "b")
		if seen {
			s.look()
		}
		s.at(time.Hour+time.Minute).set("c", bound).set("d", bound).is("bound anew", Meeting, "Unknown Meeting: 0 of 2 members ready")
		s.at(time.Hour+11*time.Minute).timedOut("at the deadline", "True MembersNotReady: 2 of 2 members not ready after 10m0s: c starting, d starting")
	}
}

func TestTimeoutOfTheAnnotation(t *testing.T) {
	for _, test := range []struct {
		value string
		after time.Duration // 0: never
	}{{"20s", 20 * time.Second}, {"0", 0}, {"0s", 0}, {"2h", 2 * time.Hour}} {
		s := newStory(t, 1, annotated(RendezvousTimeoutAnnotation, test.value))
		s.set("a", bound).look()
		for _, after := range []time.Duration{20*time.Second - 1, 20 * time.Second, 10 * time.Minute, 2*time.Hour - 1, 2 * time.Hour} {
			want := test.after != 0 && after >= test.after
			if verdict := s.at(after).policy.Judge(s.group, s.members(), s.now); verdict.Release != want {
				t.Errorf("%q: after %s, release is %v, want %v", test.value, after, verdict.Release, want)
			}
		}
	}
}

// Nobody knows what an invalid PodGroup means, and its words stay as they are.
func TestInvalidGroupIsNotReleased(t *testing.T) {
	s := newStory(t, 1, annotated(RendezvousTimeoutAnnotation, "soon"))
	s.set("a", bound).look()
	if verdict := s.at(time.Hour).look(); verdict.Release {
		t.Error("released")
	}
	const want = `False InvalidSpec: annotation muster.dev/rendezvous-timeout: "soon" is not a duration such as "90s", "10m" or "2h30m"`
	if got := s.says(v1alpha1.ConditionScheduled); got != want {
		t.Errorf("Scheduled is %s, want %s", got, want)
	}
}

// A group that another version of the controller left behind, or that cannot keep conditions, may have met.
func TestGroupWithoutMemoryIsTakenForOneThatMet(t *testing.T) {
	for _, phase := range []string{"Scheduling", "Running", "Unknown"} {
		s := newStory(t, 2)
		s.group.Status.Phase = "Running"
		s.set("a", ready()).set("b", running(), boundAt(noon.Add(-time.Hour))).is(phase, Repairing, "False Repairing: 1 of 2 members ready")
		if verdict := s.at(time.Hour).look(); verdict.Release {
			t.Errorf("%s: released", phase)
		}
	}
	s := newStory(t, 2)
	s.set("a", bound).set("b", bound, boundAt(noon.Add(-time.Hour)))
	s.group.CreationTimestamp = metav1.NewTime(noon.Add(-time.Minute))
	s.is("a new group for old pods", Meeting, "Unknown Meeting: 0 of 2 members ready")
	if again := s.look().Again; !again.Equal(noon.Add(9 * time.Minute)) {
		t.Errorf("looked at again at %s, want ten minutes after the group was made", again)
	}
}

// A controller that was away during the whole rest finds members that it should have evicted.
func TestReleaseIsFinishedAfterTheRest(t *testing.T) {
	s := newStory(t, 2)
	s.set("a", bound).set("b", bound).look()
	s.at(10 * time.Minute)
	verdict := s.policy.Judge(s.group, s.members(), s.now)
	writeRecord(s.group, Record{}, verdict.Record)
	s.at(time.Hour).set("c", bound)
	s.evicted("after the rest", "a", "b")
	s.is("after the rest", Meeting, "Unknown Meeting: 0 of 2 members ready")
	if again := s.look().Again; !again.IsZero() && again.Before(s.now) {
		t.Errorf("looked at again at %s, in the past", again)
	}
}

// Members that become ready before they are evicted save their gang.
func TestGangThatMeetsAfterAllIsNotEvicted(t *testing.T) {
	s := newStory(t, 2)
	s.set("a", ready()).set("b", bound).look()
	s.at(10*time.Minute).timedOut("at the deadline", "True MembersNotReady: 1 of 2 members not ready after 10m0s: b starting")
	s.at(10*time.Minute+time.Second).set("b", ready())
	s.evicted("met after all")
	s.is("met after all", Met, "True Met: 2 of 2 members ready")
	if len(s.group.Annotations) != 0 {
		t.Errorf("annotations %v stay", s.group.Annotations)
	}
}

// A time that a user sets keeps the gang from being planned, and is no reason to evict it.
func TestNotBeforeOfTheUser(t *testing.T) {
	s := newStory(t, 1, annotated(NotBeforeAnnotation, "2026-03-01T13:00:00Z"))
	s.set("a", bound).is("bound all the same", Meeting, "Unknown Meeting: 0 of 1 member ready")
	s.evicted("bound all the same")
	s.set("a", ready()).look()
	if got := s.group.Annotations[NotBeforeAnnotation]; got == "" {
		t.Error("the user's time is gone")
	}
}

// A Job between two tries is no failure of the gang that rests.
func TestRestingGangIsNotFailed(t *testing.T) {
	s := newStory(t, 1)
	s.set("a", failed()).set("b", bound).look()
	s.at(10*time.Minute).timedOut("at the deadline", "True MembersNotReady: 1 of 1 member not ready after 10m0s: b starting")
	s.remove("b").is("evicted", Resting, "False Resting: released after 1 rendezvous that timed out; planned again from 2026-03-01T12:11:00Z on")
	if s.group.Status.Phase != "Pending" {
		t.Errorf("phase is %s", s.group.Status.Phase)
	}
	s.at(12 * time.Minute).look()
	if s.group.Status.Phase != "Failed" || len(s.group.Annotations) != 0 {
		t.Errorf("phase is %s and the record %v when nothing came after the rest", s.group.Status.Phase, s.group.Annotations)
	}
}

func TestReleaseNamesFewMembers(t *testing.T) {
	s := newStory(t, 100)
	for i := range 98 {
		s.set(fmt.Sprintf("worker-%02d", i), bound)
	}
	s.set("worker-77", pulling()).set("worker-98", gated()).look()
	s.at(10*time.Minute).timedOut("at the deadline",
		"True MembersMissing: 2 of 100 members without a place after 10m0s: worker-98 held by scheduling gates, 1 not created")
	s = newStory(t, 90)
	for i := range 98 {
		s.set(fmt.Sprintf("worker-%02d", i), bound)
	}
	s.set("worker-77", pulling()).set("worker-05", ready()).look()
	s.at(10*time.Minute).timedOut("at the deadline",
		`True MembersNotReady: 89 of 90 members not ready after 10m0s: worker-77 ImagePullBackOff in container "node", `+
			"worker-00 starting, worker-01 starting, worker-02 starting, worker-03 starting, 92 more")
}

package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	"github.com/muster-sched/muster/podgroup"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// impatientGroup makes a PodGroup whose members have to meet within a time.
func (s *scene) impatientGroup(name string, minMember int32, timeout string) {
	s.Helper()
	g := &podgroups.PodGroup{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: s.namespace, Annotations: map[string]string{podgroup.RendezvousTimeoutAnnotation: timeout}}}
	g.Spec.MinMember = minMember
	s.must(kube.Create(s.ctx, g))
}

// neverReady keeps a pod from running once it is bound.
func neverReady(p *corev1.Pod) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[controlplane.ReadySecondsAnnotation] = "100000"
}

// gangIsReleased: a gang with a member that never becomes ready gives its places back.
func (s *scene) gangIsReleased(as func(*corev1.Pod)) {
	s.Helper()
	s.impatientGroup("late", 2, "2s")
	s.create(s.pod("late-0", "late", 8, as), s.pod("late-1", "late", 8, as, neverReady))
	s.awaitCondition(s.namespace, "late", podgroups.ConditionRendezvousTimedOut, metav1.ConditionTrue)
	s.awaitBound("late", 0)
}

// From the commit to the end of a gang whose members do not meet, and of one whose members do at last.
func TestRendezvous(t *testing.T) {
	scheduler.Stop()
	t.Cleanup(func() {
		var err error
		if scheduler, err = startScheduler(context.Background()); err != nil {
			t.Error(err)
		}
	})
	hasty, err := startSchedulerWith(t.Context(), nil, "--rendezvous-backoff=1s", "--rendezvous-max-backoff=1s", "--rendezvous-limit=2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hasty.Stop)

	t.Run("released, and meets at last", func(t *testing.T) {
		s := newScene(t)
		s.nodes(2, controlplane.NodeShape{})
		s.impatientGroup("late", 2, "3s")
		s.create(s.pod("late-0", "late", 8), s.pod("late-1", "late", 8, neverReady))
		s.awaitBound("late", 2)
		s.awaitCondition(s.namespace, "late", podgroups.ConditionReady, metav1.ConditionUnknown)
		s.group("other", 2)
		s.create(s.members("other", 2, 8)...)
		s.awaitRefused("other")

		why := s.awaitCondition(s.namespace, "late", podgroups.ConditionRendezvousTimedOut, metav1.ConditionTrue)
		if want := "1 of 2 members not ready after 3s: late-1 starting"; why.Message != want {
			t.Errorf("RendezvousTimedOut: %q, want %q", why.Message, want)
		}
		s.awaitBound("late", 0)
		s.awaitBound("other", 2)
		if got := s.podGroup("late").Annotations; got[podgroup.RendezvousAttemptsAnnotation] != "1" || got[podgroup.NotBeforeAnnotation] == "" {
			t.Errorf("annotations of the gang that was released: %v", got)
		}
		s.remove("other-0", "other-1")
		s.create(s.members("late", 2, 8)...)
		s.awaitCondition(s.namespace, "late", podgroups.ConditionReady, metav1.ConditionTrue)
		s.awaitCondition(s.namespace, "late", podgroups.ConditionRendezvousTimedOut, metav1.ConditionFalse)
		s.await("the record of the release to go", func() string {
			if got := s.podGroup("late").Annotations; len(got) != 1 {
				return fmt.Sprint(got)
			}
			return ""
		})

		// It met: a member that is not ready any more changes nothing, and a gang that is released meanwhile
		// shows that time passed.
		s.nodes(1, controlplane.NodeShape{})
		unready := `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`
		s.must(kube.Status().Patch(s.ctx, s.pod("late-1", "", 0), client.RawPatch(types.StrategicMergePatchType, []byte(unready))))
		s.awaitCondition(s.namespace, "late", podgroups.ConditionReady, metav1.ConditionFalse)
		s.impatientGroup("witness", 1, "5s")
		s.create(s.pod("witness-0", "witness", 8, neverReady))
		s.awaitCondition(s.namespace, "witness", podgroups.ConditionRendezvousTimedOut, metav1.ConditionTrue)
		if n := len(s.bound(s.namespace, "late")); n != 2 {
			t.Errorf("%d members bound of a gang that met and has a member that is not ready: %s", n, s.conditions(s.namespace, "late"))
		}
		s.must(kube.Status().Patch(s.ctx, s.pod("late-1", "", 0), client.RawPatch(types.StrategicMergePatchType, []byte(strings.ReplaceAll(unready, "False", "True")))))
		s.awaitCondition(s.namespace, "late", podgroups.ConditionReady, metav1.ConditionTrue)
	})

	// What a scheduler leaves behind that died between two binds, when there is no room for the rest.
	t.Run("half bound", func(t *testing.T) {
		s := newScene(t)
		nodes := s.nodes(2, controlplane.NodeShape{})
		s.impatientGroup("half", 3, "3s")
		s.create(s.members("half", 3, 8)...)
		s.awaitRefused("half")
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "half-0", Namespace: s.namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: nodes[0]}}
		s.must(kube.SubResource("binding").Create(s.ctx, s.pod("half-0", "", 0), binding))
		why := s.awaitCondition(s.namespace, "half", podgroups.ConditionRendezvousTimedOut, metav1.ConditionTrue)
		if why.Reason != podgroups.ReasonMembersMissing || !strings.HasPrefix(why.Message, "2 of 3 members without a place") {
			t.Errorf("RendezvousTimedOut: %s %q", why.Reason, why.Message)
		}
		s.awaitBound("half", 0)
		s.create(s.singles(2, 8)...)
		s.awaitBound("", 2)
	})

	t.Run("given up", func(t *testing.T) {
		s := newScene(t)
		s.nodes(2, controlplane.NodeShape{})
		ref := s.runtimeOf("late", func(spec *trainer.TrainingRuntimeSpec) {
			gangPolicy(spec)
			never := map[string]string{controlplane.ReadySecondsAnnotation: "100000"}
			spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Annotations = never
		})
		job := s.trainJob("llm", ref.Name, 2, 8)
		job.Spec.RuntimeRef = ref
		job.Annotations = map[string]string{podgroup.RendezvousTimeoutAnnotation: "2s"}
		s.must(kube.Create(s.ctx, job))
		s.await("the first release", func() string {
			g := &podgroups.PodGroup{}
			if err := kube.Get(s.ctx, s.key("llm"), g); err != nil {
				return err.Error()
			}
			if g.Annotations[podgroup.RendezvousAttemptsAnnotation] == "" {
				return s.conditions(s.namespace, "llm")
			}
			return ""
		})
		s.awaitTrainJob("llm", trainer.TrainJobFailed)
		s.must(kube.Get(s.ctx, s.key("llm"), job))
		failed := meta.FindStatusCondition(job.Status.Conditions, trainer.TrainJobFailed)
		if failed.Reason != trainer.ReasonRendezvousTimedOut || !strings.Contains(failed.Message, "2 times in a row; the last time, 2 of 2 members not ready after ") {
			t.Errorf("%s: %s", failed.Reason, failed.Message)
		}
		s.awaitTrainPods("llm", 0, false)
	})
}

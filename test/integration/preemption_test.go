package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	"github.com/muster-sched/muster/podgroup"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// holdOn is a finalizer that keeps a deleted pod on its node.
const holdOn = "example.com/hold-on"

// priority returns what gives a pod a priority.
func (s *scene) priority(value int32) func(*corev1.Pod) {
	s.Helper()
	return s.priorityWith(value, corev1.PreemptLowerPriority)
}

func (s *scene) priorityWith(value int32, policy corev1.PreemptionPolicy) func(*corev1.Pod) {
	s.Helper()
	class := &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d-%s", s.namespace, value, strings.ToLower(string(policy)))},
		Value:      value, PreemptionPolicy: &policy,
	}
	s.createClass(class)
	return func(p *corev1.Pod) { p.Spec.PriorityClassName = class.Name }
}

// createClass makes a PriorityClass, and returns when the API server admits what names it: it has them in a cache.
func (s *scene) createClass(class *schedulingv1.PriorityClass) {
	s.Helper()
	s.must(client.IgnoreAlreadyExists(kube.Create(s.ctx, class)))
	s.Cleanup(func() { s.must(client.IgnoreNotFound(kube.Delete(context.Background(), class))) })
	s.await("the PriorityClass to be known", func() string {
		pod := s.pod("class", "", 0)
		pod.Spec.PriorityClassName = class.Name
		if err := kube.Create(s.ctx, pod, client.DryRunAll); err != nil {
			return err.Error()
		}
		return ""
	})
}

// staying returns, sorted, the pods of a name that are bound and not on their way out.
func (s *scene) staying(name string) []string {
	s.Helper()
	pods := &corev1.PodList{}
	s.must(kube.List(s.ctx, pods, client.InNamespace(s.namespace)))
	var names []string
	for _, p := range pods.Items {
		if strings.HasPrefix(p.Name, name+"-") && p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (s *scene) awaitStaying(name string, n int) {
	s.Helper()
	s.await("pods "+name, func() string {
		if got := s.staying(name); len(got) != n {
			return fmt.Sprintf("%d stay, want %d: %v", len(got), n, got)
		}
		return ""
	})
}

// mustStay checks who of a name is still there.
func (s *scene) mustStay(name string, n int) {
	s.Helper()
	if got := s.staying(name); len(got) != n {
		s.Fatalf("%d of %s stay, want %d: %v", len(got), name, n, got)
	}
}

func (s *scene) settings(group string, annotations map[string]string) {
	s.Helper()
	s.patchAnnotations(&podgroups.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: group, Namespace: s.namespace}}, annotations)
}

func TestPreemptionTakesNoMoreThanItNeeds(t *testing.T) {
	s := newScene(t)
	s.nodes(10, controlplane.NodeShape{})
	high := s.priority(1000)
	s.create(s.singles(10, 8)...)
	s.awaitStaying("single", 10)

	// Ten victims where one suffices.
	s.group("one", 1)
	s.create(s.members("one", 1, 8, high)...)
	s.awaitBound("one", 1)
	s.mustStay("single", 9)

	// One free node, and one that is freed.
	s.nodes(1, controlplane.NodeShape{})
	s.group("two", 2)
	s.create(s.members("two", 2, 8, high)...)
	s.awaitBound("two", 2)
	s.mustStay("single", 8)

	// Nothing for a gang that could not run even then.
	s.group("many", 12)
	s.create(s.members("many", 12, 8, high)...)
	s.awaitRefused("many")
	// Nor for one that must not, or against those who must not go.
	s.group("never", 1)
	s.create(s.members("never", 1, 8, s.priorityWith(1000, corev1.PreemptNever))...)
	if c := s.awaitRefused("never"); !strings.Contains(c.Message, "preemptionPolicy Never") || !strings.Contains(c.Message, "; it would fit by preempting pod ") {
		t.Errorf("why: %s", c.Message)
	}
	s.mustStay("single", 8)
}

// Neither of two gangs that want the same nodes makes room for itself again and again: only the more important one does,
// once, and of two that are as important neither.
func TestGangsDoNotPreemptInACircle(t *testing.T) {
	s := newScene(t)
	s.nodes(2, controlplane.NodeShape{})
	high, low := s.priority(1000), s.priority(500)
	victims := s.metric("muster_gang_preemption_victims")
	s.group("low", 2)
	s.create(s.members("low", 2, 8, low)...)
	s.awaitBound("low", 2)
	s.group("high", 2)
	s.create(s.members("high", 2, 8, high)...)
	s.awaitBound("high", 2)
	s.awaitStaying("low", 0)

	t.Log("the other way round nobody goes: its controller makes the victim again, and another gang is as important")
	for name, priority := range map[string]func(*corev1.Pod){"low": low, "equal": high} {
		if name != "low" {
			s.group(name, 2)
		}
		s.create(s.members(name, 2, 8, priority)...)
		c := s.awaitRefused(name)
		if strings.Contains(c.Message, "preempting") {
			t.Errorf("gang %s is told %q", name, c.Message)
		}
	}
	// Turns of each of them that nothing helps.
	for i := range 3 {
		for _, name := range []string{"low-0", "equal-0"} {
			s.patch(s.pod(name, "", 0), map[string]any{"labels": map[string]any{"example.com/again": fmt.Sprint(i)}})
		}
	}
	s.remove("high-1")
	s.create(s.pod("high-2", "high", 8, high)) // its place is kept
	s.awaitBound("high", 2)
	if got := s.metric("muster_gang_preemption_victims") - victims; got != 1 {
		t.Errorf("%v preemptions, want 1", got)
	}
	for _, name := range []string{"low", "equal"} {
		if n := len(s.bound(s.namespace, name)); n != 0 {
			t.Errorf("gang %s has %d places", name, n)
		}
	}
}

func TestPreemptionSparesWhoMustNotGo(t *testing.T) {
	s := newScene(t)
	s.nodes(3, controlplane.NodeShape{})
	high, middle := s.priority(1000), s.priority(500)
	s.group("fixed", 1)
	s.settings("fixed", map[string]string{podgroup.PreemptibleAnnotation: "false"})
	s.create(s.members("fixed", 1, 8)...)
	s.create(s.pod("web-0", "", 8, func(p *corev1.Pod) { p.Labels = map[string]string{"tier": "web"} }))
	s.create(s.pod("middle-0", "", 8, middle))
	s.awaitBound("fixed", 1)
	s.awaitStaying("web", 1)
	s.awaitStaying("middle", 1)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: s.namespace}}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}
	budget.Spec.MinAvailable = ptr.To(intstr.FromInt32(1))
	s.must(kube.Create(s.ctx, budget))
	s.await("budget", func() string {
		s.must(kube.Get(s.ctx, s.key("web"), budget))
		if budget.Status.ObservedGeneration == 0 || budget.Status.ExpectedPods != 1 {
			return fmt.Sprintf("%+v", budget.Status)
		}
		return ""
	})

	// The budget is respected although the pod in it has the lower priority.
	s.group("first", 1)
	s.create(s.members("first", 1, 8, high)...)
	s.awaitBound("first", 1)
	s.mustStay("middle", 0)
	s.mustStay("web", 1)
	// It is not when nothing else works; and the last one must not be preempted at all.
	s.group("second", 1)
	s.create(s.members("second", 1, 8, high)...)
	s.awaitBound("second", 1)
	s.mustStay("web", 0)
	s.group("third", 1)
	s.create(s.members("third", 1, 8, high)...)
	s.awaitRefused("third")
	s.awaitBound("fixed", 1)
}

func TestPreemptionOfAGang(t *testing.T) {
	s := newScene(t)
	s.withLevels()
	for _, rack := range []string{"a", "b"} {
		s.nodes(2, controlplane.NodeShape{Labels: map[string]string{zoneLevel: "z", rackLevel: rack}})
	}
	high := s.priority(1000)
	// An elastic gang that fills all, of which half can go.
	s.group("low", 2)
	s.create(s.members("low", 4, 8)...)
	s.awaitBound("low", 4)
	s.group("spread", 2)
	s.create(s.members("spread", 2, 8, high)...)
	s.awaitBound("spread", 2)
	if got := s.staying("low"); !slices.Equal(got, []string{"low-0", "low-1"}) {
		t.Fatalf("staying: %v", got)
	}
	// Neither rack is free, and what is left of the gang goes whole for one.
	s.remove("spread-0", "spread-1")
	s.group("base", 2)
	s.create(s.members("base", 2, 8)...)
	s.awaitBound("base", 2)
	s.group("rack", 2)
	s.settings("rack", map[string]string{podgroup.RequiredTopologyAnnotation: rackLevel})
	s.create(s.members("rack", 2, 8, high)...)
	s.awaitBound("rack", 2)
	if low, base := len(s.staying("low")), len(s.staying("base")); low+base != 2 || low == 1 {
		t.Errorf("%d of one gang stay, %d of the other", low, base)
	}

	// Whoever was preempted does not preempt back, however often it is made again.
	victim := "low"
	if len(s.staying("low")) == 2 {
		victim = "base"
	}
	s.await("victims", func() string {
		if n := len(s.bound(s.namespace, victim)); n > 0 {
			return fmt.Sprintf("%d are there", n)
		}
		return ""
	})
	again := s.members(victim, 2, 8)
	s.create(again...)
	s.awaitRefused(victim)
	s.awaitBound("rack", 2)
}

func TestVictimsThatTakeLong(t *testing.T) {
	s := newScene(t)
	s.nodes(4, controlplane.NodeShape{})
	high := s.priority(1000)
	s.create(s.singles(4, 8, func(p *corev1.Pod) { p.Finalizers = []string{holdOn} })...)
	s.awaitStaying("single", 4)
	s.group("gang", 2)
	s.create(s.members("gang", 2, 8, high)...)
	c := s.awaitCondition(s.namespace, "gang", podgroups.ConditionPreempting, metav1.ConditionTrue)
	if !strings.Contains(c.Message, "preempting pod "+s.namespace+"/single-") {
		t.Errorf("message: %s", c.Message)
	}
	s.awaitStaying("single", 2)
	s.await("nominations", func() string {
		for i := range 2 {
			pod := &corev1.Pod{}
			s.must(kube.Get(s.ctx, s.key(fmt.Sprintf("gang-%d", i)), pod))
			if pod.Status.NominatedNodeName == "" {
				return pod.Name + " has none"
			}
		}
		return ""
	})
	// A newcomer of the same priority gets neither the places nor other victims' ones before the gang.
	scheduler.Stop()
	s.restartScheduler()
	s.group("late", 3)
	s.create(s.members("late", 3, 8, high)...)
	s.awaitRefused("late")
	s.mustStay("single", 2)

	pods := &corev1.PodList{}
	s.must(kube.List(s.ctx, pods, client.InNamespace(s.namespace)))
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.DeletionTimestamp != nil {
			target := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
			if target < 0 || pod.Status.Conditions[target].Reason != corev1.PodReasonPreemptionByScheduler {
				t.Errorf("conditions of %s: %+v", pod.Name, pod.Status.Conditions)
			}
			s.must(client.IgnoreNotFound(kube.Patch(s.ctx, pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
		}
	}
	s.awaitBound("gang", 2)
	s.mustStay("single", 2)
	s.awaitCondition(s.namespace, "gang", podgroups.ConditionPreempting, metav1.ConditionFalse)
}

// preemptingGroup makes a native pod group with a priority, and its members.
func (s *scene) preemptingGroup(name string, n int, as func(*corev1.Pod)) {
	s.Helper()
	class := &corev1.Pod{}
	as(class)
	s.nativeGroup(name, int32(n), func(g *schedulingv1beta1.PodGroup) { g.Spec.PriorityClassName = class.Spec.PriorityClassName })
	s.create(s.nativeMembers(name, n, 8, as)...)
}

func TestInNativeModePreemptionTakesNoMoreThanItNeeds(t *testing.T) {
	s := newNativeScene(t)
	s.nodes(5, controlplane.NodeShape{})
	s.create(s.singles(4, 8)...)
	s.awaitStaying("single", 4)
	s.preemptingGroup("two", 2, s.priority(1000))
	s.awaitNativeBound("two", 2)
	s.mustStay("single", 3)

	s.preemptingGroup("many", 4, s.priority(1000))
	s.awaitNativeRefusal("many", "would not make room")
	s.preemptingGroup("never", 1, s.priorityWith(1000, corev1.PreemptNever))
	s.awaitNativeRefusal("never", "; it would fit by preempting pod ")
	s.mustStay("single", 3)
}

func TestInNativeModeGangsArePreemptedWhole(t *testing.T) {
	s := newNativeScene(t)
	s.nodes(4, controlplane.NodeShape{})
	s.group("low", 2)
	s.create(s.members("low", 4, 8)...)
	s.awaitBound("low", 4)
	s.preemptingGroup("first", 2, s.priority(1000))
	s.awaitNativeBound("first", 2)
	if got := s.staying("low"); !slices.Equal(got, []string{"low-0", "low-1"}) {
		t.Fatalf("staying: %v", got)
	}
	s.preemptingGroup("second", 1, s.priority(1000))
	s.awaitNativeBound("second", 1)
	s.mustStay("low", 0)
	// A native group goes whole as well.
	s.preemptingGroup("third", 1, s.priority(2000))
	s.awaitNativeBound("third", 1)
	if first, second := len(s.staying("first")), len(s.staying("second")); first != 2 || second != 1 {
		t.Errorf("%d and %d stay beside a free node", first, second)
	}
	s.preemptingGroup("fourth", 2, s.priority(2000))
	s.awaitNativeBound("fourth", 2)
	if first := len(s.staying("first")); first == 1 {
		t.Error("half a group stays")
	}
}

func TestInNativeModeVictimsThatTakeLong(t *testing.T) {
	s := newNativeScene(t)
	s.nodes(4, controlplane.NodeShape{})
	s.create(s.singles(4, 8, func(p *corev1.Pod) { p.Finalizers = []string{holdOn} })...)
	s.awaitStaying("single", 4)
	s.preemptingGroup("gang", 2, s.priority(1000))
	s.awaitStaying("single", 2)
	scheduler.Stop()
	s.restartScheduler()
	s.awaitNativeRefusal("gang", "waiting for 2 pods on their way out")
	s.mustStay("single", 2)
	pods := &corev1.PodList{}
	s.must(kube.List(s.ctx, pods, client.InNamespace(s.namespace)))
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.DeletionTimestamp != nil {
			s.must(client.IgnoreNotFound(kube.Patch(s.ctx, pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
		}
	}
	s.awaitNativeBound("gang", 2)
	s.mustStay("single", 2)
}

package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	upstream "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// awaitTurnedAway waits until the scheduler has tried a pod since it was created and found no place.
func (s *scene) awaitTurnedAway(names ...string) {
	s.Helper()
	for _, name := range names {
		s.await(name+" is turned away", func() string {
			pod := s.get(name)
			if pod.Spec.NodeName != "" {
				s.Fatalf("%s is bound to %s", name, pod.Spec.NodeName)
			}
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
					return ""
				}
			}
			return "not tried yet"
		})
	}
}

func (s *scene) get(name string) *corev1.Pod {
	s.Helper()
	pod := &corev1.Pod{}
	s.must(kube.Get(s.ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, pod))
	return pod
}

// awaitOn waits until a pod is bound, and says where.
func (s *scene) awaitOn(name string) (node string) {
	s.Helper()
	s.await(name+" is bound", func() string {
		if node = s.get(name).Spec.NodeName; node == "" {
			return s.conditions(s.namespace, "gang")
		}
		return ""
	})
	return node
}

// awaitLost waits until the scheduler keeps room for one more member.
func (s *scene) awaitLost(how string, before float64) {
	s.Helper()
	s.await("a member was lost ("+how+")", func() string {
		if s.metric("muster_gang_members_lost_total") <= before {
			return "not yet"
		}
		return ""
	})
}

// However a gang loses a member, nobody takes its place before the replacement: neither those who waited for room
// already, nor those who come when it is free.
func TestRoomOfALostMemberIsForItsReplacement(t *testing.T) {
	s := newScene(t)
	s.nodes(3, controlplane.NodeShape{})
	s.group("gang", 3)
	s.create(s.members("gang", 3, 8)...)
	s.awaitBound("gang", 3)
	s.group("waits", 1)
	s.create(s.pod("waits-0", "waits", 8), s.pod("waits-single", "", 8))
	s.awaitTurnedAway("waits-0", "waits-single")

	next := 3
	for _, way := range []struct {
		name string
		lose func(pod string)
	}{
		{"deleted", func(pod string) { s.remove(pod) }},
		{"evicted, with time to end", func(pod string) { s.must(kube.Delete(s.ctx, s.get(pod))) }},
		{"failed", func(pod string) { s.setPhase(pod, corev1.PodFailed) }},
		{"rejected by its kubelet", func(pod string) {
			p := s.get(pod)
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu"}
			s.must(kube.Status().Update(s.ctx, p))
		}},
	} {
		lost := fmt.Sprintf("gang-%d", next-3)
		node := s.get(lost).Spec.NodeName
		before := s.metric("muster_gang_members_lost_total")
		way.lose(lost)
		s.awaitLost(way.name, before)
		late, lateSingle := fmt.Sprintf("late-%d", next), fmt.Sprintf("late-single-%d", next)
		s.group(late, 1)
		s.create(s.pod(late, late, 8), s.pod(lateSingle, "", 8))
		s.awaitTurnedAway(late, lateSingle)
		replacement := fmt.Sprintf("gang-%d", next)
		s.create(s.pod(replacement, "gang", 8))
		if got := s.awaitOn(replacement); got != node {
			t.Errorf("%s: the replacement is on %s, and the room was on %s", way.name, got, node)
		}
		s.awaitTurnedAway("waits-0", "waits-single", late, lateSingle)
		s.remove(late, lateSingle)
		next++
	}
	// A gang that is gone keeps nothing.
	for name := range s.bound(s.namespace, "gang") {
		s.remove(name)
	}
	s.awaitBound("waits", 1)
	s.awaitOn("waits-single")
}

// deadNode is a node in a rack that takes pods and does nothing with them: it neither runs nor ends them.
func (s *scene) deadNode(name, rack string) {
	s.Helper()
	n := node(name)
	n.Labels = map[string]string{corev1.LabelHostname: name, rackLevel: rack}
	s.must(kube.Create(s.ctx, n))
	const status = `{"status":{"capacity":%[1]s,"allocatable":%[1]s,"conditions":[{"type":"Ready","status":"True","reason":"Test"}]}}`
	resources := fmt.Sprintf(`{"cpu":"64","memory":"256Gi","pods":"110",%q:"8"}`, gpuResource)
	s.must(kube.Status().Patch(s.ctx, n, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, status, resources))))
	s.await("node "+name, func() string {
		s.must(kube.Get(s.ctx, client.ObjectKeyFromObject(n), n))
		if len(n.Spec.Taints) > 0 {
			return fmt.Sprint(n.Spec.Taints)
		}
		return ""
	})
}

// patchNode changes a node's spec.
func (s *scene) patchNode(name, spec string) {
	s.Helper()
	s.must(kube.Patch(s.ctx, node(name), client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))))
}

// A node breaks with a member on it, which is never seen to end. The replacement goes where the rest of the gang is as
// soon as there is room, and nobody takes that before it. Nor does anybody take the place on another node that is repaired
// after a while.
func TestMemberOnABrokenNode(t *testing.T) {
	s := newScene(t)
	s.withLevels()
	s.nodes(2, controlplane.NodeShape{NamePrefix: "a", Labels: map[string]string{rackLevel: "a"}})
	s.nodes(1, controlplane.NodeShape{NamePrefix: "b", Labels: map[string]string{rackLevel: "b"}})
	s.deadNode("a-dead", "a")
	inRack := func(rack string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{rackLevel: rack} }
	}
	s.create(s.pod("guest", "", 8, inRack("a"), func(p *corev1.Pod) { p.Spec.NodeName = "a-0" }), s.pod("elsewhere", "", 8, inRack("b")))
	s.awaitOn("elsewhere")
	s.patchAnnotations(s.group("gang", 2), required(rackLevel))
	s.create(s.members("gang", 2, 8)...)
	s.awaitBound("gang", 2)
	on := map[string]string{}
	for name, node := range s.bound(s.namespace, "gang") {
		on[node] = name
	}
	s.group("waits", 1)
	s.create(s.pod("waits-0", "waits", 8), s.pod("waits-single", "", 8))
	s.awaitTurnedAway("waits-0", "waits-single")

	before := s.metric("muster_gang_members_lost_total")
	s.patchNode("a-dead", `{"taints":[{"key":"example.com/broken","effect":"NoSchedule"}]}`)
	s.must(kube.Delete(s.ctx, s.get(on["a-dead"])))
	s.awaitLost("broken node", before)
	s.remove("guest")
	s.create(s.pod("late", "", 8))
	s.awaitTurnedAway("late")
	s.create(s.pod("gang-2", "gang", 8))
	if got := s.awaitOn("gang-2"); got != "a-0" {
		t.Errorf("the replacement is on %s", got)
	}
	s.awaitTurnedAway("waits-0", "waits-single", "late")

	before = s.metric("muster_gang_members_lost_total")
	s.patchNode("a-1", `{"unschedulable":true}`)
	s.remove(on["a-1"])
	s.awaitLost("cordoned node", before)
	s.create(s.pod("gang-3", "gang", 8), s.pod("later", "", 8))
	s.awaitTurnedAway("gang-3", "later")
	s.patchNode("a-1", `{"unschedulable":false}`)
	if got := s.awaitOn("gang-3"); got != "a-1" {
		t.Errorf("the replacement is on %s", got)
	}
	s.awaitTurnedAway("waits-0", "waits-single", "late", "later")
	s.must(kube.Delete(s.ctx, s.get(on["a-dead"]), client.GracePeriodSeconds(0)))
}

// bindingsDenied makes the API server refuse to bind the pods of these names, until the returned function is called.
func (s *scene) bindingsDenied(pod string) (allow func()) {
	s.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "deny-" + s.namespace},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/binding"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: fmt.Sprintf("object.metadata.name != %q && object.metadata.name != 'probe'", pod), Message: "not now"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	s.must(kube.Create(s.ctx, policy))
	s.must(kube.Create(s.ctx, binding))
	gone := false
	allow = func() {
		if !gone {
			gone = true
			s.must(kube.Delete(context.Background(), binding))
			s.must(kube.Delete(context.Background(), policy))
		}
	}
	s.Cleanup(allow)
	probe := s.pod("probe", "", 1, func(p *corev1.Pod) { p.Spec.SchedulerName = "nobody" })
	s.create(probe)
	s.await("bindings are denied", func() string {
		err := kube.SubResource("binding").Create(s.ctx, probe, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "none"}}, &client.SubResourceCreateOptions{CreateOptions: client.CreateOptions{DryRun: []string{metav1.DryRunAll}}})
		if err == nil || !strings.Contains(err.Error(), "not now") {
			return fmt.Sprint(err)
		}
		return ""
	})
	return allow
}

// One member of a committed gang cannot be bound for a while. The others run; its room is its own.
func TestMemberThatCannotBeBound(t *testing.T) {
	s := newScene(t)
	s.nodes(3, controlplane.NodeShape{})
	allow := s.bindingsDenied("gang-1")
	before := s.metric("muster_gang_members_lost_total")
	s.group("gang", 3)
	s.create(s.members("gang", 3, 8)...)
	s.awaitBound("gang", 2)
	s.awaitLost("not bound", before)
	s.group("late", 1)
	s.create(s.pod("late-0", "late", 8), s.pod("late-single", "", 8))
	s.awaitTurnedAway("late-0", "late-single")
	allow()
	s.awaitBound("gang", 3)
	s.awaitTurnedAway("late-0", "late-single")
	s.awaitCondition(s.namespace, "gang", podgroups.ConditionScheduled, metav1.ConditionTrue)
}

// The scheduler dies while a gang lacks a member. Nobody remembers the room, but the replacement goes first, before an
// older gang of the same priority that waits for the same.
func TestSchedulerRestartedInRepair(t *testing.T) {
	s := newScene(t)
	s.nodes(2, controlplane.NodeShape{})
	s.group("older", 1)
	s.group("gang", 2)
	s.create(s.members("gang", 2, 8)...)
	s.awaitBound("gang", 2)
	scheduler.Stop()
	s.Cleanup(s.restartScheduler)
	s.remove("gang-1")
	s.create(s.pod("older-0", "older", 8), s.pod("gang-2", "gang", 8))
	kill := s.runScheduler(1000)
	s.awaitOn("gang-2")
	s.awaitTurnedAway("older-0")
	kill()
}

// All pods of a gang are deleted while no scheduler runs. The next one holds nothing for it, and its PodGroup says so.
func TestAllPodsDeletedWhileTheSchedulerIsDown(t *testing.T) {
	s := newScene(t)
	s.nodes(2, controlplane.NodeShape{})
	s.group("gang", 2)
	s.create(s.members("gang", 2, 8)...)
	s.awaitBound("gang", 2)
	s.awaitCondition(s.namespace, "gang", podgroups.ConditionScheduled, metav1.ConditionTrue)
	scheduler.Stop()
	s.remove("gang-0", "gang-1")
	s.group("next", 2)
	s.create(s.members("next", 2, 8)...)
	s.restartScheduler()
	s.awaitBound("next", 2)
	s.awaitCondition(s.namespace, "gang", podgroups.ConditionScheduled, metav1.ConditionFalse)
	if g := s.podGroup("gang"); g.Status.Phase != upstream.PodGroupPending || g.Status.Running != 0 {
		t.Errorf("phase %s, %d running", g.Status.Phase, g.Status.Running)
	}
	s.remove("next-0", "next-1")
	s.create(s.members("gang", 2, 8)...)
	s.awaitBound("gang", 2)
}

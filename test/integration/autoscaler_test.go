package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	"github.com/muster-sched/muster/plugins/coscheduling"
	"github.com/muster-sched/muster/podgroup"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// An autoscaler adds nodes for pods with PodScheduled=False of the reason Unschedulable. Members have it exactly as
// long as nodes could help their gang, all of them, and nothing else about them changes but their node.
func TestWhatMembersTellAutoscalers(t *testing.T) {
	s := newScene(t)
	told := s.reasonsTold()
	s.nodes(2, controlplane.NodeShape{})
	annotations := map[string]string{
		"autoscaling.x-k8s.io/consume-provisioning-request": "request",
		"autoscaling.x-k8s.io/provisioning-class-name":      "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
		"karpenter.sh/do-not-disrupt":                       "true",
	}
	s.group("gang", 3)
	members := s.members("gang", 3, 8, func(p *corev1.Pod) { p.Annotations = maps.Clone(annotations) })
	s.create(members...)
	s.awaitReasons("gang", corev1.PodReasonUnschedulable, 3)

	t.Log("a member is gone: no node helps the others")
	s.remove("gang-0")
	s.awaitReasons("gang", coscheduling.ReasonIncomplete, 2)

	t.Log("it is replaced: nodes help again, and all ask for them, also those that wait behind the first")
	members[0] = s.pod("gang-0", "gang", 8, func(p *corev1.Pod) { p.Annotations = maps.Clone(annotations) })
	s.create(members[0])
	s.awaitReasons("gang", corev1.PodReasonUnschedulable, 3)

	s.nodes(1, controlplane.NodeShape{})
	s.awaitBound("gang", 3)
	for _, made := range members {
		pod := &corev1.Pod{}
		s.must(kube.Get(s.ctx, client.ObjectKeyFromObject(made), pod))
		want := made.DeepCopy()
		want.Spec.NodeName = pod.Spec.NodeName
		if !maps.Equal(pod.Annotations, annotations) || !maps.Equal(pod.Labels, made.Labels) || len(pod.Finalizers) > 0 || !apiequality.Semantic.DeepEqual(pod.Spec, want.Spec) {
			t.Errorf("%s was changed: annotations %v, labels %v, finalizers %v, spec %+v", pod.Name, pod.Annotations, pod.Labels, pod.Finalizers, pod.Spec)
		}
	}

	t.Log("a gang that asks for what cannot be never asks for nodes")
	group := &podgroups.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "wrong", Annotations: map[string]string{podgroup.RequiredTopologyAnnotation: "no-such-level"}}}
	group.Spec.MinMember = 3
	s.must(kube.Create(s.ctx, group))
	s.create(s.members("wrong", 3, 8)...)
	s.awaitReasons("wrong", coscheduling.ReasonInvalidTopology, 3)
	for i := range 3 {
		if got := told(fmt.Sprintf("wrong-%d", i)); slices.Contains(got, corev1.PodReasonUnschedulable) {
			t.Errorf("member %d told %v", i, got)
		}
	}
}

// reasonsTold watches the pods of the scene; it returns what tells for a pod which reasons it ever had.
func (s *scene) reasonsTold() func(pod string) []string {
	s.Helper()
	clients, err := kubernetes.NewForConfig(cluster.REST())
	s.must(err)
	watch, err := clients.CoreV1().Pods(s.namespace).Watch(s.ctx, metav1.ListOptions{})
	s.must(err)
	s.Cleanup(watch.Stop)
	var mu sync.Mutex
	told := map[string][]string{}
	go func() {
		for event := range watch.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				mu.Lock()
				told[pod.Name] = append(told[pod.Name], reasonOf(pod))
				mu.Unlock()
			}
		}
	}()
	return func(pod string) []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(told[pod])
	}
}

// reasonOf returns why a pod says that it has no node, "" if it does not say so.
func reasonOf(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason
		}
	}
	return ""
}

// awaitReasons waits until all members of a gang, so many, say that they have no node for this reason.
func (s *scene) awaitReasons(group, reason string, n int) {
	s.Helper()
	s.await("reasons of gang "+group, func() string {
		pods := &corev1.PodList{}
		s.must(kube.List(s.ctx, pods, client.InNamespace(s.namespace), client.MatchingLabels{podgroups.GroupLabel: group}))
		have, all := 0, map[string]string{}
		for i := range pods.Items {
			all[pods.Items[i].Name] = reasonOf(&pods.Items[i])
			if all[pods.Items[i].Name] == reason {
				have++
			}
		}
		if have != n || len(pods.Items) != n {
			return fmt.Sprintf("%d with %s, want %d: %v; PodGroup says %s", have, reason, n, all, s.conditions(s.namespace, group))
		}
		return ""
	})
}

// Nodes that an autoscaler adds one at a time would each be taken by the next pod in line. In its window they are kept
// for the gang until it fits.
func TestNodesThatArriveOneByOneAreKeptForTheGang(t *testing.T) {
	s := newScene(t)
	s.nodes(1, controlplane.NodeShape{})
	group := &podgroups.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "gang", Annotations: map[string]string{podgroup.ProvisioningWindowAnnotation: "5m"}}}
	group.Spec.MinMember = 3
	s.must(kube.Create(s.ctx, group))
	s.create(s.members("gang", 3, 8)...)
	s.awaitRefused("gang")
	s.create(s.pod("single-0", "", 8), s.pod("small", "", 0))
	s.awaitBound("", 2)

	s.create(s.pod("single-1", "", 8))
	s.await("single-1", func() string {
		pod := &corev1.Pod{}
		s.must(kube.Get(s.ctx, types.NamespacedName{Namespace: s.namespace, Name: "single-1"}, pod))
		if reasonOf(pod) != corev1.PodReasonUnschedulable {
			return "not refused yet"
		}
		return ""
	})
	for i := range 2 {
		first := s.nodes(1, controlplane.NodeShape{})
		s.await("condition Provisioning", func() string {
			c := s.awaitCondition(s.namespace, "gang", podgroups.ConditionProvisioning, metav1.ConditionTrue)
			if !strings.Contains(c.Message, fmt.Sprintf("for %d of the 3 members", i+1)) || !strings.Contains(c.Message, first[0]) {
				return c.Message
			}
			return ""
		})
		if at := s.bound(s.namespace, "")["single-1"]; at != "" {
			t.Fatalf("the new node %s went to a pod behind the gang", at)
		}
	}
	s.nodes(1, controlplane.NodeShape{})
	s.awaitBound("gang", 3)
	s.awaitCondition(s.namespace, "gang", podgroups.ConditionProvisioning, metav1.ConditionFalse)
	s.nodes(1, controlplane.NodeShape{})
	s.awaitBound("", 3)
}

// Kueue holds a TrainJob suspended, and patches into it what its admission decided: node selectors, annotations for
// autoscalers, its gate. Then its topology ungater takes the gate from one pod after another and adds the node's host name
// to that pod's node selector. The gang starts whole with the last, each member where Kueue has put it.
func TestKueueAdmitsATrainJobPodByPod(t *testing.T) {
	const gate, request = "kueue.x-k8s.io/topology", "autoscaling.x-k8s.io/consume-provisioning-request"
	s := newScene(t)
	s.runtimes()
	s.nodes(1, controlplane.NodeShape{NamePrefix: "other"})
	nodes := s.nodes(3, controlplane.NodeShape{Labels: map[string]string{"pool": "reserved"}})
	job := s.trainJob("llm", "torch-distributed-gang", 3, 8)
	job.Spec.Suspend = ptr.To(true)
	s.must(kube.Create(s.ctx, job))
	s.awaitTrainJob("llm", trainer.TrainJobSuspended)
	s.change(job, func() {
		patch := patchOf("kueue.x-k8s.io/manager", "node", trainer.PodSpecPatch{
			NodeSelector: map[string]string{"pool": "reserved"}, SchedulingGates: []corev1.PodSchedulingGate{{Name: gate}},
		})
		patch.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Metadata = &metav1.ObjectMeta{Annotations: map[string]string{request: "llm-1"}}
		job.Spec.RuntimePatches = []trainer.RuntimePatch{patch}
	})
	s.suspend(job, false)
	s.awaitReasons("llm", corev1.PodReasonSchedulingGated, 3)
	want := map[string]string{}
	for i, pod := range s.trainPods("llm") {
		pod.Spec.SchedulingGates = nil
		pod.Spec.NodeSelector[corev1.LabelHostname] = nodes[2-i]
		s.must(kube.Update(s.ctx, &pod))
		want[pod.Name] = nodes[2-i]
		if pod.Spec.NodeSelector["pool"] != "reserved" || pod.Annotations[request] != "llm-1" {
			t.Errorf("%s has node selector %v and annotations %v", pod.Name, pod.Spec.NodeSelector, pod.Annotations)
		}
		if i == 2 {
			break
		}
		s.await("PodGroup", func() string {
			c := s.awaitCondition(s.namespace, "llm", podgroups.ConditionScheduled, metav1.ConditionFalse)
			if held := fmt.Sprintf("%d held by scheduling gates", 2-i); c.Reason != podgroups.ReasonSchedulingGated || !strings.Contains(c.Message, held) {
				return c.Message
			}
			return ""
		})
		if n := len(s.bound(s.namespace, "llm")); n > 0 {
			t.Fatalf("%d members bound while others are gated", n)
		}
	}
	s.awaitBound("llm", 3)
	if got := s.bound(s.namespace, "llm"); !maps.Equal(got, want) {
		t.Errorf("members are on %v, want %v", got, want)
	}
}

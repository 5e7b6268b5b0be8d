package podgroup

import (
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// podOption changes a pod under construction.
type podOption func(*corev1.Pod)

// newPod returns a waiting pod of namespace "ns" in gang "gang", its UID derived from its name.
func newPod(name string, options ...podOption) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: "ns",
			UID:       types.UID("uid-" + name),
			Labels:    map[string]string{v1alpha1.GroupLabel: "gang"},
		},
		Spec:   corev1.PodSpec{SchedulerName: "muster"},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

func inNamespace(namespace string) podOption {
	return func(pod *corev1.Pod) { pod.Namespace = namespace }
}

func inGang(name string) podOption {
	return func(pod *corev1.Pod) { pod.Labels[v1alpha1.GroupLabel] = name }
}

func withUID(uid string) podOption {
	return func(pod *corev1.Pod) { pod.UID = types.UID(uid) }
}

func onNode(node string) podOption {
	return func(pod *corev1.Pod) { pod.Spec.NodeName = node }
}

func inPhase(phase corev1.PodPhase) podOption {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

func deleting() podOption {
	return func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{} }
}

func gated() podOption {
	return func(pod *corev1.Pod) {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
	}
}

func withLabel(key, value string) podOption {
	return func(pod *corev1.Pod) { pod.Labels[key] = value }
}

func withAnnotation(key, value string) podOption {
	return func(pod *corev1.Pod) { pod.Annotations = map[string]string{key: value} }
}

func scheduledBy(name string) podOption {
	return func(pod *corev1.Pod) { pod.Spec.SchedulerName = name }
}

// ofJob makes the pod the one of a Job's completion index.
func ofJob(job string, index int) podOption {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "batch/v1", Kind: "Job", Name: job, UID: types.UID("uid-" + job), Controller: ptr.To(true),
		}}
		pod.Labels[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(index)
	}
}

func running() podOption {
	return func(pod *corev1.Pod) {
		onNode("node-1")(pod)
		inPhase(corev1.PodRunning)(pod)
	}
}

func succeeded() podOption {
	return func(pod *corev1.Pod) {
		onNode("node-1")(pod)
		inPhase(corev1.PodSucceeded)(pod)
	}
}

func failed() podOption {
	return func(pod *corev1.Pod) {
		onNode("node-1")(pod)
		inPhase(corev1.PodFailed)(pod)
	}
}

// membersOf returns the members of the pods in rank order.
func membersOf(pods ...*corev1.Pod) []Member {
	m := NewMembership()
	for _, pod := range pods {
		m.Update(pod)
	}
	return m.Members(types.NamespacedName{Namespace: "ns", Name: "gang"})
}

// resources returns a resource list of alternating names and quantities.
func resources(namesAndQuantities ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(namesAndQuantities); i += 2 {
		list[corev1.ResourceName(namesAndQuantities[i])] = resource.MustParse(namesAndQuantities[i+1])
	}
	return list
}

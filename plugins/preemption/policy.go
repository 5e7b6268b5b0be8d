package preemption

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// PolicyOf is a pod's preemptionPolicy, which the API server sets where the user does not.
func PolicyOf(pod *corev1.Pod) corev1.PreemptionPolicy {
	return ptr.Deref(pod.Spec.PreemptionPolicy, corev1.PreemptLowerPriority)
}

// Never reports whether a pod preempts nobody.
func Never(pod *corev1.Pod) bool { return PolicyOf(pod) == corev1.PreemptNever }

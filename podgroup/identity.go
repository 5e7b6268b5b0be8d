package podgroup

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// Key returns the namespace and name of the PodGroup that the pod's scheduling.x-k8s.io/pod-group label
// names. It returns false for a pod without the label and for one whose label is empty. The PodGroup need
// not exist.
func Key(pod *corev1.Pod) (types.NamespacedName, bool) {
	name := pod.Labels[v1alpha1.GroupLabel]
	if name == "" {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: pod.Namespace, Name: name}, true
}

// NativeKey returns the namespace and name of the PodGroup of scheduling.k8s.io that the pod's spec.schedulingGroup names.
// It returns false for a pod that is in none. The PodGroup need not exist.
func NativeKey(pod *corev1.Pod) (types.NamespacedName, bool) {
	group := pod.Spec.SchedulingGroup
	if group == nil || group.PodGroupName == nil {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: pod.Namespace, Name: *group.PodGroupName}, true
}

// Identity tells the places of a gang apart. A Job that retries a completion index makes a new pod for the
// same place, so pods with equal identities count once.
type Identity struct {
	// Owner is the UID of the Job for a pod with a completion index, else the pod's own UID.
	Owner types.UID

	// Index is the completion index, or -1 for a pod that stands for itself.
	Index int
}

// IdentityOf returns the place in its gang that the pod takes.
func IdentityOf(pod *corev1.Pod) Identity {
	if index, ok := Rank(pod); ok {
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
			return Identity{Owner: owner.UID, Index: index}
		}
	}
	return Identity{Owner: pod.UID, Index: -1}
}

// Rank returns the pod's completion index within its Job, from the batch.kubernetes.io/job-completion-index
// label or, where an older Job controller made the pod, the annotation of the same name. It returns false if
// neither is a decimal number of zero or more.
func Rank(pod *corev1.Pod) (int, bool) {
	if index, ok := parseIndex(pod.Labels[batchv1.JobCompletionIndexAnnotation]); ok {
		return index, true
	}
	return parseIndex(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
}

// indexOf returns the position of a pod among those of its template: its completion index, or the index that a
// StatefulSet or Kueue gave it, or the number that its name ends in if the name was not generated. It is -1 for a
// pod whose successor could not be told to be the same.
func indexOf(pod *corev1.Pod) int {
	if index, ok := Rank(pod); ok {
		return index
	}
	for _, label := range []string{appsv1.PodIndexLabel, kueuePodIndexLabel} {
		if index, ok := parseIndex(pod.Labels[label]); ok {
			return index
		}
	}
	if pod.GenerateName == "" {
		_, number := splitTrailingNumber(pod.Name)
		return number
	}
	return -1
}

package podgroup

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// isReady is whether the pod runs and says that it is ready.
func isReady(pod *corev1.Pod) bool {
	ready := podCondition(pod, corev1.PodReady)
	return StateOf(pod) == Running && ready != nil && ready.Status == corev1.ConditionTrue
}

// podCondition returns a condition of the pod, nil if it has none of the type.
func podCondition(pod *corev1.Pod, conditionType corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == conditionType {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// holdsNode is whether the pod has a node and may still use it.
func holdsNode(pod *corev1.Pod) bool {
	state := StateOf(pod)
	return state == Bound || state == Running
}

// boundSince returns when the pod got its node: the API server notes that in the PodScheduled condition. For a pod
// that was made with a node it is when it was made. It is 0 for a pod that has no node or needs none any more.
func boundSince(pod *corev1.Pod) int64 {
	if !holdsNode(pod) {
		return 0
	}
	since := pod.CreationTimestamp
	if scheduled := podCondition(pod, corev1.PodScheduled); scheduled != nil &&
		scheduled.Status == corev1.ConditionTrue && !scheduled.LastTransitionTime.IsZero() {
		since = scheduled.LastTransitionTime
	}
	return max(since.Unix(), 0)
}

// nodeLost is the trouble of a pod whose node's kubelet is not heard of.
const nodeLost = "node lost"

// troubleOf says what keeps a pod that has a node from being ready: what the kubelet waits for, what crashed, what
// is not ready yet, or that the node is lost. It says the same for states between which a pod in trouble moves to
// and fro.
func troubleOf(pod *corev1.Pod) string {
	if !holdsNode(pod) || isReady(pod) {
		return ""
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if trouble := containerTrouble(&statuses[i]); trouble != "" {
				return fmt.Sprintf("%s in container %q", trouble, statuses[i].Name)
			}
		}
	}
	if pod.Status.Reason != "" {
		return pod.Status.Reason
	}
	if pod.Status.Phase != corev1.PodRunning {
		return ""
	}
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; !status.Ready {
			return fmt.Sprintf("container %q is not ready", status.Name)
		}
	}
	if ready := podCondition(pod, corev1.PodReady); ready != nil && ready.Reason == "" {
		// All containers are ready and nobody says why the pod is not: the node controller does so.
		return nodeLost
	}
	return ""
}

// containerTrouble names the trouble of one container, empty if it only starts, runs or ended well.
func containerTrouble(status *corev1.ContainerStatus) string {
	if ended := status.State.Terminated; ended != nil && ended.ExitCode != 0 {
		return "CrashLoopBackOff"
	}
	waits := status.State.Waiting
	if waits == nil {
		return ""
	}
	switch waits.Reason {
	case "ContainerCreating", "PodInitializing":
		return ""
	case "ErrImagePull":
		return "ImagePullBackOff"
	}
	return waits.Reason
}

// slimStatus returns what isReady, boundSince and troubleOf read of a pod's status.
func slimStatus(pod *corev1.Pod) corev1.PodStatus {
	slim := corev1.PodStatus{Phase: pod.Status.Phase}
	if !holdsNode(pod) {
		return slim
	}
	if scheduled := podCondition(pod, corev1.PodScheduled); scheduled != nil && scheduled.Status == corev1.ConditionTrue {
		slim.Conditions = append(slim.Conditions, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: scheduled.LastTransitionTime})
	}
	if ready := podCondition(pod, corev1.PodReady); ready != nil {
		slim.Conditions = append(slim.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: ready.Status, Reason: ready.Reason})
	}
	if isReady(pod) {
		return slim
	}
	slim.Reason = pod.Status.Reason
	slim.InitContainerStatuses = slimContainers(pod.Status.InitContainerStatuses)
	slim.ContainerStatuses = slimContainers(pod.Status.ContainerStatuses)
	return slim
}

func slimContainers(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var slim []corev1.ContainerStatus
	for i := range statuses {
		one := corev1.ContainerStatus{Name: statuses[i].Name, Ready: statuses[i].Ready}
		if waits := statuses[i].State.Waiting; waits != nil {
			one.State.Waiting = &corev1.ContainerStateWaiting{Reason: waits.Reason}
		}
		if ended := statuses[i].State.Terminated; ended != nil {
			one.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: ended.ExitCode}
		}
		slim = append(slim, one)
	}
	return slim
}

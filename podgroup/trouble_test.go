package podgroup

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// ready makes the pod run and be ready.
func ready() podOption {
	return func(pod *corev1.Pod) {
		running()(pod)
		withPodCondition(corev1.PodReady, corev1.ConditionTrue, "")(pod)
	}
}

func withPodCondition(conditionType corev1.PodConditionType, status corev1.ConditionStatus, reason string) podOption {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: conditionType, Status: status, Reason: reason})
	}
}

// boundAt is when the API server noted that the pod got its node.
func boundAt(at time.Time) podOption {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)})
	}
}

func container(name string, isReady bool, state corev1.ContainerState) podOption {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, Ready: isReady, State: state})
	}
}

func waits(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func ended(exitCode int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode}}
}

func TestTroubleOfAMember(t *testing.T) {
	bound, runs := onNode("node-1"), corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	unready := withPodCondition(corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady")
	for _, test := range []struct {
		name string
		pod  *corev1.Pod
		want string
	}{
		{"waits for a node", newPod("a", withPodCondition(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable")), ""},
		{"just bound", newPod("a", bound), ""},
		{"being made", newPod("a", bound, container("node", false, waits("ContainerCreating"))), ""},
		{"no image", newPod("a", bound, container("node", false, waits("ImagePullBackOff"))), `ImagePullBackOff in container "node"`},
		{"no image, just tried", newPod("a", bound, container("node", false, waits("ErrImagePull"))), `ImagePullBackOff in container "node"`},
		{"wrong image name", newPod("a", bound, container("node", false, waits("InvalidImageName"))), `InvalidImageName in container "node"`},
		{"sidecar in trouble", newPod("a", running(), unready, container("node", true, runs), container("proxy", false, waits("CrashLoopBackOff"))),
			`CrashLoopBackOff in container "proxy"`},
		{"just crashed", newPod("a", running(), unready, container("node", false, ended(1))), `CrashLoopBackOff in container "node"`},
		{"init container crashes", newPod("a", bound, func(pod *corev1.Pod) {
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "fetch", State: ended(2)}}
		}, container("node", false, waits("PodInitializing"))), `CrashLoopBackOff in container "fetch"`},
		{"init container is done", newPod("a", bound, func(pod *corev1.Pod) {
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "fetch", State: ended(0)}}
		}, container("node", false, waits("PodInitializing"))), ""},
		{"readiness probe fails", newPod("a", running(), unready, container("node", false, runs)), `container "node" is not ready`},
		{"readiness gate", newPod("a", running(), withPodCondition(corev1.PodReady, corev1.ConditionFalse, "ReadinessGatesNotReady"), container("node", true, runs)), ""},
		{"node not heard of", newPod("a", running(), withPodCondition(corev1.PodReady, corev1.ConditionFalse, ""), container("node", true, runs)), "node lost"},
		{"the pod's own reason", newPod("a", running(), func(pod *corev1.Pod) { pod.Status.Reason = "NodeLost" }), "NodeLost"},
		{"ready", newPod("a", ready(), container("node", true, runs)), ""},
		{"succeeded", newPod("a", succeeded(), container("node", false, ended(0))), ""},
		{"failed", newPod("a", failed(), container("node", false, ended(1))), ""},
		{"being deleted", newPod("a", running(), deleting(), container("node", false, ended(1))), ""},
	} {
		if got := MemberOf(test.pod).Trouble; got != test.want {
			t.Errorf("%s: trouble is %q, want %q", test.name, got, test.want)
		}
	}
}

func TestReadyMember(t *testing.T) {
	for _, test := range []struct {
		name string
		pod  *corev1.Pod
		want bool
	}{
		{"ready", newPod("a", ready()), true},
		{"running", newPod("a", running()), false},
		{"unready", newPod("a", running(), withPodCondition(corev1.PodReady, corev1.ConditionFalse, "")), false},
		{"not running", newPod("a", onNode("node-1"), withPodCondition(corev1.PodReady, corev1.ConditionTrue, "")), false},
		{"being deleted", newPod("a", ready(), deleting()), false},
		{"succeeded", newPod("a", succeeded()), false},
	} {
		if got := MemberOf(test.pod).Ready; got != test.want {
			t.Errorf("%s: ready is %v, want %v", test.name, got, test.want)
		}
	}
}

func TestBoundSince(t *testing.T) {
	created := func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(noon) }
	later := noon.Add(time.Minute)
	for _, test := range []struct {
		name string
		pod  *corev1.Pod
		want int64
	}{
		{"waits", newPod("a", created), 0},
		{"bound", newPod("a", created, onNode("node-1"), boundAt(later)), later.Unix()},
		{"made with a node", newPod("a", created, onNode("node-1")), noon.Unix()},
		{"no time at all", newPod("a", onNode("node-1")), 0},
		{"done", newPod("a", created, succeeded(), boundAt(later)), 0},
	} {
		if got := MemberOf(test.pod).BoundSince; got != test.want {
			t.Errorf("%s: bound since %d, want %d", test.name, got, test.want)
		}
	}
}

// randomStatus returns what a pod with a node can say of itself, as far as gangs read it.
func randomStatus(t *rapid.T) corev1.PodStatus {
	pod := &corev1.Pod{}
	if rapid.Bool().Draw(t, "bound when") {
		boundAt(noon.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "bound at")) * time.Hour))(pod)
	}
	isReady := false
	if rapid.Bool().Draw(t, "ready condition") {
		isReady = rapid.Bool().Draw(t, "ready")
		status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[isReady]
		withPodCondition(corev1.PodReady, status, rapid.SampledFrom([]string{"", "ContainersNotReady"}).Draw(t, "reason"))(pod)
	}
	if isReady {
		return pod.Status // nothing else is kept of one that runs
	}
	states := []corev1.ContainerState{{}, waits("ContainerCreating"), waits("ErrImagePull"), ended(0), ended(1)}
	for i := range rapid.IntRange(0, 2).Draw(t, "containers") {
		container(string(rune('a'+i)), rapid.Bool().Draw(t, "container ready"), rapid.SampledFrom(states).Draw(t, "state"))(pod)
	}
	return pod.Status
}

package gangplan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/utils/ptr"
)

// alike reports whether two members are certainly of one class, as neighbours in a gang mostly are, by the labels with
// these keys and all else but what a node has one of. To compare what they ask for is far cheaper than to add it up.
func alike(a, b *corev1.Pod, repelled sets.Set[string]) bool {
	if addsUpOtherwise(a) || addsUpOtherwise(b) {
		return false
	}
	for key := range repelled {
		if x, ok := a.Labels[key]; x != b.Labels[key] || ok != hasLabel(b, key) {
			return false
		}
	}
	x, y := &a.Spec, &b.Spec
	return sameContainers(x.Containers, y.Containers) && sameContainers(x.InitContainers, y.InitContainers) && sameAmounts(x.Overhead, y.Overhead) &&
		corev1helpers.PodPriority(a) == corev1helpers.PodPriority(b) && maps.Equal(x.NodeSelector, y.NodeSelector) &&
		slices.EqualFunc(x.Tolerations, y.Tolerations, sameToleration) &&
		(x.Affinity == y.Affinity || apiequality.Semantic.DeepEqual(x.Affinity, y.Affinity))
}

// addsUpOtherwise reports whether a pod's requests are more than what its containers ask for.
func addsUpOtherwise(pod *corev1.Pod) bool {
	return pod.Spec.Resources != nil || len(pod.Spec.ResourceClaims) > 0 || pod.Status.Resources != nil ||
		len(pod.Status.ContainerStatuses)+len(pod.Status.InitContainerStatuses) > 0
}

// sameToleration spares the reflection of a general comparison: the API server gives every pod two tolerations.
func sameToleration(a, b corev1.Toleration) bool {
	seconds := ptr.Equal(a.TolerationSeconds, b.TolerationSeconds)
	a.TolerationSeconds, b.TolerationSeconds = nil, nil
	return seconds && a == b
}

func hasLabel(pod *corev1.Pod, key string) bool {
	_, ok := pod.Labels[key]
	return ok
}

func sameContainers(a, b []corev1.Container) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := &a[i], &b[i]
		if !sameAmounts(x.Resources.Requests, y.Resources.Requests) || (x.RestartPolicy == nil) != (y.RestartPolicy == nil) ||
			x.RestartPolicy != nil && *x.RestartPolicy != *y.RestartPolicy {
			return false
		}
	}
	return true
}

func sameAmounts(a, b corev1.ResourceList) bool {
	// Mostly they were read from the same text, and comparing them as structs is enough.
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x == y || x.Cmp(y) == 0 })
}

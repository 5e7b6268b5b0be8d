package gang

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/component-helpers/resource"
	apiv1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/trainer/runtime"
)

// MinResources returns what the scheduler will count for all pods of a gang.
func (g *Gang) MinResources(ctx context.Context, c client.Reader, namespace string) (corev1.ResourceList, error) {
	limitRanges, err := limitRangesOf(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	total := corev1.ResourceList{}
	for _, podSet := range g.PodSets {
		requests, err := podRequests(ctx, c, podSet, limitRanges)
		if err != nil {
			return nil, err
		}
		for name, quantity := range requests {
			quantity.Mul(int64(podSet.Replicas) * int64(podSet.Count))
			sum := total[name]
			sum.Add(quantity)
			total[name] = sum
		}
	}
	return total, nil
}

// podRequests returns what the scheduler will count for one pod of a PodSet: the requests after the API
// server's defaulting, which makes a request of a limit that stands alone, as GPUs are often written; the
// namespace's defaults; sidecars, and the largest init container; and the overhead of the runtime class.
// A change of these objects needs no new look: a suspended TrainJob is looked at when it is resumed, and
// the pods of a running one do not change.
func podRequests(ctx context.Context, c client.Reader, podSet *runtime.PodSet, limitRanges []corev1.LimitRange) (corev1.ResourceList, error) {
	pod := &corev1.Pod{Spec: *podSet.PodSpec().DeepCopy()}
	apiv1.SetObjectDefaults_Pod(pod)
	for i := range limitRanges {
		applyDefaults(pod, &limitRanges[i])
	}
	if name := pod.Spec.RuntimeClassName; name != nil && pod.Spec.Overhead == nil && c != nil {
		class := &nodev1.RuntimeClass{}
		err := c.Get(ctx, client.ObjectKey{Name: *name}, class)
		// Without its runtime class the pod is refused, and needs nothing.
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("getting RuntimeClass %s: %w", *name, err)
		}
		if class.Overhead != nil {
			pod.Spec.Overhead = class.Overhead.PodFixed
		}
	}
	return resource.PodRequests(pod, resource.PodResourcesOptions{}), nil
}

// limitRangesOf returns the LimitRanges of a namespace by name. Where several give a default for the same
// resource the API server takes any of them first, and the same one must be counted every time.
func limitRangesOf(ctx context.Context, c client.Reader, namespace string) ([]corev1.LimitRange, error) {
	if c == nil {
		return nil, nil
	}
	list := &corev1.LimitRangeList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing LimitRanges: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// applyDefaults does to a pod what the API server's LimitRanger does.
func applyDefaults(pod *corev1.Pod, limitRange *corev1.LimitRange) {
	for _, item := range limitRange.Spec.Limits {
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range containers {
				resources := &containers[i].Resources
				resources.Limits = withDefaults(resources.Limits, item.Default)
				resources.Requests = withDefaults(resources.Requests, item.DefaultRequest)
			}
		}
	}
}

func withDefaults(list, defaults corev1.ResourceList) corev1.ResourceList {
	for name, quantity := range defaults {
		if _, ok := list[name]; ok {
			continue
		}
		if list == nil {
			list = corev1.ResourceList{}
		}
		list[name] = quantity.DeepCopy()
	}
	return list
}

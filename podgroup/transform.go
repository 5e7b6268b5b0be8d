package podgroup

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// keptLabels and keptAnnotations are those that decide a pod's gang, place, order and topology.
var (
	keptLabels = []string{
		v1alpha1.GroupLabel,
		batchv1.JobCompletionIndexAnnotation,
		jobset.JobSetNameKey,
		jobset.ReplicatedJobNameKey,
		jobset.JobIndexKey,
		jobset.JobGlobalIndexKey,
		jobset.ReplicatedJobReplicas,
		appsv1.PodIndexLabel,
		kueuePodIndexLabel,
	}
	keptAnnotations = append([]string{batchv1.JobCompletionIndexAnnotation}, topologyAnnotations...)
)

// Transform is a cache.TransformFunc that leaves of a pod only what MemberOf and Key read, so that an index
// of a hundred thousand members stays small. Other objects, tombstones among them, pass unchanged. It never
// returns an error.
func Transform(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name:              pod.Name,
			GenerateName:      pod.GenerateName,
			Namespace:         pod.Namespace,
			UID:               pod.UID,
			ResourceVersion:   pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp,
			DeletionTimestamp: pod.DeletionTimestamp,
			Labels:            keep(pod.Labels, keptLabels),
			Annotations:       keep(pod.Annotations, keptAnnotations),
		},
		Spec: corev1.PodSpec{
			NodeName:        pod.Spec.NodeName,
			SchedulerName:   pod.Spec.SchedulerName,
			Priority:        pod.Spec.Priority,
			SchedulingGates: pod.Spec.SchedulingGates,
			SchedulingGroup: pod.Spec.SchedulingGroup,
		},
		Status: slimStatus(pod),
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		slim.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return slim, nil
}

// keep returns the entries of from that keys name, nil if there are none.
func keep(from map[string]string, keys []string) map[string]string {
	var kept map[string]string
	for _, key := range keys {
		if value, ok := from[key]; ok {
			if kept == nil {
				kept = make(map[string]string, len(keys))
			}
			kept[key] = value
		}
	}
	return kept
}

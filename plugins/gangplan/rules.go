package gangplan

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"
)

func labelsOf(info fwk.PodInfo) labels.Set { return info.GetPod().Labels }

// needsExact reports whether the place of one member may depend on the place of another in a way that
// counting does not describe: inter-pod affinity and spread, volumes, and resource claims. Host ports
// and anti-affinity are the matter of single.
func needsExact(pod *corev1.Pod) bool {
	if a := pod.Spec.Affinity; a != nil && a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
		return true
	}
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			return true
		}
	}
	for i := range pod.Spec.Volumes {
		if needsPlace(&pod.Spec.Volumes[i]) {
			return true
		}
	}
	return len(pod.Spec.ResourceClaims) > 0
}

// needsPlace reports whether a volume can keep a pod off a node.
func needsPlace(v *corev1.Volume) bool {
	return v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.GCEPersistentDisk != nil ||
		v.AWSElasticBlockStore != nil || v.ISCSI != nil || v.RBD != nil
}

package stage

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// NewNativeFramework is NewFramework in a cluster that has Kubernetes' own pod groups: the feature gates
// are on until the test ends, and the snapshot knows the groups. It is also returned, to try placements.
func NewNativeFramework(t *testing.T, groups []*schedulingv1beta1.PodGroup, composites []*schedulingv1alpha3.CompositePodGroup, pods []*corev1.Pod, nodes ...*corev1.Node) (framework.Framework, []fwk.NodeInfo, *schedcache.Snapshot) {
	t.Helper()
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		features.GenericWorkload:                 true,
		features.TopologyAwareWorkloadScheduling: true,
		features.CompositePodGroup:               len(composites) > 0,
	})
	snapshot := schedcache.NewTestSnapshotWithCompositePodGroups(pods, nodes, groups, composites)
	fw, infos := newFramework(t, Profile(names.GangScheduling), nil, snapshot)
	return fw, infos, snapshot
}

// PodGroup is a native pod group of the namespace of the test pods that needs so many members.
func PodGroup(name string, minCount int32) *schedulingv1beta1.PodGroup {
	g := &schedulingv1beta1.PodGroup{}
	g.Namespace, g.Name = "ns", name
	g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: minCount}
	return g
}

// InGroup makes pods members of a native pod group.
func InGroup(name string, pods ...*corev1.Pod) []*corev1.Pod {
	for _, p := range pods {
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
	}
	return pods
}

// GroupInfo is a native pod group in its scheduling cycle, with the members that wait.
func GroupInfo(group *schedulingv1beta1.PodGroup, waiting ...*corev1.Pod) fwk.PodGroupInfo {
	return &framework.PodGroupInfo{
		Namespace: group.Namespace, Name: group.Name, Type: fwk.PodGroupKeyType, PodGroup: group, UnscheduledPods: waiting,
	}
}

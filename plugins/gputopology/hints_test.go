package gputopology

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
)

func TestGroupChangesThatHelp(t *testing.T) {
	pl := &GPUTopology{}
	for _, test := range []struct {
		name   string
		change func(*schedulingv1beta1.PodGroup)
		want   fwk.QueueingHint
	}{
		{"nothing", func(*schedulingv1beta1.PodGroup) {}, fwk.QueueSkip},
		{"status", func(g *schedulingv1beta1.PodGroup) { g.ResourceVersion = "2" }, fwk.QueueSkip},
		{"another annotation", func(g *schedulingv1beta1.PodGroup) { g.Annotations = map[string]string{"a": "b"} }, fwk.QueueSkip},
		{"topology", func(g *schedulingv1beta1.PodGroup) {
			g.Annotations = map[string]string{podgroup.RequiredTopologyAnnotation: "rack"}
		}, fwk.Queue},
		{"fewer members", func(g *schedulingv1beta1.PodGroup) { g.Spec.SchedulingPolicy.Gang.MinCount = 1 }, fwk.Queue},
		{"another group", func(g *schedulingv1beta1.PodGroup) { g.Name = "other"; g.Spec.SchedulingPolicy.Gang.MinCount = 1 }, fwk.QueueSkip},
	} {
		old := stage.PodGroup("gang", 2)
		changed := old.DeepCopy()
		test.change(changed)
		pod := stage.InGroup("gang", stage.Pod(0, 1).Obj())[0]
		if got, err := pl.groupHelps(klog.Background(), pod, old, changed); got != test.want || err != nil {
			t.Errorf("%s: %v %v", test.name, got, err)
		}
	}
	if got, err := pl.groupHelps(klog.Background(), stage.InGroup("gang", stage.Pod(0, 1).Obj())[0], nil, stage.PodGroup("gang", 2)); got != fwk.Queue || err != nil {
		t.Errorf("a group that was made: %v %v", got, err)
	}
}

// Every refusal changes the member's status. If that woke the group, it would never rest.
func TestMemberChangesThatHelp(t *testing.T) {
	pl := &GPUTopology{}
	for _, test := range []struct {
		name   string
		change func(*corev1.Pod)
		want   fwk.QueueingHint
	}{
		{"the refusal", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
			p.ResourceVersion = "2"
		}, fwk.QueueSkip},
		{"another annotation", func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }, fwk.QueueSkip},
		{"topology", func(p *corev1.Pod) {
			p.Annotations = map[string]string{podgroup.RequiredTopologyAnnotation: "rack"}
		}, fwk.Queue},
		{"label", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, fwk.Queue},
		{"toleration", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "a"}} }, fwk.Queue},
		{"claim", func(p *corev1.Pod) {
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu"}}
		}, fwk.Queue},
	} {
		old := stage.Pod(0, 1).Obj()
		changed := old.DeepCopy()
		test.change(changed)
		if got, err := pl.memberHelps(klog.Background(), old, old, changed); got != test.want || err != nil {
			t.Errorf("%s: %v %v", test.name, got, err)
		}
	}
}

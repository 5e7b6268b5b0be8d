package gputopology

import (
	"fmt"
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

// A group that lacks two whole nodes is queued by the last GPU that it lacks, and by no event before.
func TestEventsThatHelpARefusedGroup(t *testing.T) {
	var others []*corev1.Pod
	for i := range 16 {
		others = append(others, stage.Pod(100+i, 1).Node(fmt.Sprintf("n%d", i/8)).Obj())
	}
	c := newCycle(t, "", 2, stage.Pods(2, 8, nil), others, stage.Nodes(2, 8)...)
	if _, status := c.generate(); status.Code() != fwk.Unschedulable {
		t.Fatalf("refused: %v", status)
	}
	ask := func(what string, want fwk.QueueingHint, hint func(pod *corev1.Pod) (fwk.QueueingHint, error)) {
		t.Helper()
		for _, pod := range c.waiting {
			if got, err := hint(pod); got != want || err != nil {
				t.Errorf("%s: %s is told %v %v", what, pod.Name, got, err)
			}
		}
	}
	logger := klog.Background()
	claim := &corev1.PersistentVolumeClaim{}
	ask("a claim, which no plugin asked about", fwk.QueueSkip, func(pod *corev1.Pod) (fwk.QueueingHint, error) {
		return c.pl.otherHelps(logger, pod, nil, claim)
	})
	bare := stage.Node("bare", 0).Obj()
	ask("a node without GPUs", fwk.QueueSkip, func(pod *corev1.Pod) (fwk.QueueingHint, error) { return c.pl.nodeHelps(logger, pod, nil, bare) })
	for i, other := range others {
		want := fwk.QueueSkip
		if i == len(others)-1 {
			want = fwk.Queue
		}
		ask(fmt.Sprintf("GPU %d is free", i), want, func(pod *corev1.Pod) (fwk.QueueingHint, error) { return c.pl.podHelps(logger, pod, other, nil) })
	}
	stranger := stage.InGroup("stranger", stage.Pod(50, 8).Obj())[0]
	if got, err := c.pl.podHelps(logger, stranger, others[0], nil); got != fwk.Queue || err != nil {
		t.Errorf("a group of which nothing is known: %v %v", got, err)
	}
}

// What cannot be stays so whatever happens to nodes and pods, until the group itself is changed.
func TestEventsDoNotHelpAGroupThatAsksForWhatCannotBe(t *testing.T) {
	c := newCycle(t, "", 2, stage.Pods(2, 8, nil), nil, stage.Nodes(2, 8)...)
	c.group.Annotations = map[string]string{podgroup.RequiredTopologyAnnotation: "example.com/row"}
	if _, status := c.generate(); status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Fatalf("refused: %v", status)
	}
	logger, pod := klog.Background(), c.waiting[0]
	if got, err := c.pl.nodeHelps(logger, pod, nil, stage.Node("new", 8).Obj()); got != fwk.QueueSkip || err != nil {
		t.Errorf("a node: %v %v", got, err)
	}
	if got, err := c.pl.podHelps(logger, pod, stage.Pod(100, 8).Node("n0").Obj(), nil); got != fwk.QueueSkip || err != nil {
		t.Errorf("a pod: %v %v", got, err)
	}
	right := c.group.DeepCopy()
	right.Annotations = nil
	if got, err := c.pl.groupHelps(logger, pod, c.group, right); got != fwk.Queue || err != nil {
		t.Errorf("the group: %v %v", got, err)
	}
	c.group.Annotations = nil
	c.planned()
	if got, err := c.pl.nodeHelps(logger, pod, nil, stage.Node("new", 8).Obj()); got != fwk.Queue || err != nil {
		t.Errorf("a node, after the group was planned and another plugin refused it: %v %v", got, err)
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

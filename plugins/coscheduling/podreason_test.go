package coscheduling

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// profile is a framework of which a test says whether the plugin filters.
type profile struct {
	framework.Framework
	filters bool
}

func (p *profile) ListPlugins() *schedconfig.Plugins {
	plugins := &schedconfig.Plugins{}
	if p.filters {
		plugins.Filter.Enabled = []schedconfig.Plugin{{Name: "Other"}, {Name: Name}}
	}
	return plugins
}

// fails is how kube-scheduler reports a pod that a plugin refused: before it looked at any node, or on one.
func fails(pod *corev1.Pod, before, on *fwk.Status) *fwk.Status {
	fit := &framework.FitError{Pod: pod, Diagnosis: framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}}
	if before != nil {
		fit.Diagnosis.NodeToStatus.SetAbsentNodesStatus(before)
	}
	if on != nil {
		fit.Diagnosis.NodeToStatus.Set("n0", on)
	}
	return fwk.NewStatus(fwk.Unschedulable).WithError(fit)
}

// written is the reason in PodScheduled that the scheduler would write for a failure.
func (p *play) written(pod *corev1.Pod, filters bool, status *fwk.Status) string {
	p.t.Helper()
	client := p.handle.ClientSet().(*clientsetfake.Clientset)
	_ = client.Tracker().Add(pod)
	handler := TellReasons(func(_ context.Context, fw framework.Framework, info *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, _ time.Time) {
		condition := &corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: status.Message()}
		if fw.APICacher() == nil {
			p.setCondition(pod, condition)
			return
		}
		done, err := fw.APICacher().PatchPodStatus(info.Pod, []*corev1.PodCondition{condition}, nominating)
		if err != nil || <-done != nil {
			p.t.Fatal(err)
		}
	})
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		p.t.Fatal(err)
	}
	handler(p.ctx, &profile{p.handle, filters}, &framework.QueuedPodInfo{PodInfo: info}, status, &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride}, time.Now())
	return p.reasonOn(pod)
}

func (p *play) setCondition(pod *corev1.Pod, condition *corev1.PodCondition) {
	p.t.Helper()
	pods := p.handle.ClientSet().CoreV1().Pods(pod.Namespace)
	got, err := pods.Get(p.ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	podutil.UpdatePodCondition(&got.Status, condition)
	if _, err := pods.UpdateStatus(p.ctx, got, metav1.UpdateOptions{}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *play) reasonOn(pod *corev1.Pod) string {
	p.t.Helper()
	got, err := p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Get(p.ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	_, c := podutil.GetPodCondition(&got.Status, corev1.PodScheduled)
	if c == nil {
		return ""
	}
	return c.Reason
}

// refusalStatus is what PreFilter says to a member.
func (p *play) refusalStatus(pod *corev1.Pod) *fwk.Status {
	p.t.Helper()
	p.snapshot()
	_, status := p.PreFilter(p.ctx, framework.NewCycleState(), pod, p.nodes)
	if !status.IsRejected() {
		p.t.Fatalf("%s is not refused: %v", pod.Name, status)
	}
	return status
}

func TestMembersAskForNodesOnlyIfNodesCouldHelp(t *testing.T) {
	for name, tc := range map[string]struct {
		group   func(*v1alpha1.PodGroup)
		members func([]*corev1.Pod)
		bound   bool
		want    string
	}{
		"no room":          {want: corev1.PodReasonUnschedulable},
		"no such node yet": {members: func(pods []*corev1.Pod) { pods[0].Spec.NodeSelector = map[string]string{"pool": "big"} }, want: corev1.PodReasonUnschedulable},
		"invalid topology": {group: func(g *v1alpha1.PodGroup) {
			g.Annotations = map[string]string{podgroup.RequiredTopologyAnnotation: "no-such-level"}
		}, want: ReasonInvalidTopology},
		"members disagree": {members: func(pods []*corev1.Pod) { pods[1].Spec.Priority = new(int32); *pods[1].Spec.Priority = 5 }, want: ReasonMembersDisagree},
		"tied to one node": {group: func(g *v1alpha1.PodGroup) {
			g.Annotations = map[string]string{podgroup.RequiredTopologyAnnotation: corev1.LabelHostname}
		}, bound: true, want: ReasonNoNodeHelps},
		"larger than any of them": {group: func(g *v1alpha1.PodGroup) {
			g.Annotations = map[string]string{podgroup.RequiredTopologyAnnotation: corev1.LabelHostname}
		}, want: corev1.PodReasonUnschedulable},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, stage.Nodes(1, 8)...)
			group := p.group(2)
			if tc.group != nil {
				tc.group(group)
			}
			pods := p.wholeNodeMembers(2)
			if tc.bound {
				p.keep("n0", nil)
				pods[0] = p.see(pods[0], with(pods[0], func(pod *corev1.Pod) { pod.Spec.NodeName = "n0" }))
			}
			if tc.members != nil {
				tc.members(pods)
			}
			waiting := pods[1]
			if got := p.written(waiting, true, fails(waiting, p.refusalStatus(waiting), nil)); got != tc.want {
				t.Errorf("the one that stands for the gang: reason %q, want %q (%s)", got, tc.want, p.gangs.refusalOf(testKey).message)
			}
			if tc.bound {
				return
			}
			if got := p.written(pods[0], true, fails(pods[0], p.refusalStatus(pods[0]), nil)); got != tc.want {
				t.Errorf("the one behind it: reason %q, want %q", got, tc.want)
			}
		})
	}
}

func TestMembersWithAPlaceAskForNoNodes(t *testing.T) {
	p := newPlay(t, stage.Nodes(2, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(3)
	if node, _ := p.turn(pods[0]); node == "" {
		t.Fatal("no plan")
	}
	if got := p.written(pods[2], true, fails(pods[2], p.refusalStatus(pods[2]), nil)); got != ReasonBeingPlaced {
		t.Errorf("a member that comes after the others: %q", got)
	}
	refused := fwk.NewStatus(fwk.Unschedulable, "taken").WithPlugin("Other")
	if got := p.written(pods[0], true, fails(pods[0], nil, refused)); got != ReasonLetGo {
		t.Errorf("a member that lost its place: %q", got)
	}
	if got := p.written(pods[1], false, fails(pods[1], nil, refused)); got != corev1.PodReasonUnschedulable {
		t.Errorf("a member where the plugin does not filter is a pod like any other: %q", got)
	}
}

func TestOtherFailuresStayAsTheyAre(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	single := stage.Pod(7, 8).Obj()
	if got := p.written(single, true, fails(single, nil, fwk.NewStatus(fwk.Unschedulable, "full"))); got != corev1.PodReasonUnschedulable {
		t.Errorf("a pod without a gang: %q", got)
	}
	member := stage.Pod(8, 8).Label(v1alpha1.GroupLabel, testKey.Name).Obj()
	if got := p.written(member, true, fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(errors.New("no nodes available"))); got != corev1.PodReasonUnschedulable {
		t.Errorf("a member of a gang in a cluster without nodes: %q", got)
	}
}

// asked marks pods as the scheduler does when it refuses them.
func (p *play) asked(reason string, pods ...*corev1.Pod) {
	p.t.Helper()
	for i, pod := range pods {
		asks := with(pod, func(pod *corev1.Pod) {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason}}
		})
		if err := p.handle.ClientSet().(*clientsetfake.Clientset).Tracker().Add(asks); err != nil {
			p.t.Fatal(err)
		}
		pods[i] = p.see(pod, asks)
	}
}

func (p *play) statusWrites() (n int) {
	for _, action := range p.handle.ClientSet().(*clientsetfake.Clientset).Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok && patch.GetSubresource() == "status" {
			n++
		}
	}
	return n
}

func TestMembersBehindTheRepresentativeLearnOfAnotherReason(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	p.background = func(do func()) { do() }
	group := p.group(3)
	pods := p.wholeNodeMembers(3)
	p.refusalStatus(pods[0])
	p.asked(corev1.PodReasonUnschedulable, pods...)
	p.refusalStatus(pods[0])
	if n := p.statusWrites(); n != 0 {
		t.Fatalf("%d writes although nothing is new", n)
	}
	group.Annotations = map[string]string{podgroup.RequiredTopologyAnnotation: "no-such-level"}
	p.refusalStatus(pods[0])
	if a, b := p.reasonOn(pods[1]), p.reasonOn(pods[2]); a != ReasonInvalidTopology || b != ReasonInvalidTopology {
		t.Errorf("the others say %q and %q", a, b)
	}
	if n := p.statusWrites(); n != 2 {
		t.Errorf("%d writes, want one for each member but the representative, which the scheduler tells", n)
	}
}

func TestMembersOfAnIncompleteGangStopAsking(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	p.background = func(do func()) { do() }
	p.group(3)
	pods := p.wholeNodeMembers(3)
	p.refusalStatus(pods[0])
	p.asked(corev1.PodReasonUnschedulable, pods...)
	p.podDeleted(p.logger, pods[0])
	p.clock.Step(incompleteGrace / 2)
	replacement := with(pods[0], func(pod *corev1.Pod) { pod.UID, pod.Name = "new", "new" })
	p.see(nil, replacement)
	p.clock.Step(incompleteGrace)
	if n := p.statusWrites(); n != 0 {
		t.Fatalf("%d writes although the member was replaced", n)
	}
	p.podDeleted(p.logger, replacement)
	p.clock.Step(incompleteGrace)
	for _, pod := range pods[1:] {
		if got := p.reasonOn(pod); got != ReasonIncomplete {
			t.Errorf("%s still says %q", pod.Name, got)
		}
	}
	p.podDeleted(p.logger, pods[1])
	p.podDeleted(p.logger, pods[2])
	p.clock.Step(time.Hour)
	if p.gangs.refusalOf(testKey) != nil || len(p.gangs.byKey) != 0 {
		t.Error("a gang without members is remembered")
	}
}

func TestASchedulerThatWaitsForItsLeaseTellsNobody(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	p.background = func(do func()) { do() }
	p.group(3)
	pods := p.wholeNodeMembers(2)
	p.asked(corev1.PodReasonUnschedulable, pods...)
	p.clock.Step(incompleteGrace)
	if n := p.statusWrites(); n != 0 {
		t.Fatalf("%d writes by a scheduler that does not lead", n)
	}
	p.leads.Store(true)
	p.clock.Step(incompleteGrace)
	if got := p.reasonOn(pods[0]); got != ReasonIncomplete {
		t.Errorf("after it leads: %q", got)
	}
}

func TestTellingIsTriedAgain(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	p.background = func(do func()) { do() }
	p.leads.Store(true)
	p.group(3)
	pods := p.wholeNodeMembers(2)
	p.asked(corev1.PodReasonUnschedulable, pods...)
	failing := true
	p.handle.ClientSet().(*clientsetfake.Clientset).PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failing, nil, errors.New("down")
	})
	p.clock.Step(incompleteGrace)
	failing = false
	if got := p.reasonOn(pods[0]); got != corev1.PodReasonUnschedulable {
		t.Fatalf("written although the API server is down: %q", got)
	}
	p.clock.Step(incompleteGrace)
	if a, b := p.reasonOn(pods[0]), p.reasonOn(pods[1]); a != ReasonIncomplete || b != ReasonIncomplete {
		t.Errorf("not tried again: %q, %q", a, b)
	}
}

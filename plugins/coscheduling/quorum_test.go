package coscheduling

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// A Job replaces a pod that is being deleted. If that one then succeeds after all, two pods are there for one
// place, and both together are one member.
func TestPodsOfOnePlaceCountOnce(t *testing.T) {
	for nodes, fits := range map[int]bool{2: false, 3: true} {
		p := newPlay(t, stage.Nodes(nodes, 8)...)
		p.group(3)
		job := []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "job", Controller: ptr.To(true)}}
		pods := stage.Pods(4, 8, func(w *st.PodWrapper) *st.PodWrapper {
			return w.Label(v1alpha1.GroupLabel, testKey.Name).SchedulerName("test")
		})
		for i, index := range []string{"0", "0", "1", "2"} {
			pods[i].Labels[batchv1.JobCompletionIndexAnnotation] = index
			pods[i].OwnerReferences = job
			if i == 0 {
				pods[i].Spec.NodeName, pods[i].Status.Phase = "elsewhere", corev1.PodSucceeded
			}
			p.see(nil, pods[i])
		}
		if _, why := p.turn(pods[1]); (why == "") != fits {
			t.Errorf("%d nodes for the three members that wait: %q", nodes, why)
		}
	}
}

// A gang that is planned beside members on their way to their nodes must not bind without them.
func TestMembersThatLoseTheirPlacesWhileOthersTakeTheirs(t *testing.T) {
	p := newPlay(t, stage.Nodes(4, 8)...)
	p.group(4)
	pods := p.wholeNodeMembers(4)
	for i, pod := range pods {
		if binds := p.follow(pod); binds != (i == 3) {
			t.Fatalf("%s binds: %v", pod.Name, binds)
		}
	}
	p.Unreserve(p.ctx, framework.NewCycleState(), pods[0], "n0") // its binding failed
	node, why := p.turn(pods[0])
	if why != "" {
		t.Fatal(why)
	}
	p.Unreserve(p.ctx, framework.NewCycleState(), pods[1], "n1")
	if status := p.Reserve(p.ctx, framework.NewCycleState(), pods[0], node); status.IsSuccess() {
		if status, _ := p.Permit(p.ctx, framework.NewCycleState(), pods[0], node); status.IsSuccess() || status.IsWait() {
			t.Fatalf("binds beside two of the three others that the gang needs: %v", status)
		}
		p.Unreserve(p.ctx, framework.NewCycleState(), pods[0], node)
	}
	if held := p.gangs.held(testKey, 0); len(held) > 0 {
		t.Errorf("still held: %v", held)
	}
	p.clock.Step(lastRetry)
	if _, why := p.turn(pods[0]); why == "" {
		t.Error("planned with a member that the scheduler lets pause after its binding failed")
	}
	if _, why := p.turn(pods[1]); why != "" {
		t.Errorf("not planned when that one's turn comes: %s", why)
	}
}

// Members that were placed before the gang asked for one rack, in two of them, keep the others out of both. Once
// one of them is gone the gang may fit again.
func TestMemberThatKeptTheOthersOutGoes(t *testing.T) {
	for name, end := range map[string]func(p *play, pod *corev1.Pod){
		"deleted": func(p *play, pod *corev1.Pod) { p.podDeleted(p.logger, pod) },
		"being deleted": func(p *play, pod *corev1.Pod) {
			p.see(pod, with(pod, func(pod *corev1.Pod) { pod.DeletionTimestamp = ptr.To(metav1.Now()) }))
		},
		"failed": func(p *play, pod *corev1.Pod) {
			p.see(pod, with(pod, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newRackedPlay(t, 1, 2)
			p.group(1)
			pods := p.wholeNodeMembers(3)
			for i, node := range []string{"a0", "b0"} {
				pods[i] = p.see(pods[i], with(pods[i], func(pod *corev1.Pod) { pod.Spec.NodeName, pod.Status.Phase = node, corev1.PodRunning }))
			}
			p.ask(requireTopology("rack"))
			if _, why := p.turn(pods[2]); why == "" {
				t.Fatal("a third member beside two in different racks")
			}
			p.inLine()
			end(p, pods[0])
			p.mustBeInLine("ns/m-2")
			if node, why := p.turn(pods[2]); !strings.HasPrefix(node, "b") {
				t.Errorf("node %q: %s", node, why)
			}
		})
	}
}

// A member is beyond the minimum only while those that finished are there.
func TestFinishedMemberThatIsRemoved(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 0)...)
	p.group(2)
	pods := p.wholeNodeMembers(3)
	pods[0] = p.see(pods[0], with(pods[0], func(pod *corev1.Pod) { pod.Spec.NodeName, pod.Status.Phase = "n0", corev1.PodRunning }))
	pods[1] = p.see(pods[1], with(pods[1], func(pod *corev1.Pod) { pod.Spec.NodeName, pod.Status.Phase = "n0", corev1.PodSucceeded }))
	if _, why := p.turn(pods[2]); why == "" {
		t.Fatal("a third member without room")
	}
	p.inLine()
	p.podDeleted(p.logger, pods[1])
	p.mustBeInLine("ns/m-2")
	if _, why := p.turn(pods[2]); why == "" {
		t.Fatal("a member without room")
	}
	if got := p.report.wanted[testKey][v1alpha1.ConditionUnschedulable]; got.status != metav1.ConditionTrue {
		t.Errorf("the PodGroup says %+v of a gang under its minimum", got)
	}
}

// A member that somebody else has bound takes its room before the scheduler's snapshot shows it there.
func TestMemberBoundElsewhereBeforeTheSnapshotShowsIt(t *testing.T) {
	p := newPlay(t, stage.Nodes(2, 8)...)
	p.group(3)
	pods := p.wholeNodeMembers(3)
	if node, _ := p.turn(pods[1]); node != "" {
		t.Fatalf("three on two nodes, one of them on %s", node)
	}
	pods[0] = p.see(pods[0], with(pods[0], func(pod *corev1.Pod) { pod.Spec.NodeName = "n0" }))
	if node, why := p.turnBefore(pods[1]); node != "" || !strings.Contains(why, `yet to see member "m-0"`) {
		t.Errorf("node %q: %s", node, why)
	}
	if hint, err := p.otherHelps(p.logger, pods[1], nil, pods[0]); err != nil || hint != fwk.Queue {
		t.Errorf("when the snapshot shows it: %v, %v", hint, err)
	}
	if node, why := p.turn(pods[1]); node != "" || !strings.Contains(why, "2 more members beside 1 placed") {
		t.Errorf("node %q: %s", node, why)
	}
}

// The scheduler's informer may show so before the index of members and the snapshot do.
func TestMemberBoundElsewhereBeforeTheIndexShowsIt(t *testing.T) {
	p := newPlay(t, stage.Nodes(2, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(2)
	bound := with(pods[0], func(pod *corev1.Pod) { pod.Spec.NodeName = "n0" })
	if err := p.handle.SharedInformerFactory().Core().V1().Pods().Informer().GetStore().Update(bound); err != nil {
		t.Fatal(err)
	}
	if node, why := p.turnBefore(pods[1]); node != "" || !strings.Contains(why, `yet to see member "m-0"`) {
		t.Errorf("node %q: %s", node, why)
	}
	p.inLine()
	p.see(pods[0], bound)
	p.mustBeInLine("ns/m-1")
	if node, why := p.turn(pods[1]); node != "n1" {
		t.Errorf("node %q: %s", node, why)
	}
}

// A commit that is planned anew minds a member that was bound elsewhere, too.
func TestCommitPlannedAnewBeforeTheSnapshotShowsAMember(t *testing.T) {
	p := newPlay(t, stage.Nodes(3, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(3)
	node, _ := p.turn(pods[0])
	open, _, _ := p.gangs.replan(testKey, pods[0].UID)
	p.see(nil, with(stage.Pod(7, 8).Label(v1alpha1.GroupLabel, testKey.Name).SchedulerName("test").Obj(), func(pod *corev1.Pod) { pod.Spec.NodeName = node }))
	seats, why, err := p.replan(p.ctx, testKey, open)
	if err != nil || len(seats) > 0 || !strings.Contains(why, `yet to see member "m-7"`) {
		t.Errorf("%d seats, %q, %v", len(seats), why, err)
	}
}

// A member that the scheduler is yet to see may go instead: who was told to wait for it is to be tried again.
func TestMemberThatIsNeverSeenGoes(t *testing.T) {
	p := newPlay(t, stage.Nodes(2, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(2)
	if err := p.handle.SharedInformerFactory().Core().V1().Pods().Informer().GetStore().Delete(pods[0]); err != nil {
		t.Fatal(err)
	}
	if _, why := p.turn(pods[1]); !strings.Contains(why, "yet to be seen") {
		t.Fatal(why)
	}
	p.inLine()
	p.podDeleted(p.logger, pods[0])
	p.mustBeInLine("ns/m-1")
}

// A member that could not be bound, and whose own turn comes while others take their places, is tried again after them.
func TestMemberThatCouldNotBeBoundHasItsTurnDuringACommit(t *testing.T) {
	p := newPlay(t, stage.Nodes(4, 8)...)
	p.group(2)
	pods := p.wholeNodeMembers(3)
	for i, pod := range pods {
		if binds := p.follow(pod); binds != (i == 2) {
			t.Fatalf("%s binds: %v", pod.Name, binds)
		}
	}
	for _, pod := range pods {
		p.unreserve(pod) // its binding failed
	}
	for _, i := range []int{0, 2} {
		p.gangs.pausesNoMore(testKey, pods[i].UID)
	}
	p.follow(pods[0])
	if _, why := p.turn(pods[1]); !strings.Contains(why, "comes after it") {
		t.Fatal(why)
	}
	p.inLine()
	p.follow(pods[2])
	p.mustBeInLine("ns/m-1")
}

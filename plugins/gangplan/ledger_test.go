package gangplan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup/planner"
)

func (s *scene) refusedWatch(t *testing.T, members, gpus int) *Watch {
	t.Helper()
	d, err := s.cluster.NewDemand(klog.Background(), stage.Pods(members, gpus, func(p *st.PodWrapper) *st.PodWrapper { return p.Name("waits") }), members, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, e, err := Plan(t.Context(), s.fw, s.cluster, d, nil)
	if err != nil || e == nil {
		t.Fatal("not refused", err)
	}
	return s.cluster.Watch(d, e)
}

func on0(i, gpus int) *corev1.Pod { return stage.Pod(i, gpus).Node("n0").Obj() }

func gone(t *testing.T, i, gpus int) *Freed {
	t.Helper()
	freed, err := FreedBy(on0(i, gpus), nil)
	if err != nil {
		t.Fatal(err)
	}
	return freed
}

func gpusLeft(amounts []planner.ResourceAmount) int64 {
	for _, a := range amounts {
		if a.Name == stage.GPU {
			return a.Value
		}
	}
	return -1
}

// Pods that came after the model was last synced give nothing back that it had not counted as left,
// however many of them come and go.
func TestLedgerForgetsPodsThatCameAndWent(t *testing.T) {
	s := newScene(t, nil, []*corev1.Pod{on0(50, 4)}, stage.Nodes(1, 8)...)
	w := s.refusedWatch(t, 1, 8)
	for i := range 100 {
		if w.PodHelps(gone(t, 100+i, 1)) {
			t.Fatalf("pod %d came and went, and the gang is to be planned for 8 GPUs where 4 are in use", i)
		}
	}
	if n := len(s.cluster.ledger.nodes["n0"].gone); n != 0 {
		t.Errorf("%d pods that came and went are remembered", n)
	}
	if !w.PodHelps(gone(t, 50, 4)) {
		t.Error("the pod that was in the way went, and the gang is not to be planned")
	}
}

// A gang that was refused beside what another one claimed hears of the end of the pod that took it, although the model
// was not synced while that ran.
func TestLedgerOfPodsThatTookWhatWasClaimed(t *testing.T) {
	s := newScene(t, nil, nil, stage.Nodes(2, 8)...)
	claim, err := ClaimOf(on0(60, 8), "n0")
	if err != nil {
		t.Fatal(err)
	}
	release := s.cluster.Hold([]Claim{claim})
	w := s.refusedWatch(t, 2, 8)
	release()
	if !w.PodHelps(gone(t, 60, 8)) {
		t.Error("who claimed the node is gone, and the gang is not to be planned")
	}
}

// A gang that was refused beside a claim is not thought to have had the room of the claim before: what another pod gives
// back there, once the claim is used, is room that it had not.
func TestLedgerOfRoomBesideAClaim(t *testing.T) {
	s := newScene(t, nil, []*corev1.Pod{on0(50, 2), on0(51, 2)}, stage.Nodes(1, 8)...)
	claim, err := ClaimOf(on0(60, 2), "n0")
	if err != nil {
		t.Fatal(err)
	}
	release := s.cluster.Hold([]Claim{claim})
	w := s.refusedWatch(t, 1, 4)
	release()
	if !w.PodHelps(gone(t, 50, 2)) {
		t.Error("two of eight are used and two claimed, and the gang of four is not to be planned")
	}
}

// The scheduler's queue replays events to a gang that was being planned when they came.
func TestLedgerCountsAnEventOnce(t *testing.T) {
	s := newScene(t, nil, []*corev1.Pod{on0(50, 8), on0(51, 4)}, stage.Nodes(1, 16)...)
	first, second := s.refusedWatch(t, 1, 12), s.refusedWatch(t, 1, 12)
	if !first.PodHelps(gone(t, 50, 8)) {
		t.Error("8 GPUs of the 12 that a member needs, besides 4 that were left")
	}
	first.PodHelps(gone(t, 51, 4))
	if !second.PodHelps(gone(t, 50, 8)) {
		t.Error("the same, told later")
	}
	if got := gpusLeft(s.cluster.ledger.after(gone(t, 51, 4)).Free); got != 16 {
		t.Errorf("%d GPUs are left of 16", got)
	}
}

// An event is often told after the snapshot that shows it: what the node has left may not be counted
// twice, and a gang that was refused before must still hear of it.
func TestLedgerOfEventsToldLate(t *testing.T) {
	s := newScene(t, nil, []*corev1.Pod{on0(50, 8), on0(51, 4)}, stage.Nodes(1, 16)...)
	w := s.refusedWatch(t, 1, 12)
	s.fw, s.nodes = stage.NewFramework(t, []*corev1.Pod{on0(51, 4)}, stage.Nodes(1, 16)...)
	s.cluster.Sync(s.nodes)
	late := gone(t, 50, 8)
	if got := gpusLeft(s.cluster.ledger.after(late).Free); got != 12 {
		t.Errorf("%d GPUs are left, want 12", got)
	}
	if !w.PodHelps(late) {
		t.Error("8 GPUs of the 12 that a member needs, besides 4 that were left")
	}
}

// The scheduler tells of a pod that is deleted at Permit twice: when its wait ends, and when it has given its place back.
// A snapshot in between shows it, maybe for the first time.
func TestLedgerOfPodsToldTwice(t *testing.T) {
	s := newScene(t, nil, nil, stage.Nodes(1, 8)...)
	before := s.refusedWatch(t, 2, 8)
	leaves := gone(t, 50, 4)
	if before.PodHelps(leaves) {
		t.Error("the node was free before it came")
	}
	s.fw, s.nodes = stage.NewFramework(t, []*corev1.Pod{on0(50, 4)}, stage.Nodes(1, 8)...)
	s.cluster.Sync(s.nodes)
	w := s.refusedWatch(t, 1, 8)
	if !w.PodHelps(leaves) {
		t.Error("the pod that was in the way went, and the gang is not to be planned")
	}
}

// Of a pod that came to use less it is not known whether the last snapshot shows that.
func TestLedgerOfPodsThatUseLess(t *testing.T) {
	s := newScene(t, nil, []*corev1.Pod{on0(50, 8), on0(51, 4)}, stage.Nodes(1, 16)...)
	w := s.refusedWatch(t, 1, 12)
	less, err := FreedBy(on0(50, 8), on0(50, 1))
	if err != nil {
		t.Fatal(err)
	}
	if change := s.cluster.ledger.after(less); change.Free != nil || gpusLeft(change.Freed) != 7 {
		t.Errorf("%+v", change)
	}
	w.PodHelps(less)
	if !w.PodHelps(gone(t, 50, 1)) {
		t.Error("the pod used less, then went, and the gang is not to be planned")
	}
}

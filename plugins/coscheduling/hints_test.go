package coscheduling

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// waitingGangs are gangs of two members of 8 GPUs each that were refused on full nodes, and their
// representatives.
func waitingGangs(tb testing.TB, n, nodes int) (*Coscheduling, []*corev1.Pod) {
	tb.Helper()
	var running []*corev1.Pod
	for i := range nodes {
		for k := range 8 {
			running = append(running, stage.Pod(1000000+8*i+k, 1).Node(fmt.Sprintf("n%d", i)).Obj())
		}
	}
	fw, infos := stage.NewFramework(tb, running, stage.Nodes(nodes, 8)...)
	pl := &Coscheduling{handle: fw, cluster: gangplan.NewCluster(nil), gangs: newGangs(), holds: newHolds(), repairs: newRepairs(), provisioning: newProvisioning(), clock: &handClock{}}
	pl.groups = cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	pl.cluster.Use(fw)
	pl.cluster.Sync(infos)
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		key := types.NamespacedName{Namespace: "ns", Name: fmt.Sprintf("gang-%d", i)}
		members := []*corev1.Pod{
			stage.Pod(2*i, 8).Label(v1alpha1.GroupLabel, key.Name).Obj(), stage.Pod(2*i+1, 8).Label(v1alpha1.GroupLabel, key.Name).Obj(),
		}
		d, err := pl.cluster.NewDemand(klog.Background(), members, 2, nil)
		if err != nil {
			tb.Fatal(err)
		}
		_, e, err := gangplan.Plan(tb.Context(), fw, pl.cluster, d, nil)
		if err != nil || e == nil {
			tb.Fatal("not refused", err)
		}
		r := pl.unplaced(key, d, e)
		r.representative, r.members = members[0].UID, map[types.UID]version{members[0].UID: {}, members[1].UID: {}}
		pl.gangs.refuse(key, r)
		pods[i] = members[0]
	}
	return pl, pods
}

// Single pods that come and go cost no plan of a waiting gang until two whole nodes could be free.
func TestChurnCostsWaitingGangsNoPlans(t *testing.T) {
	const gangs, nodes = 2000, 64
	pl, pods := waitingGangs(t, gangs, nodes)
	started, asked := time.Now(), 0
	queued := func(node, pod int) (queued int) {
		gone := stage.Pod(1000000+8*node+pod, 1).Node(fmt.Sprintf("n%d", node)).Obj()
		for _, p := range pods {
			hint, err := pl.podHelps(klog.Background(), p, gone, nil)
			if err != nil {
				t.Fatal(err)
			}
			asked++
			if hint == fwk.Queue {
				queued++
			}
		}
		return queued
	}
	for pod := range 8 {
		for node := range 2 {
			want := 0
			if pod == 7 && node == 1 {
				want = gangs
			}
			if got := queued(node, pod); got != want {
				t.Errorf("%d GPUs of node %d became free: %d of %d gangs are to be planned, want %d", pod+1, node, got, gangs, want)
			}
		}
	}
	took := time.Since(started)
	t.Logf("%d hints, %v each", asked, took/time.Duration(asked))
	pl, pods = waitingGangs(t, 1, nodes)
	if hint, _ := pl.nodeHelps(klog.Background(), pods[0], nil, stage.Node("small", 4).Obj()); hint != fwk.QueueSkip {
		t.Error("a node that is too small for a member came, and the gang is to be planned")
	}
	for i := range 2 {
		hint, _ := pl.nodeHelps(klog.Background(), pods[0], nil, stage.Node(fmt.Sprintf("large-%d", i), 8).Obj())
		if want := i == 1; (hint == fwk.Queue) != want {
			t.Errorf("node %d of the two that the gang needs came: %v", i+1, hint)
		}
	}
}

func BenchmarkHint(b *testing.B) {
	pl, pods := waitingGangs(b, 2000, 64)
	gone := stage.Pod(1000000, 1).Node("n0").Obj()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := pl.podHelps(klog.Background(), pods[i%len(pods)], gone, nil); err != nil {
			b.Fatal(err)
		}
	}
}

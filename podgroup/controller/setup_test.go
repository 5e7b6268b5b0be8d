package controller

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// delays is a work queue that hands what is added later to a channel instead.
type delays struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added chan delay
}

type delay struct {
	group string
	after time.Duration
}

func newDelays(t *testing.T) *delays {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	return &delays{TypedRateLimitingInterface: queue, added: make(chan delay, 100)}
}

func (d *delays) AddAfter(request reconcile.Request, after time.Duration) {
	d.added <- delay{request.String(), after}
}

// next returns what was added next.
func (d *delays) next(t *testing.T) delay {
	t.Helper()
	select {
	case next := <-d.added:
		return next
	case <-time.After(30 * time.Second):
		t.Fatal("waited for 30 seconds in vain")
		return delay{}
	}
}

func TestPodSourceQueuesTheGroupsOfPods(t *testing.T) {
	pod := newPods("ns", 1)[0]
	clientset := kubefake.NewClientset(pod)
	informer := podgroup.NewPodInformer(clientset, 0)
	src := podSource{informer: informer}
	queue := newDelays(t)

	ctx, cancel := context.WithCancel(t.Context())
	if err := src.Start(ctx, queue); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := (runInformer{informer}).Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	if err := src.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}

	want := func(when, group string) {
		t.Helper()
		if got := queue.next(t); got != (delay{group, batchPeriod}) {
			t.Errorf("%s: queued %v, want %s after %s", when, got, group, batchPeriod)
		}
	}
	update := func(change func(*corev1.Pod)) {
		t.Helper()
		change(pod)
		if _, err := clientset.CoreV1().Pods("ns").Update(ctx, pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	want("created", "ns/gang")
	update(func(pod *corev1.Pod) { pod.Spec.NodeName = "node-1" })
	want("bound", "ns/gang")
	update(func(pod *corev1.Pod) { pod.Annotations = map[string]string{"note": "x"} })
	update(func(pod *corev1.Pod) { pod.Labels[v1alpha1.GroupLabel] = "other" })
	want("moved, and not queued for a note before that", "ns/gang")
	want("moved", "ns/other")
	if err := clientset.CoreV1().Pods("ns").Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want("deleted", "ns/other")
}

func TestPodSourceWaitsForTheFirstList(t *testing.T) {
	clientset := kubefake.NewClientset()
	listing, release := make(chan struct{}), make(chan struct{})
	clientset.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		listing <- struct{}{}
		<-release
		return false, nil, nil
	})
	informer := podgroup.NewPodInformer(clientset, 0)
	src := podSource{informer: informer}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	<-listing

	hurried, giveUp := context.WithCancel(ctx)
	giveUp()
	if err := src.WaitForSync(hurried); err == nil {
		t.Error("synced before the pods were listed")
	}
	close(release)
	if err := src.WaitForSync(ctx); err != nil {
		t.Error(err)
	}
}

func TestTheInformerRunsWithoutLeadership(t *testing.T) {
	if (runInformer{}).NeedLeaderElection() {
		t.Error("a new leader would have to list all pods first")
	}
}

func TestPodHandlerIgnoresOtherObjects(t *testing.T) {
	queue := newDelays(t)
	pod, node := newPods("ns", 1)[0], &corev1.Node{}
	podHandler().Create(t.Context(), event.CreateEvent{Object: node}, queue)
	podHandler().Update(t.Context(), event.UpdateEvent{ObjectOld: node, ObjectNew: pod}, queue)
	podHandler().Delete(t.Context(), event.DeleteEvent{Object: node}, queue)
	if n := len(queue.added); n != 0 {
		t.Errorf("%d groups were queued, want none", n)
	}
}

func TestSetupRefusesOptionsThatCannotBeFollowed(t *testing.T) {
	for _, test := range []struct {
		opts Options
		want string
	}{
		{Options{TTLAfterFinished: ptr.To(-time.Second)}, "TTLAfterFinished"},
		{Options{MaxConcurrentReconciles: -1}, "MaxConcurrentReconciles"},
		{Options{Rendezvous: podgroup.RendezvousPolicy{Timeout: -1}}, "Rendezvous: Timeout"},
		{Options{Rendezvous: podgroup.RendezvousPolicy{Limit: -1}}, "Rendezvous: Limit"},
		{Options{Rendezvous: podgroup.RendezvousPolicy{Backoff: time.Minute}}, "Rendezvous: MaxBackoff"},
	} {
		var mgr ctrl.Manager // not reached
		if err := SetupWithManager(mgr, test.opts); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error is %v, want one that names %s", err, test.want)
		}
	}
	if err := (Options{TTLAfterFinished: ptr.To(time.Duration(0))}).validate(); err != nil {
		t.Errorf("removal at once is refused: %v", err)
	}
}

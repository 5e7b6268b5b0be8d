package preemption

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	apipod "k8s.io/kubernetes/pkg/api/v1/pod"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"
)

// evictionTimeout bounds the requests that evict the victims of one gang.
const evictionTimeout = 2 * time.Minute

// Preemptor is the gang that pods are evicted for.
type Preemptor struct {
	Key types.NamespacedName
	// Object is its PodGroup, with its kind.
	Object        runtime.Object
	Priority      int32
	SchedulerName string
	// Plugin is who evicts.
	Plugin string
}

// Evictor takes pods off their nodes, away from the scheduling cycle. It is safe for concurrent use.
type Evictor struct {
	handle fwk.Handle
	// background runs, at some time, what must not hold up the scheduling cycle.
	background func(func())

	mu sync.Mutex
	// evicted are pods whose eviction has begun and has not failed, until they are gone.
	evicted map[types.UID]struct{}
}

// NewEvictor returns an evictor that works through the scheduler's client, in the background.
func NewEvictor(handle fwk.Handle, background func(func())) *Evictor {
	return &Evictor{handle: handle, background: background, evicted: map[types.UID]struct{}{}}
}

// Evicted reports whether a pod is on its way out, although its object may not show that yet.
func (e *Evictor) Evicted(uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.evicted[uid]
	return ok
}

// Gone forgets a pod that no longer exists.
func (e *Evictor) Gone(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.evicted, uid)
}

// Evict evicts the units in the background. It calls done when the API server has been told of all of them, or with
// what went wrong.
//
// All of them are evicted or none, as far as the API goes: it is asked first for one pod of each unit whether
// it would delete it, then told of all of them that they are targets of a disruption, and if any of that fails
// no pod is deleted. Once one fails later, no more units are evicted than those that have begun.
func (e *Evictor) Evict(logger klog.Logger, by Preemptor, units []*Unit, done func(error)) {
	e.mu.Lock()
	for _, u := range units {
		for _, info := range u.Members {
			e.evicted[info.GetPod().UID] = struct{}{}
		}
	}
	e.mu.Unlock()
	e.background(func() {
		ctx, cancel := context.WithTimeout(klog.NewContext(context.Background(), logger), evictionTimeout)
		defer cancel()
		err := e.evict(ctx, by, units)
		if err != nil {
			failures.Inc()
			logger.Error(err, "Preempting for a gang", "podGroup", by.Key)
		}
		done(err)
	})
}

func (e *Evictor) evict(ctx context.Context, by Preemptor, units []*Unit) error {
	ending := map[types.UID]bool{}
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, u := range units {
			for _, info := range u.Members {
				if uid := info.GetPod().UID; !ending[uid] {
					delete(e.evicted, uid)
				}
			}
		}
	}()
	var first, all []*corev1.Pod
	for _, u := range units {
		first = append(first, u.Members[0].GetPod())
		all = append(all, podsOf(u)...)
	}
	if err := e.each(ctx, first, func(pod *corev1.Pod) error {
		_, err := e.delete(ctx, pod, metav1.DryRunAll)
		return err
	}); err != nil {
		return err
	}
	if err := e.each(ctx, all, func(pod *corev1.Pod) error { return e.announce(ctx, by, pod) }); err != nil {
		return err
	}
	return e.removeAll(ctx, by, units, ending)
}

// removeAll takes the units off their nodes, several pods at a time, and notes those that end. If it fails for a pod, no
// other unit is begun; one that has begun is of no use any more, and goes whole.
func (e *Evictor) removeAll(ctx context.Context, by Preemptor, units []*Unit, ending map[types.UID]bool) error {
	var pods []*corev1.Pod
	unitOf := map[types.UID]*Unit{}
	for _, u := range units {
		for _, pod := range podsOf(u) {
			pods, unitOf[pod.UID] = append(pods, pod), u
		}
	}
	var mu sync.Mutex
	failed, begun := false, map[*Unit]bool{}
	stays := func(u *Unit) bool {
		mu.Lock()
		defer mu.Unlock()
		begun[u] = begun[u] || !failed
		return !begun[u]
	}
	return e.each(ctx, pods, func(pod *corev1.Pod) error {
		if stays(unitOf[pod.UID]) {
			return nil
		}
		ends, err := e.remove(ctx, by, pod)
		mu.Lock()
		defer mu.Unlock()
		ending[pod.UID], failed = ends, failed || err != nil
		return err
	})
}

func podsOf(u *Unit) []*corev1.Pod {
	pods := make([]*corev1.Pod, len(u.Members))
	for i, info := range u.Members {
		pods[i] = info.GetPod()
	}
	return pods
}

// each does something for all pods, as many at a time as the scheduler does, also if it fails for one of them. It
// returns the first error, and how many there are.
func (e *Evictor) each(ctx context.Context, pods []*corev1.Pod, do func(*corev1.Pod) error) error {
	errs := make([]error, len(pods))
	e.handle.Parallelizer().Until(ctx, len(pods), func(i int) { errs[i] = do(pods[i]) }, "GangPreemption")
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return ctx.Err()
	case 1:
		return errs[0]
	}
	return fmt.Errorf("%w, and %d more failed", errs[0], len(errs)-1)
}

// delete asks the API server to delete this very pod, and reports whether it is there to be deleted.
func (e *Evictor) delete(ctx context.Context, pod *corev1.Pod, dryRun ...string) (ends bool, err error) {
	err = retry.OnError(retry.DefaultBackoff, schedutil.Retriable, func() error {
		return e.handle.ClientSet().CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(pod.UID)), DryRun: dryRun,
		})
	})
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another pod of its name
		return false, nil
	}
	return false, fmt.Errorf("evicting pod %s: %w", klog.KObj(pod), err)
}

// announce sets the condition by which a controller can tell a disruption from a failure.
func (e *Evictor) announce(ctx context.Context, by Preemptor, pod *corev1.Pod) error {
	if pod.Spec.NodeName == "" || e.handle.GetWaitingPod(pod.UID) != nil || e.handle.GetPodInPreBind(pod.UID) != nil {
		return nil // not bound yet: it goes back to the queue
	}
	status := pod.Status.DeepCopy()
	changed := apipod.UpdatePodCondition(status, &corev1.PodCondition{
		Type:               corev1.DisruptionTarget,
		ObservedGeneration: apipod.CalculatePodConditionObservedGeneration(&pod.Status, pod.Generation, corev1.DisruptionTarget),
		Status:             corev1.ConditionTrue,
		Reason:             corev1.PodReasonPreemptionByScheduler,
		Message:            fmt.Sprintf("%s: preempting to make room for PodGroup %s of higher priority", by.SchedulerName, by.Key),
	})
	if !changed {
		return nil
	}
	if err := schedutil.PatchPodStatus(ctx, e.handle.ClientSet(), pod.Name, pod.Namespace, &pod.Status, status); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("announcing the eviction of pod %s: %w", klog.KObj(pod), err)
	}
	return nil
}

// remove takes a pod off its node, and reports whether it ends now. One that the scheduler is just about to bind
// gives its place back in memory instead, and is tried again later.
func (e *Evictor) remove(ctx context.Context, by Preemptor, pod *corev1.Pod) (ends bool, err error) {
	if !e.takeBack(by, pod) {
		if ends, err = e.delete(ctx, pod); err != nil || !ends {
			return false, err
		}
	}
	e.tell(ctx, by, pod)
	return ends, nil
}

func (e *Evictor) takeBack(by Preemptor, pod *corev1.Pod) bool {
	why := "preempted by PodGroup " + by.Key.String()
	if w := e.handle.GetWaitingPod(pod.UID); w != nil && w.Preempt(by.Plugin, why) {
		return true
	}
	p := e.handle.GetPodInPreBind(pod.UID)
	return p != nil && p.CancelPod(why)
}

func (e *Evictor) tell(ctx context.Context, by Preemptor, pod *corev1.Pod) {
	logger := klog.FromContext(ctx)
	logger.V(2).Info("Pod is preempted", "pod", klog.KObj(pod), "podGroup", by.Key, "node", pod.Spec.NodeName)
	e.handle.EventRecorder().WithLogger(logger).Eventf(pod, by.Object, corev1.EventTypeNormal, "Preempted", "Preempting",
		"Preempted by PodGroup %s of priority %d on node %s", by.Key, by.Priority, pod.Spec.NodeName)
}

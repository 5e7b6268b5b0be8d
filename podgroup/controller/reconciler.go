package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// conflictDelay is how long the controller gives its cache to show a write that came before its own.
const conflictDelay = 100 * time.Millisecond

// reconciler brings one group at a time in line with its members.
type reconciler struct {
	client   client.Client
	pods     cache.Indexer
	clock    clock.PassiveClock
	opts     Options
	writer   *writer
	reporter *reporter
	memory   *memory
}

var _ reconcile.Reconciler = &reconciler{}

// NewReconciler returns what looks at one group at a time, for a caller that decides itself when. pods must have the
// index podgroup.GroupIndex. It is an error if the options cannot be followed.
func NewReconciler(c client.Client, pods cache.Indexer, recorder events.EventRecorder, clock clock.PassiveClock, opts Options) (reconcile.Reconciler, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	return newReconciler(c, pods, recorder, clock, opts), nil
}

func newReconciler(c client.Client, pods cache.Indexer, recorder events.EventRecorder, clock clock.PassiveClock, opts Options) *reconciler {
	return &reconciler{
		client:   c,
		pods:     pods,
		clock:    clock,
		opts:     opts,
		writer:   &writer{client: c, clock: clock},
		reporter: newReporter(recorder),
		memory:   newMemory(),
	}
}

// Reconcile writes the group's status if it changed, and reports, releases, adopts or removes the group where that is
// due. A group that is gone or being deleted is left alone: its members are the scheduler's to report.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	group := &v1alpha1.PodGroup{}
	if err := r.client.Get(ctx, request.NamespacedName, group); err != nil {
		if apierrors.IsNotFound(err) {
			r.reporter.forget(request.NamespacedName)
			r.memory.forget(request.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if group.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	members, err := r.members(request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}

	now := r.clock.Now()
	known := r.memory.recall(group)
	status := podgroup.ComputeStatus(known, members, now)
	written, err := r.writer.writeStatus(ctx, group, status)
	if err == nil && !r.writer.tryConditions() {
		r.memory.remember(group, status.Conditions)
	}
	var next time.Duration
	if err == nil && !written {
		next, written, err = r.settle(ctx, known, members, now)
	}
	switch {
	case apierrors.IsConflict(err):
		// Computed from a group that someone changed meanwhile, or that was made anew.
		klog.FromContext(ctx).V(4).Info("The PodGroup changed meanwhile", "err", err)
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	case err != nil:
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}

	next = soonest(next, r.reporter.report(group, status, now))
	if !written {
		remaining, finished := r.untilRemoval(group, now)
		if finished && remaining <= 0 {
			return reconcile.Result{}, r.remove(ctx, group)
		}
		next = soonest(next, remaining)
	}
	return reconcile.Result{RequeueAfter: next}, nil
}

// settle does what is due about a group whose status is up to date, one write at a time: after a write the next one
// waits for the cache to show it. It returns when something may be due though nothing happens, and whether it wrote to
// the group.
func (r *reconciler) settle(ctx context.Context, group *v1alpha1.PodGroup, members []podgroup.Member, now time.Time) (time.Duration, bool, error) {
	next, written, err := r.rendezvous(ctx, group, members, now)
	if written || err != nil || !r.opts.AdoptGroups || len(group.OwnerReferences) > 0 {
		return next, written, err
	}
	owner, ok := commonOwner(members)
	if !ok {
		return next, false, nil
	}
	return next, true, r.writer.writeOwner(ctx, group, owner)
}

// members returns all pods of the gang.
func (r *reconciler) members(key types.NamespacedName) ([]podgroup.Member, error) {
	objects, err := r.pods.ByIndex(podgroup.GroupIndex, key.String())
	if err != nil {
		return nil, fmt.Errorf("listing the pods of gang %s: %w", key, err)
	}
	members := make([]podgroup.Member, 0, len(objects))
	for _, object := range objects {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return nil, fmt.Errorf("listing the pods of gang %s: found a %T", key, object)
		}
		members = append(members, podgroup.MemberOf(pod))
	}
	return members, nil
}

// commonOwner returns the controller that all members have, false if they have none or several.
func commonOwner(members []podgroup.Member) (podgroup.Owner, bool) {
	var common podgroup.Owner
	for _, m := range members {
		if m.State == podgroup.Gone {
			continue
		}
		if m.Owner.UID == "" || (common.UID != "" && common.UID != m.Owner.UID) {
			return podgroup.Owner{}, false
		}
		common = m.Owner
	}
	return common, common.UID != ""
}

// untilRemoval returns how long the group is to be kept, and whether it is to be removed at all.
func (r *reconciler) untilRemoval(group *v1alpha1.PodGroup, now time.Time) (time.Duration, bool) {
	if r.opts.TTLAfterFinished == nil || metav1.GetControllerOfNoCopy(group) != nil {
		return 0, false
	}
	finished := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionFinished)
	if finished == nil || finished.Status != metav1.ConditionTrue {
		return 0, false
	}
	return finished.LastTransitionTime.Add(*r.opts.TTLAfterFinished).Sub(now), true
}

// remove deletes the group as it was seen: one that changed meanwhile stays.
func (r *reconciler) remove(ctx context.Context, group *v1alpha1.PodGroup) error {
	err := r.client.Delete(ctx, group, client.Preconditions{UID: &group.UID, ResourceVersion: &group.ResourceVersion},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return fmt.Errorf("removing the finished PodGroup: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Removed a finished PodGroup", "phase", group.Status.Phase, "ttl", *r.opts.TTLAfterFinished)
	return nil
}

// soonest returns the smaller of two delays, of which 0 means none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

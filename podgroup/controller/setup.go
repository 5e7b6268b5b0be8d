// Package controller keeps the status of PodGroups: phase, counters and conditions, computed anew from the
// members that exist whenever one of them or the group changes. It releases gangs whose members do not meet in
// time. On request it also gives groups an owner and removes those that finished.
package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

const (
	// Name is the controller's name in logs, metrics and events.
	Name = "podgroup"

	// FieldOwner is the owner, in server-side apply, of the fields that the controller writes.
	FieldOwner = "muster-podgroup"

	// batchPeriod is how long after a member's event its group is looked at, so that the events of a gang
	// that starts are answered together and not one by one.
	batchPeriod = 250 * time.Millisecond
)

// Options configure the controller. The zero value is usable: it writes statuses, and releases
// gangs that ask for it.
type Options struct {
	// TTLAfterFinished is how long a group is kept once it finished or failed; nil keeps it for ever. Groups
	// that have a controller are left to that. Finish times are read from the group's Finished condition, so
	// nothing is removed where the installed CustomResourceDefinition has no status.conditions.
	TTLAfterFinished *time.Duration

	// AdoptGroups makes the controller that all members have in common an owner of a group that has no owner,
	// so that the group is deleted along with it. Off by default: a group that a user declared should not
	// vanish with the first Job that used it.
	AdoptGroups bool

	// Rendezvous says when gangs are released whose members do not meet. Without a timeout only those are whose
	// PodGroup asks for it.
	Rendezvous podgroup.RendezvousPolicy

	// MaxConcurrentReconciles is the number of groups looked at at the same time; 0 means one.
	MaxConcurrentReconciles int
}

// validate returns an error that names the option that cannot be followed.
func (o Options) validate() error {
	if o.TTLAfterFinished != nil && *o.TTLAfterFinished < 0 {
		return fmt.Errorf("TTLAfterFinished: invalid value %s: must not be negative", *o.TTLAfterFinished)
	}
	if o.MaxConcurrentReconciles < 0 {
		return fmt.Errorf("MaxConcurrentReconciles: invalid value %d: must not be negative", o.MaxConcurrentReconciles)
	}
	if err := o.Rendezvous.Validate(); err != nil {
		return fmt.Errorf("%s: %w", "Rendezvous", err)
	}
	return nil
}

// SetupWithManager adds the controller to a manager whose scheme has v1alpha1.AddToScheme's types. The pods
// of gangs are kept in a store of the controller's own, filtered and stripped, whatever the manager caches.
func SetupWithManager(mgr ctrl.Manager, opts Options) error {
	if err := opts.validate(); err != nil {
		return err
	}
	clientset, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making a client for pods: %w", err)
	}
	pods := podgroup.NewPodInformer(clientset, 0)
	if err := mgr.Add(runInformer{pods}); err != nil {
		return err
	}
	r := newReconciler(mgr.GetClient(), pods.GetIndexer(), mgr.GetEventRecorder(Name), clock.RealClock{}, opts)
	return ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1alpha1.PodGroup{}).
		WatchesRawSource(podSource{informer: pods}).
		WithOptions(controller.Options{MaxConcurrentReconciles: opts.MaxConcurrentReconciles}).
		Complete(r)
}

// runInformer runs an informer for as long as the manager runs. It does so without leadership too, so that a
// new leader need not wait for the list.
type runInformer struct {
	informer cache.SharedIndexInformer
}

var (
	_ manager.Runnable               = runInformer{}
	_ manager.LeaderElectionRunnable = runInformer{}
)

func (r runInformer) Start(ctx context.Context) error {
	r.informer.RunWithContext(ctx)
	return nil
}

func (r runInformer) NeedLeaderElection() bool { return false }

// podSource queues the groups of the pods that an informer reports. The controller waits for its first list:
// a status computed from half of the members would be wrong.
type podSource struct {
	informer cache.SharedIndexInformer
}

var _ source.SyncingSource = podSource{}

func (s podSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	informer := &source.Informer{Informer: s.informer, Handler: podHandler()}
	return informer.Start(ctx, queue)
}

func (s podSource) WaitForSync(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), s.informer.HasSynced) {
		return errors.New("the pods of gangs were not listed in time")
	}
	return nil
}

// podHandler queues the group of a pod, and on an update the one that the pod left, unless nothing changed
// that matters to gangs.
func podHandler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(object client.Object, q queue) {
		if pod, ok := object.(*corev1.Pod); ok {
			if key, ok := podgroup.Key(pod); ok {
				q.AddAfter(reconcile.Request{NamespacedName: key}, batchPeriod)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueue(e.Object, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { enqueue(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, isPod := e.ObjectOld.(*corev1.Pod)
			after, areBoth := e.ObjectNew.(*corev1.Pod)
			if !isPod || !areBoth {
				return
			}
			was, _ := podgroup.Key(before)
			is, _ := podgroup.Key(after)
			if was != is {
				enqueue(before, q)
				enqueue(after, q)
			} else if podgroup.MemberOf(before) != podgroup.MemberOf(after) {
				enqueue(after, q)
			}
		},
	}
}

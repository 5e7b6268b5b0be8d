// Package trainer runs Kubeflow TrainJobs: it makes the JobSet of each TrainJob, and the PodGroups that
// have its pods start together, and keeps the TrainJob's status.
package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/coscheduling"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/volcano"
	"github.com/muster-sched/muster/trainer/runtime/gang"
	"github.com/muster-sched/muster/trainer/snapshot"
	"github.com/muster-sched/muster/trainer/statusserver"
	"github.com/muster-sched/muster/trainer/webhooks"
)

// controllerName names the controller in logs, metrics and events.
const controllerName = "trainjob"

// How long the controller waits before it tries again what failed: from the first to the longest, doubled from try
// to try. Nothing tells it that quota is free or that somebody else's object is gone, and a deadline is looked at
// no earlier either.
const (
	retryFirst = 10 * time.Millisecond
	retryMax   = 5 * time.Minute
)

// Options configure the controller. The zero value is usable.
type Options struct {
	// SchedulerName is set on the pods of gangs whose runtime names no scheduler. Empty means that the
	// trainer never chooses the scheduler.
	SchedulerName string

	// MaxConcurrentReconciles is the number of TrainJobs worked on at the same time; zero means one.
	MaxConcurrentReconciles int

	// StatusServer, if set, has training pods report their progress to a server that the manager runs.
	StatusServer *statusserver.Options

	// Webhooks, if set, has the manager's webhook server check TrainJobs and runtimes before they are stored.
	Webhooks *webhooks.Options

	// SkipNameValidation lets several managers of one process have this controller.
	SkipNameValidation bool
}

// AddToScheme registers the types that the controller reads and writes with a scheme.
func AddToScheme(scheme *apiruntime.Scheme) error {
	return errors.Join(
		corev1.AddToScheme(scheme),
		v1alpha1.AddToScheme(scheme),
		podgroup.AddToScheme(scheme),
		jobsetv1alpha2.AddToScheme(scheme),
		nodev1.AddToScheme(scheme),
		schedulingv1.AddToScheme(scheme),
		schedulingv1beta1.AddToScheme(scheme),
		volcano.AddToScheme(scheme),
	)
}

// SetupWithManager adds the controllers to a manager whose scheme has AddToScheme's types. The error names
// the CustomResourceDefinition if one that the controller needs is not installed.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, opts Options) error {
	if err := requireCRDs(mgr.GetRESTMapper()); err != nil {
		return err
	}
	indexer := mgr.GetFieldIndexer()
	if err := indexer.IndexField(ctx, &v1alpha1.TrainJob{}, runtimeIndex, indexRuntime); err != nil {
		return fmt.Errorf("trainer: indexing TrainJobs: %w", err)
	}
	changed := make(chan event.GenericEvent)
	announcer := &announcer{trainJobs: mgr.GetClient(), changed: changed}
	steps := plugins.All(mgr.GetClient(), mgr.GetAPIReader(), opts.SchedulerName)
	if opts.StatusServer != nil {
		status, err := setupProgress(mgr, *opts.StatusServer, announcer)
		if err != nil {
			return fmt.Errorf("trainer: %w", err)
		}
		// The first, so that a user's variables win.
		steps = append([]framework.Plugin{status}, steps...)
	}
	groups, late, err := servedGroups(ctx, indexer, plugins.Groups(steps))
	if err != nil {
		return fmt.Errorf("trainer: %w", err)
	}
	snapshots, err := snapshot.NewCache(mgr)
	if err != nil {
		return fmt.Errorf("trainer: snapshots of runtimes: %w", err)
	}
	r := &reconciler{
		client:    mgr.GetClient(),
		framework: framework.New(steps...),
		snapshots: &snapshot.Store{
			Runtimes:  mgr.GetClient(),
			Snapshots: snapshots,
			Live:      mgr.GetAPIReader(),
			Writer:    mgr.GetClient(),
		},
		recorder: mgr.GetEventRecorder(controllerName),
		clock:    clock.RealClock{},
	}
	if err := setupFinalizerRemovers(mgr, opts); err != nil {
		return fmt.Errorf("trainer: %w", err)
	}
	if opts.Webhooks != nil {
		if err := webhooks.Setup(mgr, *opts.Webhooks, r.framework, r.snapshots); err != nil {
			return fmt.Errorf("trainer: webhooks: %w", err)
		}
	}
	// Status updates, of TrainJobs by this controller and of PodGroups by theirs, are no reason to look
	// again, unless a gang was given up; those of JobSets are. A runtime's creation may be waited for; its
	// changes concern nobody who uses it already.
	generation := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	groupChange := builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, givenUp))
	creation := builder.WithPredicates(predicate.Funcs{
		UpdateFunc: func(event.UpdateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	})
	deletion := predicate.TypedFuncs[*corev1.ConfigMap]{
		CreateFunc: func(event.TypedCreateEvent[*corev1.ConfigMap]) bool { return false },
		UpdateFunc: func(event.TypedUpdateEvent[*corev1.ConfigMap]) bool { return false },
	}
	runtimes := handler.EnqueueRequestsFromMapFunc(r.trainJobsOfRuntime)
	controllerBuilder := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&v1alpha1.TrainJob{}, generation).
		Owns(&jobsetv1alpha2.JobSet{}).
		Watches(&v1alpha1.TrainingRuntime{}, runtimes, creation).
		Watches(&v1alpha1.ClusterTrainingRuntime{}, runtimes, creation).
		WatchesRawSource(source.Kind(snapshots, &corev1.ConfigMap{},
			handler.TypedEnqueueRequestForOwner[*corev1.ConfigMap](mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.TrainJob{}, handler.OnlyControllerOwner()),
			deletion)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: opts.MaxConcurrentReconciles,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](retryFirst, retryMax),
			SkipNameValidation:      &opts.SkipNameValidation,
		}).
		WatchesRawSource(source.Channel(changed, &handler.EnqueueRequestForObject{}))
	for _, kind := range groups {
		controllerBuilder.Owns(kind.Object, groupChange)
	}
	c, err := controllerBuilder.Build(r)
	if err != nil || len(late) == 0 {
		return err
	}
	return mgr.Add(&lateGroups{kinds: late, watch: watchGroups(mgr, c), announcer: announcer, delay: probing.DelayFunc()})
}

// servedGroups splits groups into those of kinds that the API server serves, which it indexes, and the others, which it
// marks.
func servedGroups(ctx context.Context, indexer client.FieldIndexer, all []*gang.Groups) (served, late []*gang.Groups, err error) {
	for _, groups := range all {
		is, err := groups.Served()
		if err != nil {
			return nil, nil, err
		}
		groups.MarkAbsent(!is)
		if !is {
			late = append(late, groups)
			continue
		}
		if err := indexer.IndexField(ctx, groups.Object, gang.OwnerIndex, gang.IndexOwner); err != nil {
			return nil, nil, fmt.Errorf("indexing %T: %w", groups.Object, err)
		}
		served = append(served, groups)
	}
	return served, late, nil
}

// givenUp passes the PodGroups that came to be given up.
var givenUp = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, isGroup := e.ObjectOld.(*podgroup.PodGroup)
		after, areGroups := e.ObjectNew.(*podgroup.PodGroup)
		return isGroup && areGroups && coscheduling.GivenUp(before) == "" && coscheduling.GivenUp(after) != ""
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// requireCRDs returns an error that names the first CustomResourceDefinition that is missing. Without the
// check the manager would wait for the caches of unknown resources until it times out.
func requireCRDs(mapper meta.RESTMapper) error {
	for _, gvk := range []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind(v1alpha1.TrainJobKind),
		v1alpha1.GroupVersion.WithKind(v1alpha1.TrainingRuntimeKind),
		v1alpha1.GroupVersion.WithKind(v1alpha1.ClusterTrainingRuntimeKind),
		jobsetv1alpha2.GroupVersion.WithKind("JobSet"),
		podgroup.GroupVersion.WithKind("PodGroup"),
	} {
		_, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if meta.IsNoMatchError(err) {
			plural, _ := meta.UnsafeGuessKindToResource(gvk)
			return fmt.Errorf("trainer: CustomResourceDefinition %s.%s with version %s is not installed", plural.Resource, gvk.Group, gvk.Version)
		}
		if err != nil {
			return fmt.Errorf("trainer: looking up %s: %w", gvk.GroupKind(), err)
		}
	}
	return nil
}

package trainer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/gang"
)

// probing is how often the API server is asked whether it serves a kind by now: soon after the start, because what is
// installed together comes up together, and then every half minute.
var probing = wait.Backoff{Duration: time.Second, Factor: 2, Steps: 100, Cap: 30 * time.Second, Jitter: 0.1}

// lateGroups waits for the API server to serve kinds of groups that it did not serve when the controller started. The
// TrainJobs that ask for them are blocked until then.
type lateGroups struct {
	kinds     []*gang.Groups
	watch     func(context.Context, client.Object) error
	announcer *announcer
	delay     wait.DelayFunc
}

var _ manager.Runnable = (*lateGroups)(nil)

// Start implements manager.Runnable: it ends when all kinds are served.
func (l *lateGroups) Start(ctx context.Context) error {
	left := slices.Clone(l.kinds)
	err := l.delay.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		left = slices.DeleteFunc(left, func(groups *gang.Groups) bool { return l.arrived(ctx, groups) })
		return len(left) == 0, nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// arrived has a kind kept if it is served, and tells whether it is.
func (l *lateGroups) arrived(ctx context.Context, groups *gang.Groups) bool {
	kind := fmt.Sprintf("%T", groups.Object)
	logger := klog.FromContext(ctx).WithValues("kind", kind)
	if groups.Absent() {
		served, err := groups.Served()
		if err != nil {
			logger.V(2).Info("Looking for a kind of groups", "err", err)
		}
		if !served {
			return false
		}
		if err := l.watch(ctx, groups.Object); err != nil {
			logger.Error(err, "Watching a kind of groups that the API server serves now")
			return false
		}
		logger.Info("The API server serves another kind of groups now")
		groups.MarkAbsent(false)
	}
	blocked := func(trainJob *v1alpha1.TrainJob) bool {
		return meta.IsStatusConditionTrue(trainJob.Status.Conditions, v1alpha1.TrainJobBlocked)
	}
	if err := l.announcer.announce(ctx, blocked); err != nil {
		logger.Error(err, "Looking for TrainJobs that waited for a kind of groups")
		return false
	}
	return true
}

// watchGroups returns a function that makes a running controller, and the cache of its manager, keep another kind of
// groups.
func watchGroups(mgr ctrl.Manager, c controller.Controller) func(context.Context, client.Object) error {
	return func(ctx context.Context, object client.Object) error {
		if err := mgr.GetFieldIndexer().IndexField(ctx, object, gang.OwnerIndex, gang.IndexOwner); err != nil {
			return fmt.Errorf("indexing: %w", err)
		}
		owner := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.TrainJob{}, handler.OnlyControllerOwner())
		return c.Watch(source.Kind(mgr.GetCache(), object, owner, predicate.Predicate(predicate.GenerationChangedPredicate{})))
	}
}

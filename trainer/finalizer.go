package trainer

import (
	"context"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// finalizerRemover takes the finalizer of older trainers off runtimes. A TrainJob has a snapshot of its
// runtime, so a runtime may go at any time.
type finalizerRemover struct {
	client client.Client
	new    func() client.Object
}

// Reconcile implements reconcile.Reconciler.
func (f *finalizerRemover) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	runtime := f.new()
	if err := f.client.Get(ctx, req.NamespacedName, runtime); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := runtime.DeepCopyObject().(client.Object)
	if !controllerutil.RemoveFinalizer(runtime, v1alpha1.ResourceInUseFinalizer) {
		return ctrl.Result{}, nil
	}
	klog.FromContext(ctx).V(2).Info("Removing an old finalizer", "finalizer", v1alpha1.ResourceInUseFinalizer)
	// The lock keeps finalizers that others add at the same time.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return ctrl.Result{}, client.IgnoreNotFound(f.client.Patch(ctx, runtime, patch))
}

// setupFinalizerRemovers adds one controller for each kind of runtime.
func setupFinalizerRemovers(mgr ctrl.Manager, opts Options) error {
	hasFinalizer := predicate.NewPredicateFuncs(func(object client.Object) bool {
		return controllerutil.ContainsFinalizer(object, v1alpha1.ResourceInUseFinalizer)
	})
	for _, kind := range []struct {
		controller string
		new        func() client.Object
	}{
		{"trainingruntime", func() client.Object { return &v1alpha1.TrainingRuntime{} }},
		{"clustertrainingruntime", func() client.Object { return &v1alpha1.ClusterTrainingRuntime{} }},
	} {
		err := ctrl.NewControllerManagedBy(mgr).
			Named(kind.controller).
			For(kind.new(), builder.WithPredicates(hasFinalizer)).
			WithOptions(controller.Options{SkipNameValidation: &opts.SkipNameValidation}).
			Complete(&finalizerRemover{client: mgr.GetClient(), new: kind.new})
		if err != nil {
			return err
		}
	}
	return nil
}

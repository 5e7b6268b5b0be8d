package trainer

import (
	"context"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// runtimeIndex is the name of the index of TrainJobs by the kind and name of their runtime.
const runtimeIndex = "trainer.spec.runtimeRef"

func runtimeKey(kind, name string) string {
	return kind + "/" + name
}

// indexRuntime is the function of runtimeIndex.
func indexRuntime(object client.Object) []string {
	ref := object.(*v1alpha1.TrainJob).Spec.RuntimeRef
	return []string{runtimeKey(ref.RuntimeKind(), ref.Name)}
}

// trainJobsOfRuntime maps a runtime to the unfinished TrainJobs that name it: some may have waited for it.
func (r *reconciler) trainJobsOfRuntime(ctx context.Context, runtime client.Object) []reconcile.Request {
	kind := v1alpha1.ClusterTrainingRuntimeKind
	if _, ok := runtime.(*v1alpha1.TrainingRuntime); ok {
		kind = v1alpha1.TrainingRuntimeKind
	}
	trainJobs := &v1alpha1.TrainJobList{}
	// The namespace of a cluster runtime is empty, which selects all.
	err := r.client.List(ctx, trainJobs, client.InNamespace(runtime.GetNamespace()),
		client.MatchingFields{runtimeIndex: runtimeKey(kind, runtime.GetName())})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Listing the TrainJobs of a runtime", "kind", kind, "runtime", klog.KObj(runtime))
		return nil
	}
	var requests []reconcile.Request
	for i := range trainJobs.Items {
		if !trainJobs.Items[i].Finished() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&trainJobs.Items[i])})
		}
	}
	return requests
}

package trainer

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
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
	return []string{runtimeKey(kindOf(ref), ref.Name)}
}

// kindOf returns the kind of runtime of a reference, with the API's default.
func kindOf(ref v1alpha1.RuntimeRef) string {
	return ptr.Deref(ref.Kind, v1alpha1.ClusterTrainingRuntimeKind)
}

// supported tells whether a reference is to a kind of runtime that this trainer knows.
func supported(ref v1alpha1.RuntimeRef) bool {
	if ptr.Deref(ref.APIGroup, v1alpha1.GroupVersion.Group) != v1alpha1.GroupVersion.Group {
		return false
	}
	kind := kindOf(ref)
	return kind == v1alpha1.ClusterTrainingRuntimeKind || kind == v1alpha1.TrainingRuntimeKind
}

// runtimeSpec returns the spec of the runtime that a TrainJob names. The error is a NotFound error if there
// is no such runtime. The spec belongs to the cache: read only.
func (r *reconciler) runtimeSpec(ctx context.Context, trainJob *v1alpha1.TrainJob) (*v1alpha1.TrainingRuntimeSpec, error) {
	name := trainJob.Spec.RuntimeRef.Name
	if kindOf(trainJob.Spec.RuntimeRef) == v1alpha1.TrainingRuntimeKind {
		runtime := &v1alpha1.TrainingRuntime{}
		if err := r.client.Get(ctx, client.ObjectKey{Namespace: trainJob.Namespace, Name: name}, runtime); err != nil {
			return nil, fmt.Errorf("getting TrainingRuntime %s/%s: %w", trainJob.Namespace, name, err)
		}
		return &runtime.Spec, nil
	}
	runtime := &v1alpha1.ClusterTrainingRuntime{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: name}, runtime); err != nil {
		return nil, fmt.Errorf("getting ClusterTrainingRuntime %s: %w", name, err)
	}
	return &runtime.Spec, nil
}

// trainJobsOfRuntime maps a runtime to the unfinished TrainJobs that name it: some may have waited for it,
// and suspended ones follow it.
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

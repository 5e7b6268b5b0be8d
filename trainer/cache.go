package trainer

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/apply"
)

// CacheByObject returns what the controller wants of a manager's cache: objects without the managed fields
// that it does not read, which are a large part of them. The controller works with an unfiltered cache
// too. A cache that strips all managed fields of JobSets and PodGroups costs it needless writes, of
// suspended TrainJobs only; KeepOwnManagedFields is the transform to set for PodGroups of other APIs.
func CacheByObject() map[client.Object]cache.ByObject {
	strip := cache.ByObject{Transform: cache.TransformStripManagedFields()}
	return map[client.Object]cache.ByObject{
		&v1alpha1.TrainJob{}:               strip,
		&v1alpha1.TrainingRuntime{}:        strip,
		&v1alpha1.ClusterTrainingRuntime{}: strip,
		&jobsetv1alpha2.JobSet{}:           {Transform: KeepOwnManagedFields},
		&podgroup.PodGroup{}:               {Transform: KeepOwnManagedFields},
	}
}

// KeepOwnManagedFields is a cache transform that keeps the managed fields by which the trainer tells what
// it applied.
func KeepOwnManagedFields(in any) (any, error) {
	object, err := meta.Accessor(in)
	if err != nil {
		// A deletion that the informer missed comes as a marker without metadata.
		return in, nil
	}
	var own []metav1.ManagedFieldsEntry
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == apply.FieldOwner {
			own = append(own, entry)
		}
	}
	object.SetManagedFields(own)
	return in, nil
}

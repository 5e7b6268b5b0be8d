package jobset

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/runtime/apply"
)

// ttlAnnotation keeps, on a JobSet, the ttlSecondsAfterFinished that its runtime asks for until the TrainJob
// is finished. A JobSet that had it from the start could end and be deleted before the trainer has seen
// the end, while the trainer is down for example, and the training would run once more.
const ttlAnnotation = "trainer.muster.dev/ttl-seconds-after-finished"

// holdBackTTL moves the TTL of a JobSet that is to be made to its annotation.
func holdBackTTL(jobSet *jobsetv1alpha2.JobSet) {
	if ttl := jobSet.Spec.TTLSecondsAfterFinished; ttl != nil {
		metav1.SetMetaDataAnnotation(&jobSet.ObjectMeta, ttlAnnotation, strconv.Itoa(int(*ttl)))
		jobSet.Spec.TTLSecondsAfterFinished = nil
	}
}

// startTTL gives a finished JobSet, whose end the TrainJob has recorded, the TTL that was held back. It
// counts from the JobSet's end.
func (j *JobSet) startTTL(ctx context.Context, jobSet *jobsetv1alpha2.JobSet) error {
	held, ok := jobSet.Annotations[ttlAnnotation]
	if !ok || jobSet.Spec.TTLSecondsAfterFinished != nil {
		return nil
	}
	ttl, err := strconv.ParseInt(held, 10, 32)
	if err != nil || ttl < 0 {
		// Someone edited it. To keep a finished JobSet does no harm.
		klog.FromContext(ctx).Error(err, "The JobSet has no usable TTL", "annotation", ttlAnnotation, "value", held)
		return nil
	}
	patch := fmt.Appendf(nil, `{"spec":{"ttlSecondsAfterFinished":%d}}`, ttl)
	return client.IgnoreNotFound(j.client.Patch(ctx, jobSet, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(apply.FieldOwner)))
}

package webhooks

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// lastByManager leaves one patch of each manager: its last, in the place of its first. Some managers append
// their patch anew on every change, and the API server would refuse the second.
func lastByManager(patches []v1alpha1.RuntimePatch) []v1alpha1.RuntimePatch {
	at := make(map[string]int, len(patches))
	kept := patches[:0:0]
	for _, patch := range patches {
		if i, ok := at[patch.Manager]; ok {
			kept[i] = patch
			continue
		}
		at[patch.Manager] = len(kept)
		kept = append(kept, patch)
	}
	return kept
}

// stamp sets the time of each patch: of one that changes to now, of one that does not to what it was. A new
// patch may bring a time of its own.
func stamp(patches, before []v1alpha1.RuntimePatch, now metav1.Time) {
	for i := range patches {
		patch := &patches[i]
		same := func(p v1alpha1.RuntimePatch) bool { return p.Manager == patch.Manager }
		switch o := slices.IndexFunc(before, same); {
		case o < 0 && patch.Time != nil:
		case o >= 0 && sameButTime(before[o], *patch):
			patch.Time = before[o].Time
		default:
			patch.Time = &now
		}
	}
}

func sameButTime(a, b v1alpha1.RuntimePatch) bool {
	a.Time, b.Time = nil, nil
	return equality.Semantic.DeepEqual(a, b)
}

func patchesDiffer(before, after []v1alpha1.RuntimePatch) bool {
	return !slices.EqualFunc(before, after, sameButTime)
}

func suspended(trainJob *v1alpha1.TrainJob) bool {
	return ptr.Deref(trainJob.Spec.Suspend, false)
}

// activeJob returns the name of a replicated job of the TrainJob that has active pods, empty if there is none.
func activeJob(ctx context.Context, reader client.Reader, trainJob *v1alpha1.TrainJob) (string, error) {
	jobSet := &jobsetv1alpha2.JobSet{}
	if err := reader.Get(ctx, client.ObjectKeyFromObject(trainJob), jobSet); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return "", nil
		}
		return "", fmt.Errorf("getting JobSet %s: %w", client.ObjectKeyFromObject(trainJob), err)
	}
	for _, job := range jobSet.Status.ReplicatedJobsStatus {
		if job.Active > 0 && metav1.IsControlledBy(jobSet, trainJob) {
			return job.Name, nil
		}
	}
	return "", nil
}

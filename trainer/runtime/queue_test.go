package runtime

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// What Kueue counts is what pods take: workers whose resources it does not see get none from the TrainJob.
func TestQueuedWorkersTakeWhatKueueCounts(t *testing.T) {
	inQueue := metav1.ObjectMeta{Labels: map[string]string{"kueue.x-k8s.io/queue-name": "research"}}
	admitted := []v1alpha1.RuntimePatch{{Manager: "kueue.x-k8s.io/manager"}}
	other := []v1alpha1.RuntimePatch{{Manager: "example.com/manager"}}
	eight := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
	for name, tc := range map[string]struct {
		meta           metav1.ObjectMeta
		patches        []v1alpha1.RuntimePatch
		ancestor       string
		launcherTrains bool
		counted        bool
	}{
		"no queue":                             {ancestor: "launcher", patches: other, counted: true},
		"in a queue":                           {meta: inQueue, ancestor: "launcher"},
		"admitted without a label":             {patches: admitted, ancestor: "launcher"},
		"in a queue, the launcher is a node":   {meta: inQueue, ancestor: "launcher", launcherTrains: true, counted: true},
		"in a queue, workers are the trainers": {meta: inQueue, ancestor: "node", counted: true},
	} {
		t.Run(name, func(t *testing.T) {
			trainJob := &v1alpha1.TrainJob{ObjectMeta: tc.meta, Spec: v1alpha1.TrainJobSpec{
				RuntimePatches: tc.patches,
				Trainer:        &v1alpha1.Trainer{ResourcesPerNode: &corev1.ResourceRequirements{Limits: eight}},
			}}
			info := newInfo(t, trainJob, mpiRuntime(tc.ancestor, tc.launcherTrains, nil))
			if got := len(info.ByName("node").Container("node").Resources.Limits) > 0; got != tc.counted {
				t.Errorf("workers have the resources: %v, want %v", got, tc.counted)
			}
			if got := texts(info.Warnings(trainJob), ReasonResourcesNotForWorkers); (got == "") != tc.counted {
				t.Errorf("warning: %q", got)
			}
			trainJob.Spec.Trainer.ResourcesPerNode = nil
			if got := texts(info.Warnings(trainJob), ReasonResourcesNotForWorkers); got != "" {
				t.Errorf("without resources: %q", got)
			}
		})
	}
}

package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
)

// Of a gang that is evicted whole, the Job counts no failure; of one that fails whole it counts one for each member,
// of which the runtime forgives several, and a Job by itself only six in all.
func TestEvictedGangsBurnNoRetries(t *testing.T) {
	const members = 8
	evicted := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler}
	s := newScene(t)
	s.runtimes()
	s.nodes(2, controlplane.NodeShape{})
	ends := map[string][]corev1.PodCondition{"evicted": {evicted}, "failed": nil}
	for name := range ends {
		s.must(kube.Create(s.ctx, s.trainJob(name, "torch-distributed-gang", members, 1)))
	}
	for name, conditions := range ends {
		s.await("the members of "+name, func() string {
			pods := s.trainPods(name)
			if len(pods) != members || slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning }) {
				return "not all run; PodGroup says " + s.conditions(s.namespace, name)
			}
			return ""
		})
		status, err := json.Marshal(map[string]any{"status": map[string]any{"phase": corev1.PodFailed, "conditions": conditions}})
		s.must(err)
		for _, pod := range s.trainPods(name) {
			s.must(kube.Status().Patch(s.ctx, &pod, client.RawPatch(types.StrategicMergePatchType, status)))
		}
	}
	for name, failures := range map[string]int32{"evicted": 0, "failed": members} {
		s.await("the Job of "+name, func() string {
			// A pod keeps the Job's finalizer until it is counted.
			for _, pod := range s.trainPods(name) {
				if pod.Status.Phase == corev1.PodFailed && slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer) {
					return pod.Name + " is not counted"
				}
			}
			jobs := &batchv1.JobList{}
			s.must(kube.List(s.ctx, jobs, client.InNamespace(s.namespace), client.MatchingLabels{jobset.JobSetNameKey: name}))
			if len(jobs.Items) != 1 || jobs.Items[0].Status.Failed != failures {
				return fmt.Sprintf("%d Jobs, status %+v", len(jobs.Items), jobs.Items[0].Status)
			}
			for _, condition := range jobs.Items[0].Status.Conditions {
				if condition.Status == corev1.ConditionTrue {
					t.Errorf("%s: the Job is %s: %s", name, condition.Type, condition.Message)
				}
			}
			return ""
		})
	}
}

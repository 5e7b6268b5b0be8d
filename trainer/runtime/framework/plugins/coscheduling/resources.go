package coscheduling

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/component-helpers/resource"
	apiv1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/trainer/runtime"
)

// podRequests returns what the scheduler will count for one pod of a PodSet: the requests after the API
// server's defaulting, which makes a request of a limit that stands alone, as GPUs are often written;
// sidecars, and the largest init container; and the overhead of the runtime class.
func (c *CoScheduling) podRequests(ctx context.Context, podSet *runtime.PodSet) (corev1.ResourceList, error) {
	pod := &corev1.Pod{Spec: *podSet.PodSpec().DeepCopy()}
	apiv1.SetObjectDefaults_Pod(pod)
	if name := pod.Spec.RuntimeClassName; name != nil && pod.Spec.Overhead == nil {
		class := &nodev1.RuntimeClass{}
		err := c.client.Get(ctx, client.ObjectKey{Name: *name}, class)
		// Without its runtime class the pod is refused, and needs nothing.
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("getting RuntimeClass %s: %w", *name, err)
		}
		if class.Overhead != nil {
			pod.Spec.Overhead = class.Overhead.PodFixed
		}
	}
	return resource.PodRequests(pod, resource.PodResourcesOptions{}), nil
}

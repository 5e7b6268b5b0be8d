package gangs

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// Find reads the gangs of what a user names: NAME or podgroup/NAME is a group of either kind, podgroup.scheduling.k8s.io/NAME
// one of Kubernetes' own, pod/NAME the group that the pod is a member of, and trainjob/NAME the groups that were made for
// the TrainJob, of which there may be several.
func Find(ctx context.Context, reader client.Reader, namespace, what string) ([]*Gang, error) {
	kind, name, ok := strings.Cut(what, "/")
	if !ok {
		kind, name = "podgroup", what
	}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	switch strings.ToLower(kind) {
	case "podgroup", "podgroups", "pg", "pgs":
		return one(ofEitherKind(ctx, reader, key))
	case "podgroup." + v1alpha1.GroupVersion.Group:
		return one(Get(ctx, reader, key, false))
	case "podgroup." + schedulingv1beta1.GroupName:
		return one(Get(ctx, reader, key, true))
	case "pod", "pods", "po":
		return one(ofPod(ctx, reader, key))
	case "trainjob", "trainjobs":
		return ofTrainJob(ctx, reader, key)
	}
	return nil, fmt.Errorf("%q: there are podgroup/NAME, pod/NAME and trainjob/NAME", what)
}

func one(g *Gang, err error) ([]*Gang, error) {
	if err != nil {
		return nil, err
	}
	return []*Gang{g}, nil
}

func ofEitherKind(ctx context.Context, reader client.Reader, key types.NamespacedName) (*Gang, error) {
	g, err := Get(ctx, reader, key, false)
	if !absent(err) {
		return g, err
	}
	if native, nativeErr := Get(ctx, reader, key, true); !absent(nativeErr) {
		return native, nativeErr
	}
	return nil, err
}

// absent reports whether an object is not there, or the API server does not know its kind.
func absent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

func ofPod(ctx context.Context, reader client.Reader, key types.NamespacedName) (*Gang, error) {
	pod := &corev1.Pod{}
	if err := reader.Get(ctx, key, pod); err != nil {
		return nil, err
	}
	if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
		return Get(ctx, reader, types.NamespacedName{Namespace: key.Namespace, Name: *group.PodGroupName}, true)
	}
	group, ok := podgroup.Key(pod)
	if !ok {
		return nil, fmt.Errorf("pod %s is a member of no gang: it has no label %s", key, v1alpha1.GroupLabel)
	}
	g, err := Get(ctx, reader, group, false)
	if absent(err) {
		return nil, fmt.Errorf("pod %s waits for PodGroup %s, which does not exist", key, group)
	}
	return g, err
}

func ofTrainJob(ctx context.Context, reader client.Reader, key types.NamespacedName) ([]*Gang, error) {
	job := &trainer.TrainJob{}
	if err := reader.Get(ctx, key, job); err != nil {
		return nil, err
	}
	var found []*Gang
	groups := &v1alpha1.PodGroupList{}
	if err := reader.List(ctx, groups, client.InNamespace(key.Namespace)); err != nil && !meta.IsNoMatchError(err) {
		return nil, err
	}
	for i := range groups.Items {
		if metav1.IsControlledBy(&groups.Items[i], job) {
			found = append(found, of(&groups.Items[i]))
		}
	}
	natives := &schedulingv1beta1.PodGroupList{}
	if err := reader.List(ctx, natives, client.InNamespace(key.Namespace)); err != nil && !absent(err) {
		return nil, err
	}
	for i := range natives.Items {
		if metav1.IsControlledBy(&natives.Items[i], job) {
			found = append(found, ofNative(&natives.Items[i]))
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("TrainJob %s has no gang: %s", key, withoutGang(job))
	}
	for _, g := range found {
		if err := g.readMembers(ctx, reader); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// withoutGang says what a TrainJob without a group says of itself.
func withoutGang(job *trainer.TrainJob) string {
	for _, t := range []string{trainer.TrainJobFailed, trainer.TrainJobComplete, trainer.TrainJobSuspended} {
		if c := meta.FindStatusCondition(job.Status.Conditions, t); c != nil && c.Status == metav1.ConditionTrue {
			return fmt.Sprintf("%s: %s", c.Reason, c.Message)
		}
	}
	return "its runtime has no podGroupPolicy, or its controller has not seen it yet"
}

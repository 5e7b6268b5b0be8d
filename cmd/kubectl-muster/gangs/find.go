package gangs

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// Explainer is what can be explained to a user.
type Explainer interface {
	// Explain writes what the API server knew of it.
	Explain(w io.Writer, now time.Time) error
}

// Find reads what a user names: NAME or podgroup/NAME is a group of either kind, podgroup.scheduling.k8s.io/NAME
// one of Kubernetes' own, pod/NAME the group that the pod is a member of, and trainjob/NAME the TrainJob and the groups that
// were made for it, of which there may be several.
func Find(ctx context.Context, reader client.Reader, namespace, what string) ([]Explainer, error) {
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

func one(g *Gang, err error) ([]Explainer, error) {
	if err != nil {
		return nil, err
	}
	return []Explainer{g}, nil
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
	if native, ok := podgroup.NativeKey(pod); ok {
		return Get(ctx, reader, native, true)
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

// Package child makes the ConfigMaps and Secrets that the pods of a TrainJob mount. Their owner is the TrainJob,
// and they change only while it has no pods.
package child

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/apply"
)

// Keeper makes ConfigMaps and Secrets.
type Keeper struct {
	client client.Client
	live   client.Reader
}

// New makes a Keeper. It reads JobSets through c, which may be cached, and writes through it. It reads ConfigMaps,
// and the metadata of Secrets, through live, one by its name at a time: nobody should hold all of a
// cluster's in memory, or have the right to list them.
func New(c client.Client, live client.Reader) *Keeper {
	return &Keeper{client: c, live: live}
}

// Metadata returns the metadata of a child.
func Metadata(trainJob *v1alpha1.TrainJob, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:            name,
		Namespace:       trainJob.Namespace,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(trainJob, v1alpha1.GroupVersion.WithKind(v1alpha1.TrainJobKind))},
	}
}

// Sync makes what is missing of objects, ConfigMaps and Secrets, and brings ConfigMaps to what is wanted. It does
// nothing while the TrainJob's JobSet runs: new pods of it must find what the others found. A Secret comes
// without data, gets it from fill when it is made, and is never changed.
func (k *Keeper) Sync(ctx context.Context, trainJob *v1alpha1.TrainJob, objects []client.Object, fill func() (map[string][]byte, error)) error {
	if len(objects) == 0 {
		return nil
	}
	running, err := Running(ctx, k.client, trainJob)
	if err != nil || running {
		return err
	}
	for _, object := range objects {
		switch wanted := object.(type) {
		case *corev1.ConfigMap:
			err = k.ConfigMap(ctx, trainJob, wanted)
		case *corev1.Secret:
			err = k.secret(ctx, trainJob, wanted, fill)
		default:
			err = fmt.Errorf("%T is no ConfigMap and no Secret", object)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Running tells whether a TrainJob has a JobSet that may have pods.
func Running(ctx context.Context, c client.Reader, trainJob *v1alpha1.TrainJob) (bool, error) {
	jobSet := &jobsetv1alpha2.JobSet{}
	err := c.Get(ctx, client.ObjectKeyFromObject(trainJob), jobSet)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting JobSet %s: %w", client.ObjectKeyFromObject(trainJob), err)
	}
	return metav1.IsControlledBy(jobSet, trainJob) && !ptr.Deref(jobSet.Spec.Suspend, false), nil
}

// ConfigMap makes a ConfigMap, or brings it to what is wanted, whether or not the TrainJob's JobSet runs.
func (k *Keeper) ConfigMap(ctx context.Context, trainJob *v1alpha1.TrainJob, wanted *corev1.ConfigMap) error {
	live := &corev1.ConfigMap{}
	err := k.live.Get(ctx, client.ObjectKeyFromObject(wanted), live)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting ConfigMap %s: %w", klog.KObj(wanted), err)
	}
	if err == nil {
		if err := usable(trainJob, "ConfigMap", live); err != nil {
			return err
		}
		if maps.Equal(live.Data, wanted.Data) {
			return nil
		}
	}
	klog.FromContext(ctx).V(2).Info("Applying a ConfigMap", "configMap", klog.KObj(wanted))
	configuration, err := apply.Configuration(wanted)
	if err != nil {
		return err
	}
	return apply.Apply(ctx, k.client, configuration)
}

func (k *Keeper) secret(ctx context.Context, trainJob *v1alpha1.TrainJob, wanted *corev1.Secret, fill func() (map[string][]byte, error)) error {
	// Only the metadata: what is in it is none of the trainer's business.
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := k.live.Get(ctx, client.ObjectKeyFromObject(wanted), live)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting Secret %s: %w", klog.KObj(wanted), err)
	}
	if err == nil {
		return usable(trainJob, "Secret", live)
	}
	klog.FromContext(ctx).V(2).Info("Creating a Secret", "secret", klog.KObj(wanted))
	secret := wanted.DeepCopy()
	if secret.Data, err = fill(); err != nil {
		return fmt.Errorf("filling Secret %s: %w", klog.KObj(wanted), err)
	}
	if err := k.client.Create(ctx, secret, client.FieldOwner(apply.FieldOwner)); err != nil {
		return fmt.Errorf("creating Secret %s: %w", klog.KObj(wanted), err)
	}
	return nil
}

// usable returns an error if an object belongs to somebody else, or will soon be gone. Both are tried again: the
// object may be that of an earlier TrainJob of the same name.
func usable(trainJob *v1alpha1.TrainJob, kind string, live client.Object) error {
	switch {
	case !metav1.IsControlledBy(live, trainJob):
		return fmt.Errorf("%s %s exists and does not belong to this TrainJob", kind, klog.KObj(live))
	case live.GetDeletionTimestamp() != nil:
		return fmt.Errorf("%s %s is being deleted", kind, klog.KObj(live))
	default:
		return nil
	}
}

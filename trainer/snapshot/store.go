// Package snapshot finds the runtime of a TrainJob, and keeps a copy of it for as long as the TrainJob lives, so
// that a change of the runtime does not change a training that uses it.
package snapshot

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// Label is on every snapshot, with the value "true", so that a cache can hold snapshots and no other
// ConfigMaps.
const Label = "trainer.muster.dev/runtime-snapshot"

const (
	nameSuffix = "-runtime-snapshot"
	dataKey    = "runtime"
	fieldOwner = "trainer"
)

// Runtime is a training runtime of either kind. It is read only: it may belong to a cache.
type Runtime struct {
	Kind   string
	Name   string
	Labels map[string]string
	Spec   *v1alpha1.TrainingRuntimeSpec

	object client.Object
}

// Store reads runtimes and snapshots, and writes snapshots.
type Store struct {
	// Runtimes reads runtimes, as a rule from a cache.
	Runtimes client.Reader

	// Snapshots reads ConfigMaps that have Label, as a rule from a cache that has no others.
	Snapshots client.Reader

	// Live reads from the API server what a cache lacks: an object may be newer than the cache, and a
	// snapshot that another trainer made has no Label.
	Live client.Reader

	// Writer creates snapshots.
	Writer client.Writer
}

// Name returns the name of a TrainJob's snapshot.
func Name(trainJob *v1alpha1.TrainJob) string {
	return trainJob.Name + nameSuffix
}

// Get returns the runtime in a TrainJob's snapshot, nil if it has none. An error of type *Unusable says that
// the snapshot will never be usable as it is.
func (s *Store) Get(ctx context.Context, trainJob *v1alpha1.TrainJob) (*Runtime, error) {
	key := client.ObjectKey{Namespace: trainJob.Namespace, Name: Name(trainJob)}
	configMap := &corev1.ConfigMap{}
	found, err := getFrom(ctx, key, configMap, s.Snapshots, s.Live)
	if err != nil || !found {
		return nil, err
	}
	if !metav1.IsControlledBy(configMap, trainJob) {
		// As a rule it belongs to a TrainJob of the same name that was deleted, and soon goes.
		return nil, fmt.Errorf("ConfigMap %s exists and does not belong to this TrainJob", klog.KObj(configMap))
	}
	return decode(trainJob, configMap)
}

// Current returns the runtime that a TrainJob names as it is now. The error is a NotFound error if there is
// no such runtime.
func (s *Store) Current(ctx context.Context, trainJob *v1alpha1.TrainJob) (*Runtime, error) {
	ref := trainJob.Spec.RuntimeRef
	runtime, key := &Runtime{Kind: ref.RuntimeKind(), Name: ref.Name}, client.ObjectKey{Name: ref.Name}
	switch runtime.Kind {
	case v1alpha1.TrainingRuntimeKind:
		key.Namespace = trainJob.Namespace
		object := &v1alpha1.TrainingRuntime{}
		runtime.object, runtime.Spec = object, &object.Spec
	default:
		object := &v1alpha1.ClusterTrainingRuntime{}
		runtime.object, runtime.Spec = object, &object.Spec
	}
	found, err := getFrom(ctx, key, runtime.object, s.Runtimes, s.Live)
	if err != nil {
		return nil, err
	}
	if !found {
		resource := v1alpha1.GroupVersion.WithResource(runtime.Kind).GroupResource()
		return nil, apierrors.NewNotFound(resource, key.Name)
	}
	runtime.Labels = runtime.object.GetLabels()
	return runtime, nil
}

// Take makes the snapshot of a TrainJob that has none. If another process was faster, it returns an
// AlreadyExists error.
func (s *Store) Take(ctx context.Context, trainJob *v1alpha1.TrainJob, runtime *Runtime) error {
	configMap, err := encode(trainJob, runtime)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Keeping a snapshot of the runtime", "configMap", klog.KObj(configMap))
	return s.Writer.Create(ctx, configMap, client.FieldOwner(fieldOwner))
}

// getFrom reads an object from the first reader that has it.
func getFrom(ctx context.Context, key client.ObjectKey, object client.Object, readers ...client.Reader) (bool, error) {
	for _, reader := range readers {
		err := reader.Get(ctx, key, object)
		if err == nil {
			return true, nil
		}
		if !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("getting %T %s: %w", object, key, err)
		}
	}
	return false, nil
}

package snapshot

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// Unusable is the error of a snapshot that somebody damaged.
type Unusable struct {
	// ConfigMap is the snapshot's name.
	ConfigMap string

	// Why it cannot be used, and which field is wrong.
	Why string
}

// Error implements error.
func (u *Unusable) Error() string {
	return fmt.Sprintf("ConfigMap %s: %s", u.ConfigMap, u.Why)
}

// encode makes the snapshot of a runtime: all of it, but for what only the API server and kubectl read.
func encode(trainJob *v1alpha1.TrainJob, runtime *Runtime) (*corev1.ConfigMap, error) {
	object := runtime.object.DeepCopyObject().(client.Object)
	// Objects from a cache or a client have no kind.
	object.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(runtime.Kind))
	object.SetManagedFields(nil)
	annotations := object.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	object.SetAnnotations(annotations)
	content, err := yaml.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s: %w", runtime.Kind, runtime.Name, err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       trainJob.Namespace,
			Name:            Name(trainJob),
			Labels:          map[string]string{Label: "true"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(trainJob, v1alpha1.GroupVersion.WithKind(v1alpha1.TrainJobKind))},
		},
		Data: map[string]string{dataKey: string(content)},
	}, nil
}

// decode reads a snapshot, and makes sure that it is of the runtime that the TrainJob names.
func decode(trainJob *v1alpha1.TrainJob, configMap *corev1.ConfigMap) (*Runtime, error) {
	unusable := func(format string, args ...any) error {
		return &Unusable{ConfigMap: configMap.Name, Why: fmt.Sprintf("data."+dataKey+": "+format, args...)}
	}
	content, ok := configMap.Data[dataKey]
	if !ok {
		return nil, unusable("is missing")
	}
	// Both kinds have the same fields.
	object := &v1alpha1.ClusterTrainingRuntime{}
	if err := yaml.Unmarshal([]byte(content), object); err != nil {
		return nil, unusable("is no runtime: %v", err)
	}
	ref := trainJob.Spec.RuntimeRef
	want := schema.GroupKind{Group: ref.RuntimeGroup(), Kind: ref.RuntimeKind()}
	if got := object.GroupVersionKind().GroupKind(); got != want {
		return nil, unusable("is a %q, the TrainJob names a %q", got, want)
	}
	if object.Name != ref.Name {
		return nil, unusable("is of the runtime %q, the TrainJob names %q", object.Name, ref.Name)
	}
	return &Runtime{Kind: want.Kind, Name: object.Name, Labels: object.Labels, Spec: &object.Spec, object: object}, nil
}

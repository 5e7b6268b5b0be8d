package podgroup

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// GroupIndex is the index of NewPodInformer's store: it finds the pods of a gang by the string form
// "namespace/name" of the gang's key.
const GroupIndex = "podgroup"

// NewPodInformer returns an informer of all pods that carry the pod group label, whatever scheduler and
// controller they belong to, stripped by Transform and indexed by GroupIndex. Its handlers are called anew
// for every pod each resync; 0 means never.
func NewPodInformer(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
	informer := coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, resync,
		cache.Indexers{GroupIndex: indexByGroup},
		func(options *metav1.ListOptions) { options.LabelSelector = v1alpha1.GroupLabel })
	mustSetTransform(informer, Transform)
	return informer
}

// NewGroupInformer returns an informer of all PodGroups, as *v1alpha1.PodGroup and without their managed
// fields. It asks for JSON whatever content type cfg names, since custom resources have no other. It returns
// an error if cfg makes no client.
func NewGroupInformer(cfg *rest.Config) (cache.SharedIndexInformer, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering PodGroup: %w", err)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.APIPath = "/apis"
	cfg.GroupVersion = &v1alpha1.GroupVersion
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.ContentType = runtime.ContentTypeJSON
	cfg.AcceptContentTypes = runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client for PodGroups: %w", err)
	}
	informer := cache.NewSharedIndexInformer(
		cache.NewListWatchFromClient(client, "podgroups", metav1.NamespaceAll, fields.Everything()),
		&v1alpha1.PodGroup{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	mustSetTransform(informer, stripManagedFields)
	return informer, nil
}

// mustSetTransform sets the transform of an informer that was not started: the only error there is.
func mustSetTransform(informer cache.SharedIndexInformer, transform cache.TransformFunc) {
	if err := informer.SetTransform(transform); err != nil {
		panic(fmt.Sprintf("setting the transform of a new informer: %v", err))
	}
}

// stripManagedFields drops what only the API server reads and what can outweigh the object itself.
func stripManagedFields(obj any) (any, error) {
	if group, ok := obj.(*v1alpha1.PodGroup); ok {
		group.ManagedFields = nil
	}
	return obj, nil
}

func indexByGroup(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("indexing a %T as a pod", obj)
	}
	key, ok := Key(pod)
	if !ok {
		return nil, nil
	}
	return []string{key.String()}, nil
}

package main

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// jobSets knows which JobSets there are. It watches them: to list thousands again and again would be work for
// the API server that is counted as the contender's.
type jobSets struct {
	store cache.Store
}

func watchJobSets(ctx context.Context, kubeconfig string) (*jobSets, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	kube, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	resource := jobset.GroupVersion.WithResource("jobsets")
	informer := metadatainformer.NewFilteredMetadataInformer(kube, resource, namespace, 0, cache.Indexers{}, nil).Informer()
	if err := informer.SetTransform(nameOnly); err != nil {
		return nil, err
	}
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, errors.New("the JobSets cannot be watched")
	}
	return &jobSets{store: informer.GetStore()}, nil
}

// nameOnly keeps of a JobSet what tells it from others.
func nameOnly(object any) (any, error) {
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		m.ManagedFields, m.Annotations, m.Labels = nil, nil, nil
	}
	return object, nil
}

func (j *jobSets) count() int {
	return len(j.store.ListKeys())
}

// Package apply writes the trainer's child objects by server-side apply, and tells when there is nothing to
// write.
package apply

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldOwner is the field manager of what the trainer applies: Kubeflow Trainer's own, so that a cluster
// may change from one trainer to the other with its TrainJobs in place.
const FieldOwner = "trainer"

// Create makes an object that does not exist. It returns a conflict if one appeared in the meantime with other
// values, which is someone else's.
func Create(ctx context.Context, c client.Client, wanted *unstructured.Unstructured) error {
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), client.FieldOwner(FieldOwner))
}

// Apply creates an object, or brings the fields that the trainer owns to what wanted says.
func Apply(ctx context.Context, c client.Client, wanted *unstructured.Unstructured) error {
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), client.FieldOwner(FieldOwner), client.ForceOwnership)
}

// Configuration returns an object as a server-side apply wants it: without the status, which has an owner
// of its own. The object is not changed.
func Configuration(object client.Object) (*unstructured.Unstructured, error) {
	content, err := apiruntime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("converting %s: %w", klog.KObj(object), err)
	}
	// An object that is unstructured already comes back as it is.
	content = maps.Clone(content)
	delete(content, "status")
	return &unstructured.Unstructured{Object: content}, nil
}

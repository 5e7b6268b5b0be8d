// Package apply writes the trainer's child objects by server-side apply, and tells when there is nothing to
// write.
package apply

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldOwner is the field manager of what the trainer applies: Kubeflow Trainer's own, so that a cluster
// may change from one trainer to the other with its TrainJobs in place.
const FieldOwner = "trainer"

// Create makes an object that a cache does not show. It returns a conflict if one has appeared with other values that
// are someone else's. If it is there all the same, which live tells, a refusal is of a change, and no reason to give
// up: the error is then none of Refused.
func Create(ctx context.Context, c client.Client, live client.Reader, wanted *unstructured.Unstructured) error {
	err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), client.FieldOwner(FieldOwner))
	if !Refused(err) {
		return err
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(wanted.GroupVersionKind())
	getErr := live.Get(ctx, client.ObjectKeyFromObject(wanted), found)
	if apierrors.IsNotFound(getErr) {
		return err
	}
	if getErr != nil {
		return fmt.Errorf("getting %s %s: %w", wanted.GetKind(), klog.KObj(wanted), getErr)
	}
	return fmt.Errorf("%s %s is newer than what was read of it: %v", wanted.GetKind(), klog.KObj(wanted), err)
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

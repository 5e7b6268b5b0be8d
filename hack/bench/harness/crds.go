package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/muster-sched/muster/hack/bench/workload"
)

const (
	crdTimeout  = 30 * time.Second
	crdInterval = 100 * time.Millisecond
)

// InstallCRDs creates the custom resource definitions of the run's folder and waits until they are served. Plugins
// that need them must be made afterwards, and scheduler_perf starts the scheduler right after the API server.
func InstallCRDs(ctx context.Context, config *rest.Config, r workload.Run) error {
	data, err := os.ReadFile(filepath.Join(r.Files, workload.CRDFile))
	if err != nil {
		return err
	}
	var crds []*unstructured.Unstructured
	if err := json.Unmarshal(data, &crds); err != nil {
		return fmt.Errorf("%s: %w", workload.CRDFile, err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, crd := range crds {
		if _, err := definitions.Create(ctx, crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	for _, crd := range crds {
		kind, err := served(crd)
		if err != nil {
			return err
		}
		if err := wait.PollUntilContextTimeout(ctx, crdInterval, crdTimeout, true, func(ctx context.Context) (bool, error) {
			_, err := client.Resource(kind).List(ctx, metav1.ListOptions{Limit: 1})
			return err == nil, nil
		}); err != nil {
			return fmt.Errorf("%s is not served: %w", kind, err)
		}
	}
	return nil
}

// served is a version that the API server will have of what is defined.
func served(crd *unstructured.Unstructured) (schema.GroupVersionResource, error) {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if name, ok := version["name"].(string); ok && version["served"] == true {
			return schema.GroupVersionResource{Group: group, Version: name, Resource: plural}, nil
		}
	}
	return schema.GroupVersionResource{}, fmt.Errorf("CustomResourceDefinition %q serves no version", crd.GetName())
}

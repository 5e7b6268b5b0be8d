package app

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"
)

// requirement is a resource without which a part of Muster would wait for ever instead of working.
type requirement struct {
	resource schema.GroupVersionResource
	neededBy string
	remedy   string
}

// gatedResources are what kube-scheduler watches as soon as a feature gate is on, whether or not the
// API server serves it.
var gatedResources = []struct {
	gate     featuregate.Feature
	resource schema.GroupVersionResource
}{
	{features.GenericWorkload, schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1beta1", Resource: "podgroups"}},
	{features.CompositePodGroup, schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1alpha3", Resource: "compositepodgroups"}},
}

// schedulerRequirements returns what the scheduler needs under the given feature gates.
func schedulerRequirements(gates featuregate.FeatureGate) []requirement {
	var needs []requirement
	for _, gated := range gatedResources {
		if gates.Enabled(gated.gate) {
			needs = append(needs, requirement{
				resource: gated.resource,
				neededBy: fmt.Sprintf("feature gate %s", gated.gate),
				remedy:   fmt.Sprintf("start the API server with --runtime-config=%s=true, or turn the gate off", gated.resource.GroupVersion()),
			})
		}
	}
	return needs
}

// checkServed asks the API server for each required resource and names every one that is missing.
// It returns an error too if the API server does not answer.
func checkServed(ctx context.Context, config *rest.Config, needs []requirement) error {
	if len(needs) == 0 {
		return nil
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	served := map[schema.GroupVersion]map[string]bool{}
	var missing []error
	for _, need := range needs {
		groupVersion := need.resource.GroupVersion()
		if served[groupVersion] == nil {
			if served[groupVersion], err = servedResources(ctx, client, groupVersion); err != nil {
				return fmt.Errorf("ask the API server for %s: %w", groupVersion, err)
			}
		}
		if !served[groupVersion][need.resource.Resource] {
			missing = append(missing, fmt.Errorf("%s needs %s of %s, which the API server does not serve: %s",
				need.neededBy, need.resource.Resource, groupVersion, need.remedy))
		}
	}
	return errors.Join(missing...)
}

func servedResources(ctx context.Context, client *discovery.DiscoveryClient, groupVersion schema.GroupVersion) (map[string]bool, error) {
	names := map[string]bool{}
	list, err := client.ServerResourcesForGroupVersionWithContext(ctx, groupVersion.String())
	if apierrors.IsNotFound(err) {
		return names, nil
	}
	if err != nil {
		return nil, err
	}
	for _, resource := range list.APIResources {
		names[resource.Name] = true
	}
	return names, nil
}

package controlplane

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// InstallCRDs creates or updates custom resource definitions and waits until the API server serves
// them.
func (c *Cluster) InstallCRDs(crds []*apiextensionsv1.CustomResourceDefinition) error {
	if _, err := envtest.InstallCRDs(c.REST(), envtest.CRDInstallOptions{
		CRDs:         crds,
		MaxTime:      readyTimeout,
		PollInterval: pollInterval,
	}); err != nil {
		return fmt.Errorf("install custom resource definitions: %w", err)
	}
	return nil
}

package controlplane

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane/jobset"
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

// installConfiguredCRDs installs what the configuration names and JobSet's, in one go: waiting for the
// API server to serve them takes longer than creating them.
func (c *Cluster) installConfiguredCRDs() error {
	crds := c.config.CRDs
	if !c.config.DisableJobSet {
		crd, err := jobset.CRD()
		if err != nil {
			return err
		}
		crds = append(slices.Clip(crds), crd)
	}
	if len(crds) == 0 {
		return nil
	}
	c.config.progress("installing custom resource definitions")
	return c.InstallCRDs(crds)
}

package controlplane

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/kubernetes/pkg/features"
)

// Config says what Start starts. The zero value is a complete control plane in a temporary directory.
type Config struct {
	// DataDir keeps keys, etcd's data, the kubeconfig and the log. Empty means a temporary directory
	// that Stop removes. State in a given directory survives a restart: objects, the certificate
	// authority, the service account key and, if it is still free, the API server's port.
	DataDir string

	// FeatureGates are Kubernetes feature gates, set for all components and reset by Stop.
	FeatureGates map[string]bool

	// RuntimeConfig turns API versions on or off, for example "scheduling.k8s.io/v1beta1": true.
	RuntimeConfig map[string]bool

	// CRDs are installed, and established, before Start starts anything that could need them.
	CRDs []*apiextensionsv1.CustomResourceDefinition

	// DisableJobSet leaves out the JobSet CRD, controller and webhooks.
	DisableJobSet bool

	// Controllers is kube-controller-manager's --controllers. Empty means its default set.
	Controllers []string

	// LogFile receives what the components log. Empty means muster-local.log in the data directory.
	LogFile string

	// Progress, if set, is told what Start begins to do, in a few words, from Start's goroutine.
	Progress func(step string)
}

// validate reports every mistake that would otherwise surface as a hang or as a component's obscure
// failure, naming the field.
func (c *Config) validate() error {
	var errs []error
	if c.FeatureGates[string(features.GenericWorkload)] && !c.serves("scheduling.k8s.io/v1beta1") {
		// kube-scheduler watches PodGroups as soon as the gate is on, and waits for ever if they are
		// not served.
		errs = append(errs, fmt.Errorf("featureGates: %s needs runtimeConfig scheduling.k8s.io/v1beta1=true", features.GenericWorkload))
	}
	for i, crd := range c.CRDs {
		if crd == nil {
			errs = append(errs, fmt.Errorf("crds[%d]: must not be nil", i))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) serves(groupVersion string) bool {
	for _, key := range []string{groupVersion, "api/beta", "api/all"} {
		if c.RuntimeConfig[key] {
			return true
		}
	}
	return false
}

func (c *Config) progress(step string) {
	if c.Progress != nil {
		c.Progress(step)
	}
}

// flagValue renders a map the way Kubernetes' key=bool flags read it, in a stable order.
func flagValue(m map[string]bool) string {
	pairs := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, key+"="+strconv.FormatBool(m[key]))
	}
	return strings.Join(pairs, ",")
}

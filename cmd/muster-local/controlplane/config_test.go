package controlplane

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func TestConfigValidate(t *testing.T) {
	gate := map[string]bool{"GenericWorkload": true}
	for name, test := range map[string]struct {
		config Config
		err    string
	}{
		"zero value":               {},
		"native gangs":             {config: Config{FeatureGates: gate, RuntimeConfig: map[string]bool{"scheduling.k8s.io/v1beta1": true}}},
		"native gangs, all APIs":   {config: Config{FeatureGates: gate, RuntimeConfig: map[string]bool{"api/all": true}}},
		"native gangs, not served": {config: Config{FeatureGates: gate}, err: "runtimeConfig scheduling.k8s.io/v1beta1=true"},
		"native gangs, turned off": {config: Config{FeatureGates: gate, RuntimeConfig: map[string]bool{"scheduling.k8s.io/v1beta1": false}}, err: "featureGates: GenericWorkload"},
		"gate off":                 {config: Config{FeatureGates: map[string]bool{"GenericWorkload": false}}},
		"nil CRD":                  {config: Config{CRDs: []*apiextensionsv1.CustomResourceDefinition{{}, nil}}, err: "crds[1]"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.config.validate()
			if test.err == "" && err != nil {
				t.Fatal(err)
			}
			if test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Fatalf("error %v, want one with %q", err, test.err)
			}
		})
	}
}

func TestFlagValue(t *testing.T) {
	if got, want := flagValue(map[string]bool{"b": false, "a/v1": true, "c": true}), "a/v1=true,b=false,c=true"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLocalSchedulerConfig(t *testing.T) {
	content, err := localSchedulerConfig([]byte(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true, resourceName: mine}
notAField: kept
`), "/tmp/kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		LeaderElection struct {
			LeaderElect  bool
			ResourceName string
		}
		ClientConnection struct{ Kubeconfig string }
		NotAField        string
	}
	if err := yaml.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	if got.LeaderElection.LeaderElect || got.LeaderElection.ResourceName != "mine" {
		t.Errorf("leader election %+v, want it off and its other fields kept", got.LeaderElection)
	}
	if got.ClientConnection.Kubeconfig != "/tmp/kubeconfig" {
		t.Errorf("kubeconfig %q", got.ClientConnection.Kubeconfig)
	}
	if got.NotAField != "kept" {
		t.Error("an unknown field was dropped: the scheduler could not refuse it")
	}

	if content, err = localSchedulerConfig(nil, "x"); err != nil || !strings.Contains(string(content), "kind: KubeSchedulerConfiguration") {
		t.Errorf("empty configuration became %q, error %v", content, err)
	}
	if _, err := localSchedulerConfig([]byte("leaderElection: 3"), "x"); err == nil || !strings.Contains(err.Error(), "configuration") {
		t.Errorf("error %v, want one that names the configuration", err)
	}
}

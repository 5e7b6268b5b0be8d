package manifests

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	configv1 "k8s.io/kube-scheduler/config/v1"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"sigs.k8s.io/yaml"
)

func TestFSHoldsEveryFileOfTheTree(t *testing.T) {
	embedded := map[string]bool{}
	if err := fs.WalkDir(FS, ".", func(name string, _ fs.DirEntry, err error) error {
		embedded[name] = true
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := fs.WalkDir(os.DirFS("."), ".", func(name string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".yaml") && !embedded[name] {
			t.Errorf("%s is not embedded", name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestEveryCRDIsInstalled(t *testing.T) {
	crds, err := CRDs()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, crd := range crds {
		names = append(names, crd.Name)
		if len(crd.Spec.Versions) == 0 || crd.Spec.Group == "" {
			t.Errorf("%s: not decoded", crd.Name)
		}
	}
	for _, want := range []string{
		"podgroups.scheduling.x-k8s.io",
		"trainjobs.trainer.kubeflow.org",
		"trainingruntimes.trainer.kubeflow.org",
		"clustertrainingruntimes.trainer.kubeflow.org",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("no CustomResourceDefinition %s in %v", want, names)
		}
	}

	data, err := FS.ReadFile("crds/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kustomization := struct{ Resources []string }{}
	if err := yaml.Unmarshal(data, &kustomization); err != nil {
		t.Fatal(err)
	}
	files, err := fs.Glob(FS, "crds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if base := path.Base(file); base != "kustomization.yaml" && !slices.Contains(kustomization.Resources, base) {
			t.Errorf("crds/kustomization.yaml does not list %s", base)
		}
	}
}

// load reads a configuration as kube-scheduler does: strictly, with defaults, and validated.
func load(t *testing.T, data []byte) *schedconfig.KubeSchedulerConfiguration {
	t.Helper()
	object, _, err := scheme.Codecs.UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	config := object.(*schedconfig.KubeSchedulerConfiguration)
	// The decoder leaves it out; validation wants to know which API the plugins come from.
	config.APIVersion = configv1.SchemeGroupVersion.String()
	if err := validation.ValidateKubeSchedulerConfiguration(config); err != nil {
		t.Fatal(err)
	}
	return config
}

func TestSchedulerConfig(t *testing.T) {
	data, err := SchedulerConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	config := load(t, data)
	if profile := config.Profiles[0]; profile.SchedulerName != "muster-scheduler" {
		t.Errorf("got profile %q", profile.SchedulerName)
	}
	if election := config.LeaderElection; !election.LeaderElect || election.LeaseDuration.Duration == 0 {
		t.Errorf("leader election has no defaults: %+v", election)
	}

	data, err = SchedulerConfig(func(config *configv1.KubeSchedulerConfiguration) {
		config.ClientConnection.Kubeconfig = "/tmp/kubeconfig"
		name := "default-scheduler"
		config.Profiles[0].SchedulerName = &name
	})
	if err != nil {
		t.Fatal(err)
	}
	config = load(t, data)
	if config.ClientConnection.Kubeconfig != "/tmp/kubeconfig" || config.Profiles[0].SchedulerName != "default-scheduler" {
		t.Errorf("the changes are lost: %+v", config)
	}
}

// The overlay's configuration is a copy of base's, because kustomize can't edit inside a file. They
// may differ in who Muster schedules for and which lease it takes, and in nothing else.
func TestOverlayKeepsBasesConfiguration(t *testing.T) {
	read := func(name string) *schedconfig.KubeSchedulerConfiguration {
		data, err := FS.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return load(t, data)
	}
	base, overlay := read("base/scheduler-config.yaml"), read("overlays/only-scheduler/scheduler-config.yaml")
	if overlay.Profiles[0].SchedulerName != "default-scheduler" {
		t.Errorf("as the only scheduler Muster schedules for %q", overlay.Profiles[0].SchedulerName)
	}
	if overlay.LeaderElection.ResourceName != "kube-scheduler" || overlay.LeaderElection.ResourceNamespace != "kube-system" {
		t.Errorf("the lease %s/%s does not keep kube-scheduler away", overlay.LeaderElection.ResourceNamespace, overlay.LeaderElection.ResourceName)
	}
	overlay.Profiles[0].SchedulerName = base.Profiles[0].SchedulerName
	overlay.LeaderElection = base.LeaderElection
	if got, want := encode(t, overlay), encode(t, base); got != want {
		t.Errorf("only-scheduler: got\n%s\nwant\n%s", got, want)
	}
}

func encode(t *testing.T, config *schedconfig.KubeSchedulerConfiguration) string {
	t.Helper()
	data, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

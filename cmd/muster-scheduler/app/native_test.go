package app

import (
	"bytes"
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	schedoptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/features"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/muster-sched/muster/plugins/coscheduling"
	"github.com/muster-sched/muster/plugins/gputopology"
)

// nativeGates turns the feature gates for native pod groups on for a test.
func nativeGates(t *testing.T) {
	t.Helper()
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		features.GenericWorkload:                 true,
		features.TopologyAwareWorkloadScheduling: true,
	})
}

// shippedConfigs are the scheduler configurations that are deployed, as kube-scheduler reads them under
// the feature gates of the moment.
func shippedConfigs(t *testing.T) map[string]*schedconfig.KubeSchedulerConfiguration {
	t.Helper()
	configs := map[string]*schedconfig.KubeSchedulerConfiguration{}
	for _, name := range []string{"base", "overlays/only-scheduler"} {
		config, err := schedoptions.LoadConfigFromFile(klog.Background(), "../../../manifests/"+name+"/scheduler-config.yaml")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		configs[name] = config
	}
	return configs
}

func logged(log func(klog.Logger)) string {
	var out bytes.Buffer
	log(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out))))
	return out.String()
}

func TestShippedConfigurationIsNative(t *testing.T) {
	for _, gates := range []bool{false, true} {
		if gates {
			nativeGates(t)
		}
		for name, config := range shippedConfigs(t) {
			if err := checkGenerators(config.Profiles); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, profile := range config.Profiles {
				if got := generatorsOf(profile.Plugins); len(got) != 1 || got[0] != gputopology.Name {
					t.Errorf("%s: profile %s: generators %v", name, profile.SchedulerName, got)
				}
			}
			if said := logged(func(l klog.Logger) {
				warnIfNotNative(l, utilfeature.DefaultFeatureGate, config.Profiles)
				warnIfLevelsDiffer(l, config.Profiles)
			}); said != "" {
				t.Errorf("%s: warns of itself: %s", name, said)
			}
		}
	}
}

func TestShippedLevelsAgree(t *testing.T) {
	for name, config := range shippedConfigs(t) {
		for _, profile := range config.Profiles {
			if !enables(profile, coscheduling.Name) || !enables(profile, gputopology.Name) {
				t.Errorf("%s: profile %s lacks a plugin", name, profile.SchedulerName)
			}
			a, b := levelsOf(profile, coscheduling.Name), levelsOf(profile, gputopology.Name)
			if strings.Join(a, ",") != strings.Join(b, ",") {
				t.Errorf("%s: profile %s: levels %v and %v", name, profile.SchedulerName, a, b)
			}
		}
	}
}

// profile reads one profile's YAML as kube-scheduler does.
func profile(t *testing.T, fields string) schedconfig.KubeSchedulerProfile {
	t.Helper()
	file := writeConfig(t, apiServer(t, nil), "profiles:\n- schedulerName: test\n"+fields)
	config, err := schedoptions.LoadConfigFromFile(klog.Background(), file)
	if err != nil {
		t.Fatal(err)
	}
	return config.Profiles[0]
}

func TestLevelsThatDifferAreNamed(t *testing.T) {
	const plugins = "  plugins: {multiPoint: {enabled: [{name: Coscheduling}, {name: GPUTopology}]}}\n"
	for _, test := range []struct{ fields, want string }{
		{plugins, ""},
		{plugins + "  pluginConfig:\n  - {name: Coscheduling, args: {topologyLevels: [rack]}}\n  - {name: GPUTopology, args: {topologyLevels: [rack]}}\n", ""},
		{plugins + "  pluginConfig:\n  - {name: Coscheduling, args: {topologyLevels: [rack], permitWaitingTimeSeconds: 5}}\n", `Coscheduling=["rack"] GPUTopology=null`},
		{plugins + "  pluginConfig:\n  - {name: Coscheduling, args: {topologyPreset: kubernetes}}\n  - {name: GPUTopology, args: {topologyLevels: [rack]}}\n", "topology.kubernetes.io/zone"},
		{"  plugins: {multiPoint: {enabled: [{name: Coscheduling}]}}\n  pluginConfig:\n  - {name: Coscheduling, args: {topologyLevels: [rack]}}\n", ""},
	} {
		said := logged(func(l klog.Logger) {
			warnIfLevelsDiffer(l, []schedconfig.KubeSchedulerProfile{profile(t, test.fields)})
		})
		if (said == "") != (test.want == "") || !strings.Contains(said, test.want) {
			t.Errorf("%s: logged %q, want %q", test.fields, said, test.want)
		}
	}
}

func TestGeneratorsAreCountedAsTheFrameworkDoes(t *testing.T) {
	nativeGates(t)
	for _, test := range []struct {
		name, fields, want string
	}{
		{"Kubernetes' own by default", "", "TopologyPlacementGenerator"},
		{"both", "  plugins: {multiPoint: {enabled: [{name: GPUTopology}]}}\n", "TopologyPlacementGenerator GPUTopology"},
		{"ours at the point alone", "  plugins: {placementGenerate: {enabled: [{name: GPUTopology}]}}\n", "TopologyPlacementGenerator GPUTopology"},
		{"Kubernetes' disabled at the point", "  plugins: {multiPoint: {enabled: [{name: GPUTopology}]}, placementGenerate: {disabled: [{name: TopologyPlacementGenerator}]}}\n", "GPUTopology"},
		{"Kubernetes' disabled everywhere", "  plugins: {multiPoint: {enabled: [{name: GPUTopology}], disabled: [{name: TopologyPlacementGenerator}]}}\n", "GPUTopology"},
		{"all disabled, ours listed", "  plugins: {placementGenerate: {disabled: [{name: '*'}], enabled: [{name: GPUTopology}]}}\n", "GPUTopology"},
		{"ours disabled at the point", "  plugins: {multiPoint: {enabled: [{name: GPUTopology}]}, placementGenerate: {disabled: [{name: GPUTopology}]}}\n", "TopologyPlacementGenerator"},
	} {
		p := profile(t, test.fields)
		if got := strings.Join(generatorsOf(p.Plugins), " "); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
		if err := checkGenerators([]schedconfig.KubeSchedulerProfile{p}); (err != nil) != strings.Contains(test.want, " ") {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestWhoIsNotNativeIsNamed(t *testing.T) {
	gates := func(placements bool) featuregate.FeatureGate {
		gates := utilfeature.DefaultFeatureGate.DeepCopy()
		if err := gates.SetFromMap(map[string]bool{"GenericWorkload": true, "TopologyAwareWorkloadScheduling": placements}); err != nil {
			t.Fatal(err)
		}
		return gates
	}
	ours := "  plugins: {multiPoint: {enabled: [{name: Coscheduling}, {name: GPUTopology}]}}\n"
	without := "  plugins: {multiPoint: {enabled: [{name: Coscheduling}]}}\n"
	for _, test := range []struct {
		name, fields string
		gates        featuregate.FeatureGate
		want         string
	}{
		{"gates off", without, utilfeature.DefaultFeatureGate, ""},
		{"one gate off", ours, gates(false), "TopologyAwareWorkloadScheduling"},
		{"both on", ours, gates(true), ""},
		{"both on without the plugin", without, gates(true), "GPUTopology"},
		{"not a profile of Muster's", "", gates(true), ""},
	} {
		said := logged(func(l klog.Logger) {
			warnIfNotNative(l, test.gates, []schedconfig.KubeSchedulerProfile{profile(t, test.fields)})
		})
		if (said == "") != (test.want == "") || !strings.Contains(said, test.want) {
			t.Errorf("%s: logged %q, want %q", test.name, said, test.want)
		}
	}
}

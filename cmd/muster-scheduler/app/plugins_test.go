package app

import (
	"testing"

	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/muster-sched/muster/plugins/coscheduling"
)

func TestPluginsRegisterBesideTheInTreeOnes(t *testing.T) {
	registry := runtime.Registry{}
	for _, register := range Plugins() {
		if err := register(registry); err != nil {
			t.Fatal(err)
		}
	}
	if registry[coscheduling.Name] == nil {
		t.Errorf("%s is not registered", coscheduling.Name)
	}
	if err := plugins.NewInTreeRegistry().Merge(registry); err != nil {
		t.Errorf("kube-scheduler would refuse the plugins: %v", err)
	}
}

func TestEnables(t *testing.T) {
	enabled := schedconfig.PluginSet{Enabled: []schedconfig.Plugin{{Name: "Other"}, {Name: coscheduling.Name}}}
	for _, test := range []struct {
		name    string
		plugins *schedconfig.Plugins
		want    bool
	}{
		{"no plugins", nil, false},
		{"others", &schedconfig.Plugins{MultiPoint: schedconfig.PluginSet{Enabled: []schedconfig.Plugin{{Name: "Other"}}}}, false},
		{"disabled", &schedconfig.Plugins{MultiPoint: schedconfig.PluginSet{Disabled: []schedconfig.Plugin{{Name: coscheduling.Name}}}}, false},
		{"at all points", &schedconfig.Plugins{MultiPoint: enabled}, true},
		{"at one point", &schedconfig.Plugins{Permit: enabled}, true},
	} {
		if got := enables(schedconfig.KubeSchedulerProfile{Plugins: test.plugins}, coscheduling.Name); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestPreemptsFirst(t *testing.T) {
	list := func(names ...string) []schedconfig.Plugin {
		var plugins []schedconfig.Plugin
		for _, name := range names {
			plugins = append(plugins, schedconfig.Plugin{Name: name})
		}
		return plugins
	}
	defaults := list("NodeResourcesFit", "DefaultPreemption", coscheduling.Name)
	for _, test := range []struct {
		name    string
		plugins schedconfig.Plugins
		want    bool
	}{
		{"multiPoint alone", schedconfig.Plugins{MultiPoint: schedconfig.PluginSet{Enabled: defaults}}, true},
		{"listed at the point too", schedconfig.Plugins{
			MultiPoint: schedconfig.PluginSet{Enabled: defaults},
			PostFilter: schedconfig.PluginSet{Enabled: list(coscheduling.Name)},
		}, false},
		{"listed at the point only", schedconfig.Plugins{
			MultiPoint: schedconfig.PluginSet{Enabled: list("DefaultPreemption")},
			PostFilter: schedconfig.PluginSet{Enabled: list(coscheduling.Name)},
		}, true},
		{"listed second", schedconfig.Plugins{
			MultiPoint: schedconfig.PluginSet{Enabled: defaults},
			PostFilter: schedconfig.PluginSet{Enabled: list("DefaultPreemption", coscheduling.Name)},
		}, true},
		{"no preemption", schedconfig.Plugins{
			MultiPoint: schedconfig.PluginSet{Enabled: defaults},
			PostFilter: schedconfig.PluginSet{Disabled: list("DefaultPreemption")},
		}, false},
		{"everything replaced", schedconfig.Plugins{
			MultiPoint: schedconfig.PluginSet{Enabled: defaults},
			PostFilter: schedconfig.PluginSet{Disabled: list("*"), Enabled: list(coscheduling.Name)},
		}, false},
	} {
		if got := preemptsFirst(&test.plugins); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

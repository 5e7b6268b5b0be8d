package app

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/plugins/coscheduling"
	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/gputopology"
)

// Plugins registers Muster's plugins with a kube-scheduler. Registered is not enabled: the profiles
// of the KubeSchedulerConfiguration say which plugins run, and with what arguments.
func Plugins() []schedapp.Option {
	return []schedapp.Option{
		schedapp.WithPlugin(coscheduling.Name, coscheduling.New),
		schedapp.WithPlugin(gputopology.Name, gputopology.New),
	}
}

// warnIfUnused says when no profile enables gang scheduling: everything runs then, and nothing gangs.
func warnIfUnused(logger klog.Logger, profiles []schedconfig.KubeSchedulerProfile) {
	for _, profile := range profiles {
		if enables(profile, coscheduling.Name) {
			return
		}
	}
	logger.Info("No scheduler profile enables the plugin, so gangs are scheduled as single pods", "plugin", coscheduling.Name)
}

// warnIfPreempting names the profiles in which the plugin for preemption has its turn before ours: it
// could then evict pods for a single member of a gang.
func warnIfPreempting(logger klog.Logger, profiles []schedconfig.KubeSchedulerProfile) {
	for _, profile := range profiles {
		if enables(profile, coscheduling.Name) && preemptsFirst(profile.Plugins) {
			logger.Info("Pods may be preempted for a single member of a gang; list the plugin first under plugins.postFilter.enabled",
				"profile", profile.SchedulerName, "plugin", coscheduling.Name)
		}
	}
}

// preemptsFirst follows the framework's order at the extension point: what the point lists itself of
// the plugins under multiPoint, then the rest of multiPoint, then the rest of the point.
func preemptsFirst(plugins *schedconfig.Plugins) bool {
	named := func(list []schedconfig.Plugin, name string) bool {
		return slices.ContainsFunc(list, func(p schedconfig.Plugin) bool { return p.Name == name })
	}
	point, multi := plugins.PostFilter, plugins.MultiPoint.Enabled
	if named(point.Disabled, "*") {
		multi = nil
	}
	var order []schedconfig.Plugin
	for _, p := range point.Enabled {
		if named(multi, p.Name) {
			order = append(order, p)
		}
	}
	for _, p := range slices.Concat(order, multi, point.Enabled) {
		switch {
		case p.Name == coscheduling.Name:
			return false
		case p.Name == names.DefaultPreemption && !named(point.Disabled, p.Name):
			return true
		}
	}
	return false
}

func enables(profile schedconfig.KubeSchedulerProfile, plugin string) bool {
	if profile.Plugins == nil {
		return false
	}
	for _, enabled := range profile.Plugins.MultiPoint.Enabled {
		if enabled.Name == plugin {
			return true
		}
	}
	for _, name := range profile.Plugins.Names() {
		if name == plugin {
			return true
		}
	}
	return false
}

// warnIfLevelsDiffer names the profiles in which the two plugins are told different topology levels:
// single pods would then be packed by other domains than gangs are kept in.
func warnIfLevelsDiffer(logger klog.Logger, profiles []schedconfig.KubeSchedulerProfile) {
	for _, profile := range profiles {
		if !enables(profile, coscheduling.Name) || !enables(profile, gputopology.Name) {
			continue
		}
		a, b := levelsOf(profile, coscheduling.Name), levelsOf(profile, gputopology.Name)
		if !slices.Equal(a, b) {
			logger.Info("The plugins are told different topology levels", "profile", profile.SchedulerName,
				coscheduling.Name, a, gputopology.Name, b)
		}
	}
}

// levelsOf returns the topology levels in a plugin's arguments, outermost first. The plugin has judged
// the arguments before.
func levelsOf(profile schedconfig.KubeSchedulerProfile, plugin string) []string {
	for _, config := range profile.PluginConfig {
		if raw, ok := config.Args.(*runtime.Unknown); ok && config.Name == plugin {
			args := gangplan.LevelArgs{}
			if yaml.Unmarshal(raw.Raw, &args) == nil {
				return args.Levels()
			}
		}
	}
	return nil
}

// The signature that kube-scheduler asks of a plugin's factory.
var (
	_ func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) = coscheduling.New
	_ func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) = gputopology.New
)

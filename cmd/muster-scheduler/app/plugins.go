package app

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/muster-sched/muster/plugins/coscheduling"
)

// Plugins registers Muster's plugins with a kube-scheduler. Registered is not enabled: the profiles
// of the KubeSchedulerConfiguration say which plugins run, and with what arguments.
func Plugins() []schedapp.Option {
	return []schedapp.Option{
		schedapp.WithPlugin(coscheduling.Name, coscheduling.New),
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

// The signature that kube-scheduler asks of a plugin's factory.
var _ func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) = coscheduling.New

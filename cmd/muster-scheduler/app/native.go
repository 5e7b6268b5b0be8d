package app

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/muster-sched/muster/plugins/coscheduling"
	"github.com/muster-sched/muster/plugins/gputopology"
)

// generators are the plugins that choose where native pod groups are tried. The framework takes one.
var generators = []string{names.TopologyPlacementGenerator, gputopology.Name}

// checkGenerators returns an error that names every profile in which both generators are enabled, and
// says how to put it right. kube-scheduler would refuse it too, without saying which they are.
func checkGenerators(profiles []schedconfig.KubeSchedulerProfile) error {
	var errs []error
	for _, profile := range profiles {
		if len(generatorsOf(profile.Plugins)) > 1 {
			errs = append(errs, fmt.Errorf("profile %q: %s and %s both choose where pod groups go, and the scheduler takes one; with feature gate %s on, list %s under plugins.placementGenerate.disabled, or %s for Kubernetes' own choice",
				profile.SchedulerName, names.TopologyPlacementGenerator, gputopology.Name,
				features.TopologyAwareWorkloadScheduling, names.TopologyPlacementGenerator, gputopology.Name))
		}
	}
	return errors.Join(errs...)
}

// warnIfNotNative names the profiles with Muster's plugins in which the feature gates for native pod
// groups are on and Muster does not choose where those go.
func warnIfNotNative(logger klog.Logger, gates featuregate.FeatureGate, profiles []schedconfig.KubeSchedulerProfile) {
	if !gates.Enabled(features.GenericWorkload) {
		return
	}
	placements := gates.Enabled(features.TopologyAwareWorkloadScheduling)
	for _, profile := range profiles {
		if !enables(profile, coscheduling.Name) && !enables(profile, gputopology.Name) {
			continue
		}
		switch {
		case !placements:
			logger.Info("Native pod groups are scheduled one pod after another, without a plan and without topology: a feature gate is off",
				"profile", profile.SchedulerName, "featureGate", features.TopologyAwareWorkloadScheduling)
		case !slices.Contains(generatorsOf(profile.Plugins), gputopology.Name):
			logger.Info("Native pod groups are placed without Muster's planner, and annotations for a topology mean nothing on them: the plugin is not enabled under plugins.placementGenerate",
				"profile", profile.SchedulerName, "plugin", gputopology.Name)
		}
	}
}

// generatorsOf returns the generators that a profile enables, as the framework counts them.
func generatorsOf(plugins *schedconfig.Plugins) []string {
	if plugins == nil {
		return nil
	}
	has := func(list []schedconfig.Plugin, name string) bool {
		return slices.ContainsFunc(list, func(p schedconfig.Plugin) bool { return p.Name == name })
	}
	point := plugins.PlacementGenerate
	var enabled []string
	for _, name := range generators {
		everywhere := has(plugins.MultiPoint.Enabled, name) && !has(point.Disabled, name) && !has(point.Disabled, "*")
		if everywhere || has(point.Enabled, name) {
			enabled = append(enabled, name)
		}
	}
	return enabled
}

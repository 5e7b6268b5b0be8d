package harness

import (
	"strings"

	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/muster-sched/muster/hack/bench/workload"
)

// observed are the histograms of durations that are kept, as far as the process has them.
var observed = map[string]bool{
	"scheduler_scheduling_attempt_duration_seconds":          true,
	"scheduler_podgroup_scheduling_attempt_duration_seconds": true,
	"muster_gang_plan_duration_seconds":                      true,
	"muster_gang_preemption_duration_seconds":                true,
}

// durations sums the histograms up as they stand, by name and result.
func durations() map[string]workload.Duration {
	all := map[string]workload.Duration{}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return all
	}
	for _, family := range families {
		if !observed[family.GetName()] {
			continue
		}
		for _, metric := range family.GetMetric() {
			key := strings.TrimSuffix(family.GetName(), "_seconds")
			for _, label := range metric.GetLabel() {
				if label.GetName() == "result" {
					key += " " + label.GetValue()
				}
			}
			sum := all[key]
			sum.Count += metric.GetHistogram().GetSampleCount()
			sum.Seconds += metric.GetHistogram().GetSampleSum()
			all[key] = sum
		}
	}
	return all
}

// since is what was added between two sums.
func since(start, end map[string]workload.Duration) map[string]workload.Duration {
	added := map[string]workload.Duration{}
	for key, e := range end {
		if s := start[key]; e.Count > s.Count {
			added[key] = workload.Duration{Count: e.Count - s.Count, Seconds: e.Seconds - s.Seconds}
		}
	}
	return added
}

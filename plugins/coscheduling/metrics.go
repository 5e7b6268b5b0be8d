package coscheduling

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	planDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem:      "muster",
		Name:           "gang_plan_duration_seconds",
		Help:           "Time to plan a gang, or to find that it cannot be planned, by result (planned, refused).",
		Buckets:        metrics.ExponentialBuckets(0.0001, 2, 16),
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})

	commitsLetGo = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem:      "muster",
		Name:           "gang_commits_let_go_total",
		Help:           "Gangs that had a plan, part of which was reserved or held, and let everything go.",
		StabilityLevel: metrics.ALPHA,
	})

	membersLost = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem:      "muster",
		Name:           "gang_members_lost_total",
		Help:           "Members that gangs lost which went on without them and kept their room for a replacement.",
		StabilityLevel: metrics.ALPHA,
	})

	repairDuration = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem:      "muster",
		Name:           "gang_repair_duration_seconds",
		Help:           "Time from the loss of a member until its replacement was bound.",
		Buckets:        metrics.ExponentialBuckets(0.1, 2, 14),
		StabilityLevel: metrics.ALPHA,
	})
)

func init() {
	legacyregistry.MustRegister(planDuration, commitsLetGo, membersLost, repairDuration)
}

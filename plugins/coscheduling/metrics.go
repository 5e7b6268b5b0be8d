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

var (
	reservationsActive = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem:      "muster",
		Name:           "reservation_active",
		Help:           "1 while room is reserved for a gang that waits, else 0.",
		StabilityLevel: metrics.ALPHA,
	})

	reservationDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem:      "muster",
		Name:           "reservation_duration_seconds",
		Help:           "Time for which room was reserved for a gang, by how that ended.",
		Buckets:        metrics.ExponentialBuckets(1, 2, 20),
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})

	backfills = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      "muster",
		Name:           "reservation_backfills_total",
		Help:           "Gangs, and pods without one, that were let onto nodes of a reservation, by why (preemptible, run-time, repair).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"why"})
)

func init() {
	legacyregistry.MustRegister(planDuration, commitsLetGo, membersLost, repairDuration, reservationsActive, reservationDuration, backfills)
}

package preemption

import (
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	duration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem:      "muster",
		Name:           "gang_preemption_duration_seconds",
		Help:           "Time to choose whom a gang preempts, by result (preempts, waits, refused).",
		Buckets:        metrics.ExponentialBuckets(0.0005, 2, 14),
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})

	evicted = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem:      "muster",
		Name:           "gang_preemption_victims",
		Help:           "Pods that a gang preempts, by preemption.",
		Buckets:        metrics.ExponentialBuckets(1, 2, 11),
		StabilityLevel: metrics.ALPHA,
	})

	violations = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem:      "muster",
		Name:           "gang_preemption_pdb_violations_total",
		Help:           "Disruptions by which preemptions of gangs exceeded PodDisruptionBudgets.",
		StabilityLevel: metrics.ALPHA,
	})

	failures = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem:      "muster",
		Name:           "gang_preemption_failures_total",
		Help:           "Preemptions that the API server did not let happen.",
		StabilityLevel: metrics.ALPHA,
	})
)

func init() {
	legacyregistry.MustRegister(duration, evicted, violations, failures)
}

// Observe counts what was found, nil for nothing, and how long that took.
func Observe(room *Room, took time.Duration) {
	result := "refused"
	switch {
	case room == nil:
	case len(room.Victims) == 0:
		result = "waits"
	default:
		result = "preempts"
		evicted.Observe(float64(room.Pods()))
		violations.Add(float64(room.Violations))
	}
	duration.WithLabelValues(result).Observe(took.Seconds())
}

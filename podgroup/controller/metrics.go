package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

var releases = prometheus.NewCounterVec(prometheus.CounterOpts{
	Namespace: "muster",
	Name:      "gang_releases_total",
	Help:      "Gangs that were released whole because their members did not meet in time, by why (MembersNotReady, MembersMissing).",
}, []string{"reason"})

func init() {
	metrics.Registry.MustRegister(releases)
	for _, reason := range []string{v1alpha1.ReasonMembersNotReady, v1alpha1.ReasonMembersMissing} {
		releases.WithLabelValues(reason) // there from the start, so that the first release is an increase
	}
}

package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var releases = prometheus.NewCounterVec(prometheus.CounterOpts{
	Namespace: "muster",
	Name:      "gang_releases_total",
	Help:      "Gangs that were released whole because their members did not meet in time, by why (MembersNotReady, MembersMissing).",
}, []string{"reason"})

func init() {
	metrics.Registry.MustRegister(releases)
}

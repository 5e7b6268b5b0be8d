module github.com/muster-sched/muster/hack/bench/harness

go 1.26.0

require (
	github.com/muster-sched/muster/hack/bench/workload v0.0.0
	k8s.io/api v0.34.9
	k8s.io/apimachinery v0.34.9
	k8s.io/client-go v0.34.9
	k8s.io/component-base v0.34.9
)

replace github.com/muster-sched/muster/hack/bench/workload => ../workload

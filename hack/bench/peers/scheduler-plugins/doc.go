// Package perf is a test binary: scheduler_perf of Kubernetes 1.34 with the Coscheduling plugin of scheduler-plugins,
// for one case at a time. The command hack/bench runs it.
package perf

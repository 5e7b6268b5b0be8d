// Package perf is a test binary: Kubernetes' scheduler_perf with Muster's plugins, for one scheduler and one case
// at a time. The command hack/bench builds and runs it.
package perf

// Package replay runs traces of training jobs through schedulers on a clock that jumps from event to event, and
// says what became of the jobs and of the GPUs. Muster, Kubernetes' own gang scheduling and the default scheduler are
// the real kube-scheduler with their real plugins (package simulation); coscheduling one pod after the other is a
// model. Jobs, kubelets, node failures and time are simulated. The same trace, policy and settings give the
// same numbers.
package replay

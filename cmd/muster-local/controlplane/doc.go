// Package controlplane runs a real Kubernetes control plane inside the calling process: etcd,
// kube-apiserver, kube-controller-manager, the JobSet controller with its webhooks, and simulated
// GPU nodes whose pods start, run and finish without a container runtime.
//
// It serves three masters: muster-local's commands, the integration tests and the benchmarks. Nothing
// is downloaded and no container is started; a cluster is ready in seconds.
//
// Feature gates, logging and several registries of the Kubernetes components are process-wide, so a
// process runs one cluster at a time. Clusters one after the other, and clusters in separate processes
// side by side, are supported.
//
// # How simulated pods behave
//
// A pod bound to a simulated node becomes ready at once and then runs until it is deleted. Annotations
// on the pod change that; see RunSecondsAnnotation, ExitCodeAnnotation and ReadySecondsAnnotation. They
// are read when they appear, so a test may add them to a running pod.
package controlplane

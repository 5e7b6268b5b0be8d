// Package simulation runs the real kube-scheduler with Muster's plugins against a cluster that exists in memory,
// on a clock that is turned by hand. The scheduler's queue, cache, cycles and plugins are the product's own, and
// so are the PodGroup controller's rules. Pods, nodes, kubelets, Jobs and time are simulated.
//
// Everything that happens is one Step, and one thing happens at a time: a watcher is shown one change, one
// pod has its scheduling cycle, one binding cycle goes on until it waits again. The same steps give the same
// history.
package simulation

// Package demo shows what gang scheduling is for: the same training jobs on the same simulated GPU
// cluster, once under Muster and once under the default scheduler, with everything that it prints
// measured on the pods.
//
// The one thing it simulates beyond the nodes is the training itself: as torchrun does, a job's pods
// wait for each other at a rendezvous and make no progress before all of them run.
package demo

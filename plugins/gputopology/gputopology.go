// Package gputopology is the kube-scheduler plugin that knows where accelerators stand. It scores
// nodes so that single pods leave whole nodes and whole racks free, and where the cluster schedules
// native pod groups, it has Muster's planner choose their nodes.
package gputopology

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/preemption"
)

// Name is the name of the plugin in the registry and in configurations.
const Name = "GPUTopology"

// GPUTopology packs accelerators and plans native pod groups.
type GPUTopology struct {
	handle       framework.Framework
	args         *Args
	accelerators *accelerators
	occupancy    *occupancy
	cluster      *gangplan.Cluster
	refusals     *refusals
	freed        gangplan.LastFreed
	would        *lru.Cache // of pod groups, what they would preempt
	// What preemption needs to know of pods, and does to them.
	priorities *preemption.Priorities
	budgets    preemption.Budgets
	evictor    *preemption.Evictor
	clock      clock.PassiveClock
}

var (
	_ fwk.EnqueueExtensions        = &GPUTopology{}
	_ fwk.PreFilterPlugin          = &GPUTopology{}
	_ fwk.FilterPlugin             = &GPUTopology{}
	_ fwk.PreScorePlugin           = &GPUTopology{}
	_ fwk.ScorePlugin              = &GPUTopology{}
	_ fwk.SignPlugin               = &GPUTopology{}
	_ fwk.PlacementGeneratePlugin  = &GPUTopology{}
	_ fwk.PlacementScorePlugin     = &GPUTopology{}
	_ fwk.PodGroupPostFilterPlugin = &GPUTopology{}
)

// Name returns the name of the plugin.
func (pl *GPUTopology) Name() string { return Name }

// SignPod makes pods alike that request the same of the same accelerator, so that opportunistic
// batching stays on for them. Members of a native pod group are not: each has a node of its own in
// the plan.
func (pl *GPUTopology) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if pod.Spec.SchedulingGroup != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "members of a pod group are planned together")
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	r := pl.accelerators.requested(info.CalculateResource().Resource)
	return []fwk.SignFragment{{Key: Name, Value: fmt.Sprintf("%s=%d", r.resource, r.amount)}}, nil
}

// New returns the plugin. It is an error if the arguments are wrong.
func New(_ context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	args, err := decodeArgs(obj)
	if err != nil {
		return nil, err
	}
	handle, ok := h.(framework.Framework)
	if !ok {
		return nil, fmt.Errorf("plugin %s needs the scheduler's framework, got a %T", Name, h)
	}
	accelerators := newAccelerators(args.Accelerators)
	pl := &GPUTopology{
		handle:       handle,
		args:         args,
		accelerators: accelerators,
		occupancy:    newOccupancy(args.Levels(), accelerators),
		cluster:      gangplan.NewCluster(args.Levels()),
		refusals:     newRefusals(),
		would:        lru.New(maxRefusals),
		priorities:   preemption.NewPriorities(),
		budgets:      preemption.Budgets{Lister: handle.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister()},
		evictor:      preemption.NewEvictor(handle, func(do func()) { go do() }),
		clock:        clock.RealClock{},
	}
	if err := preemption.Follow(handle.SharedInformerFactory().Core().V1().Pods(), pl.priorities, pl.evictor); err != nil {
		return nil, fmt.Errorf("plugin %s: %w", Name, err)
	}
	return pl, nil
}

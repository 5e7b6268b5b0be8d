// Package gang splits the pods of a TrainJob into gangs, and keeps the objects that tell a scheduler about
// them. What differs from scheduler to scheduler is in the plugins.
package gang

import (
	"fmt"
	"math"
	"slices"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
)

// Gang is the pods that start together, or not at all.
type Gang struct {
	// Name is the name of the gang's group object, in the TrainJob's namespace.
	Name string

	// PodSets are never empty, and in the order of the JobSet.
	PodSets []*runtime.PodSet
}

// Of splits the pods of a TrainJob into gangs by startup phase, in the order of the phases, and leaves out
// gangs without pods. The gang of the
// training nodes has the TrainJob's name, and so has the only gang where there is one phase.
func Of(info *runtime.Info, trainJob *v1alpha1.TrainJob) []Gang {
	phases := phasesOf(info.JobSet)
	trainer := 0
	var gangs []Gang
	for p := range info.PodSets {
		phase := phases[p]
		for len(gangs) <= phase {
			gangs = append(gangs, Gang{Name: fmt.Sprintf("%s-phase-%d", trainJob.Name, len(gangs))})
		}
		gangs[phase].PodSets = append(gangs[phase].PodSets, &info.PodSets[p])
		if info.PodSets[p].Ancestor == v1alpha1.AncestorTrainer {
			trainer = phase
		}
	}
	if len(gangs) > 0 {
		gangs[trainer].Name = trainJob.Name
	}
	// An MPI job may have no workers. Nobody waits for a gang of none.
	return slices.DeleteFunc(gangs, func(g Gang) bool {
		return !slices.ContainsFunc(g.PodSets, func(p *runtime.PodSet) bool { return p.Replicas > 0 && p.Count > 0 })
	})
}

// Members returns the number of pods, or an error if no group can have so many.
func (g *Gang) Members() (int32, error) {
	var members int64
	for _, podSet := range g.PodSets {
		members += int64(podSet.Replicas) * int64(podSet.Count)
		if members > math.MaxInt32 {
			return 0, fmt.Errorf("gang %s would have more than %d pods", g.Name, math.MaxInt32)
		}
	}
	return int32(members), nil
}

// PriorityClassName returns the priority class of the pods, empty if they name none. Where they name several,
// the last one counts, as with Kubeflow Trainer.
func (g *Gang) PriorityClassName() string {
	name := ""
	for _, podSet := range g.PodSets {
		if class := podSet.PodSpec().PriorityClassName; class != "" {
			name = class
		}
	}
	return name
}

// initializes tells whether all pods fetch data or models before the training.
func (g *Gang) initializes() bool {
	for _, podSet := range g.PodSets {
		switch podSet.Ancestor {
		case v1alpha1.AncestorDatasetInitializer, v1alpha1.AncestorModelInitializer:
		default:
			return false
		}
	}
	return true
}

package main

import (
	"os"
	"strings"

	"github.com/google/pprof/profile"
)

// cpu is how much processor time the scheduling code of a process used, in seconds.
type cpu struct {
	// Deciding is from the queue to the reservation, queue and events included.
	Deciding float64 `json:"decidingSeconds"`

	// Binding is what follows for each pod: binding it, and writing to the API server.
	Binding float64 `json:"bindingSeconds"`

	// Process is the whole process, the API server included.
	Process float64 `json:"processSeconds"`
}

// schedulingCode are the packages that make a scheduler, ours and the peers'.
var schedulingCode = []string{
	"k8s.io/kubernetes/pkg/scheduler", "github.com/muster-sched/muster/p", "sigs.k8s.io/scheduler-plugins/",
}

// bindingCode are the functions of the scheduler that come after a pod is reserved.
var bindingCode = []string{
	"k8s.io/kubernetes/pkg/scheduler.(*Scheduler).bindingCycle", "k8s.io/kubernetes/pkg/scheduler.(*Scheduler).runBindingCycle",
	"k8s.io/kubernetes/pkg/scheduler/backend/api_dispatcher", "k8s.io/kubernetes/pkg/scheduler/framework/api_calls",
	"github.com/muster-sched/muster/plugins/coscheduling.(*reporter)",
}

// readProfile sums up a CPU profile.
func readProfile(path string) (cpu, error) {
	f, err := os.Open(path)
	if err != nil {
		return cpu{}, err
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		return cpu{}, err
	}
	var sum cpu
	for _, sample := range p.Sample {
		seconds := float64(sample.Value[len(sample.Value)-1]) / 1e9
		sum.Process += seconds
		switch {
		case runs(sample, bindingCode):
			sum.Binding += seconds
		case runs(sample, schedulingCode):
			sum.Deciding += seconds
		}
	}
	return sum, nil
}

// runs reports whether the sample was taken inside any of the functions or packages.
func runs(sample *profile.Sample, code []string) bool {
	for _, location := range sample.Location {
		for _, line := range location.Line {
			for _, prefix := range code {
				if line.Function != nil && strings.HasPrefix(line.Function.Name, prefix) {
					return true
				}
			}
		}
	}
	return false
}

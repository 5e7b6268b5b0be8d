package main

import (
	"cmp"
	"maps"
	"os"
	"slices"
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

// function is what one function accounts for: the seconds of processor time with all that it calls, or the bytes
// that it allocated.
type function struct {
	Name   string  `json:"name"`
	Amount float64 `json:"amount"`
}

const (
	// topFunctions is how many functions are kept of a profile.
	topFunctions = 10
	// frameShare is the share of a function's time from which it is only a frame around another that it calls.
	frameShare = 0.9
	// heapLeast is below what a function's bytes do not count: a heap profile only samples.
	heapLeast = 1 << 20
)

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

// readProfile sums up a CPU profile, and returns the functions of the scheduler that took most of the deciding.
func readProfile(path string) (cpu, []function, error) {
	f, err := os.Open(path)
	if err != nil {
		return cpu{}, nil, err
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		return cpu{}, nil, err
	}
	var sum cpu
	spent := callTimes{functions: map[string]float64{}, calls: map[[2]string]float64{}}
	for _, sample := range p.Sample {
		seconds := float64(sample.Value[len(sample.Value)-1]) / 1e9
		sum.Process += seconds
		switch names := functionsOf(sample); {
		case slices.ContainsFunc(names, isBinding):
			sum.Binding += seconds
		case slices.ContainsFunc(names, isScheduling):
			sum.Deciding += seconds
			spent.add(names, seconds)
		}
	}
	return sum, largest(spent.telling()), nil
}

// callTimes are the times of the scheduler's functions, and of what they call, once for each sample.
type callTimes struct {
	functions map[string]float64
	calls     map[[2]string]float64 // by caller and callee
}

// add adds a sample, whose functions are those of its stack from the innermost on.
func (t *callTimes) add(names []string, seconds float64) {
	functions, calls := map[string]bool{}, map[[2]string]bool{}
	callee := ""
	for _, name := range names {
		if !isScheduling(name) {
			continue
		}
		functions[name], calls[[2]string{name, callee}] = true, true
		callee = name
	}
	for name := range functions {
		t.functions[name] += seconds
	}
	for call := range calls {
		if call[1] != "" && call[0] != call[1] {
			t.calls[call] += seconds
		}
	}
}

// telling are the times without the functions that are only frames around another.
func (t *callTimes) telling() map[string]float64 {
	times := maps.Clone(t.functions)
	for call, seconds := range t.calls {
		if seconds >= frameShare*t.functions[call[0]] {
			delete(times, call[0])
		}
	}
	return times
}

// largest are the functions with the largest amounts.
func largest(amounts map[string]float64) []function {
	var top []function
	for name, amount := range amounts {
		top = append(top, function{Name: name, Amount: amount})
	}
	slices.SortFunc(top, func(a, b function) int {
		return cmp.Or(cmp.Compare(b.Amount, a.Amount), strings.Compare(a.Name, b.Name))
	})
	return top[:min(len(top), topFunctions)]
}

// readHeap reads how many bytes of what is in use each function allocated. Functions of less than heapLeast are
// left out.
func readHeap(path string) (map[string]int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		return nil, err
	}
	bytes := map[string]int64{}
	for _, sample := range p.Sample {
		if names := functionsOf(sample); len(names) > 0 {
			bytes[names[0]] += sample.Value[len(sample.Value)-1]
		}
	}
	maps.DeleteFunc(bytes, func(_ string, n int64) bool { return n < heapLeast })
	return bytes, nil
}

// moreHeap are the functions that have most more in use in one process than in the other.
func moreHeap(ours, theirs map[string]int64) []function {
	more := map[string]float64{}
	for name, n := range ours {
		if d := n - theirs[name]; d > heapLeast {
			more[name] = float64(d)
		}
	}
	return largest(more)
}

// functionsOf are the functions of a sample's stack.
func functionsOf(sample *profile.Sample) []string {
	var names []string
	for _, location := range sample.Location {
		for _, line := range location.Line {
			if line.Function != nil {
				names = append(names, line.Function.Name)
			}
		}
	}
	return names
}

func isScheduling(name string) bool { return hasPrefix(name, schedulingCode) }

func isBinding(name string) bool { return hasPrefix(name, bindingCode) }

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

package main

import (
	"fmt"
	"strings"

	"github.com/muster-sched/muster/hack/bench/workload"
)

// aim is a ratio that Muster wants to keep, in one run on one machine.
type aim struct {
	about string
	cases string // prefix of the cases' names
	peer  string
	of    metric
	// least is set if the ratio should be at least the bound, else it should be at most that.
	least bool
	bound float64
}

const native, plugins = "kubernetes native", "coscheduling"

var aims = []aim{
	{"throughput of the ceiling", "gang-", workload.Ceiling, throughput, true, 0.95},
	{"CPU for deciding of the ceiling's", "gang-", workload.Ceiling, deciding, false, 0.5},
	{"throughput of Kubernetes' own gangs", "gang-", native, throughput, true, 1.5},
	{"throughput of Coscheduling", "gang-", plugins, throughput, true, 3},
	{"throughput of Kubernetes' own gangs in racks", "topology-", native, throughput, true, 5},
	{"peak heap of the ceiling's", "", workload.Ceiling, peakHeap, false, 1.2},
}

// measured is an aim beside what came out, case by case.
type measured struct {
	aim
	of    string // case
	value float64
	met   bool
}

// measure compares Muster with its aims as far as the runs go.
func measure(all []summary) []measured {
	var out []measured
	for _, a := range aims {
		for i := range all {
			ours := &all[i]
			if ours.Scheduler.Name != workload.Ours || !strings.HasPrefix(ours.Case.Name, a.cases) {
				continue
			}
			peer := find(all, a.peer, ours.Case.Name)
			if peer == nil || peer.value(a.of) == 0 {
				continue
			}
			m := measured{aim: a, of: ours.Case.Name, value: ours.value(a.of) / peer.value(a.of)}
			m.met = a.least == (m.value >= a.bound) || m.value == a.bound
			out = append(out, m)
		}
	}
	return out
}

// wanted is the bound in words.
func (a *aim) wanted() string {
	if a.least {
		return fmt.Sprintf("at least %g", a.bound)
	}
	return fmt.Sprintf("at most %g", a.bound)
}

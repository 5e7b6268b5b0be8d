package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-sched/muster/hack/bench/workload"
)

// aim is a bound that Muster wants to keep: of a figure, or of its ratio to another one of the same measurement.
type aim struct {
	about string
	cases string // prefix of the cases' names
	of    metric

	// The figure is compared with that of a peer on the same case or with Muster's own on another case, and stands
	// alone if neither is set.
	peer   string
	beside string

	// least is set if the figure should be at least the bound, else it should be at most that.
	least bool
	bound float64

	// rest is what is known to remain if the aim is missed, "" if nothing is.
	rest string
}

var aims = []aim{
	{about: "throughput of the ceiling", cases: "gang-", peer: workload.Ceiling, of: throughput, least: true, bound: 0.95},
	{about: "CPU for deciding, of the ceiling's", cases: "gang-", peer: workload.Ceiling, of: deciding, bound: 0.5},
	{about: "throughput of Kubernetes' own gangs", cases: "gang-", peer: workload.KubernetesNative, of: throughput, least: true, bound: 1.5},
	{about: "throughput of Coscheduling", cases: "gang-", peer: workload.Coscheduling, of: throughput, least: true, bound: 3},
	{about: "throughput of Kubernetes' own gangs in racks", cases: "topology-", peer: workload.KubernetesNative, of: throughput, least: true, bound: 5},
	{about: "throughput without racks (gang-1000x3)", cases: "topology-750x4", beside: "gang-1000x3", of: throughput, least: true, bound: 0.9},
	{about: "throughput without racks (gang-3x1000)", cases: "topology-3x1000", beside: "gang-3x1000", of: throughput, least: true, bound: 0.9},
	{about: "time to refuse a gang of 512, ms", cases: "gpu-refused", of: refusal, bound: 5},
	{about: "time to choose 1,000 victims for a gang of 100, ms", cases: "gpu-preempt", of: preemption, bound: 1000},
	{about: "time until that gang is bound, the victims' deletion included, s", cases: "gpu-preempt", of: slowest, bound: 1},
	{about: "time of a gang that fits, of the time with nobody waiting", cases: "gpu-waiting-2000", beside: "gpu-waiting-0", of: median, bound: 1.1,
		rest: "What remains is not Muster's: kube-scheduler goes through all pods that wait whenever a pod is bound, because its own plugins " +
			"for affinity and spreading may wait for such pods. Members of refused gangs are passed over there without being asked (they are `gated`), " +
			"which takes 0.3 to 0.4 µs for each of the 4,000. All pods of the waiting gangs are also in the API server's memory and the scheduler's, where the " +
			"garbage collector visits them."},
	{about: "CPU for deciding with 15,000 nodes, of that with 5,000", cases: "gang-1000x3-15000-nodes", beside: "gang-1000x3", of: deciding, bound: 3},
	{about: "live heap, of the ceiling's", peer: workload.Ceiling, of: liveHeap, bound: 1.2},
}

// measured is an aim beside what came out, case by case.
type measured struct {
	aim
	on    *summary
	value float64
	met   bool
	// ceiling is the same ratio of the scheduler without gangs, if that missed the aim too; else 0.
	ceiling float64
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
			other := 1.0
			switch {
			case a.peer != "":
				other = find(all, a.peer, ours.Case.Name).value(a.of)
			case a.beside != "":
				other = find(all, workload.Ours, a.beside).value(a.of)
			}
			m := measured{aim: a, on: ours, value: ratio(ours.value(a.of), other)}
			if m.value == 0 {
				continue // one of the two was not run
			}
			m.met = a.reachedBy(m.value)
			if top := ratio(find(all, workload.Ceiling, ours.Case.Name).value(a.of), other); a.peer != "" && a.peer != workload.Ceiling && top != 0 && !a.reachedBy(top) {
				m.ceiling = top
			}
			out = append(out, m)
		}
	}
	return out
}

func (a *aim) reachedBy(value float64) bool {
	return value == a.bound || a.least == (value > a.bound)
}

// wanted is the bound in words.
func (a *aim) wanted() string {
	if a.least {
		return fmt.Sprintf("at least %g", a.bound)
	}
	return fmt.Sprintf("at most %g", a.bound)
}

// aimsTable lists the aims beside what was measured.
func aimsTable(out *strings.Builder, all []measured) {
	if len(all) == 0 {
		return
	}
	out.WriteString("\n## Aims\n\nWhere the scheduler without gangs would miss the same aim its figure is there too: nothing that writes one binding " +
		"per pod\ncan do better on this machine.\n\n| Muster's | case | aim | measured | met |\n|---|---|---|---|---|\n")
	for _, m := range all {
		met := "yes"
		if !m.met {
			met = "no"
		}
		if m.ceiling != 0 {
			met += "; without gangs " + threeDigits(m.ceiling)
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s |\n", m.about, m.on.Case.Name, m.wanted(), threeDigits(m.value), met)
	}
}

func threeDigits(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// explanations tells of the runs that missed an aim what the processor did or, if it was the memory, what is in it.
func explanations(out *strings.Builder, all []summary, aims []measured) {
	var told []string
	for _, m := range aims {
		heap := m.of.unit == liveHeap.unit
		key := fmt.Sprint(m.on.Case.Name, heap)
		if m.met || slices.Contains(told, key) {
			continue
		}
		if len(told) == 0 {
			out.WriteString("\n## What explains the aims that were missed\n")
		}
		told = append(told, key)
		if heap {
			explainHeap(out, m.on, find(all, workload.Ceiling, m.on.Case.Name))
		} else {
			explainTime(out, m.on, find(all, workload.Ceiling, m.on.Case.Name))
		}
	}
	for _, m := range aims {
		if !m.met && m.rest != "" {
			fmt.Fprintf(out, "\n%s: %s\n", m.on.Case.Name, m.rest)
		}
	}
}

func explainTime(out *strings.Builder, s, ceiling *summary) {
	fmt.Fprintf(out, "\n%s, %s: the process used %.1f s of CPU in %.1f s, %.1f s of it for deciding and %.1f s for binding", s.Case.Name,
		s.Scheduler.Name, s.CPU.Process, s.seconds(), s.CPU.Deciding, s.CPU.Binding)
	if ceiling != nil {
		fmt.Fprintf(out, " (with %s: %.1f s in %.1f s, %.1f s and %.1f s)", ceiling.Scheduler.Name,
			ceiling.CPU.Process, ceiling.seconds(), ceiling.CPU.Deciding, ceiling.CPU.Binding)
	}
	out.WriteString(". Of deciding:\n\n| share | function, with all that it calls |\n|---|---|\n")
	for _, f := range s.Top {
		fmt.Fprintf(out, "| %.0f %% | `%s` |\n", 100*ratio(f.Amount, s.CPU.Deciding), shortName(f.Name))
	}
}

func explainHeap(out *strings.Builder, s, ceiling *summary) {
	fmt.Fprintf(out, "\n%s: what %s has in use at the end and %s has not:\n\n", s.Case.Name, s.Scheduler.Name, ceiling.Scheduler.Name)
	out.WriteString("| MiB | allocated by |\n|---|---|\n")
	for _, f := range moreHeap(s.Heap, ceiling.Heap) {
		fmt.Fprintf(out, "| %.1f | `%s` |\n", f.Amount/(1<<20), shortName(f.Name))
	}
}

// shortName is a function's name without the path of its package.
func shortName(name string) string {
	return name[strings.LastIndexByte(name, '/')+1:]
}

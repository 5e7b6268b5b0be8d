package main

import (
	"fmt"
	"strings"

	"golang.org/x/perf/benchmath"

	"github.com/muster-sched/muster/hack/bench/workload"
)

// metric is a figure of a run.
type metric struct {
	unit string
	of   func(run) float64
}

var (
	throughput = metric{"pods/s", func(r run) float64 { return ratio(float64(r.Pods), r.Seconds) }}
	deciding   = metric{"deciding-ms/pod", func(r run) float64 { return ratio(1000*r.CPU.Deciding, float64(r.Pods)) }}
	binding    = metric{"binding-ms/pod", func(r run) float64 { return ratio(1000*r.CPU.Binding, float64(r.Pods)) }}
	median     = metric{"gang-p50-s", func(r run) float64 { return workload.Quantile(r.GangSeconds, 0.5) }}
	slowest    = metric{"gang-p99-s", func(r run) float64 { return workload.Quantile(r.GangSeconds, 0.99) }}
	liveHeap   = metric{"live-heap-MiB", func(r run) float64 { return float64(r.LiveHeapBytes) / (1 << 20) }}
	allocated  = metric{"allocated-KiB/pod", func(r run) float64 { return ratio(float64(r.AllocatedBytes)/1024, float64(r.Pods)) }}
	refusal    = metric{"refusal-ms", func(r run) float64 { return average(r, planRefused) }}
	preemption = metric{"preemption-ms", func(r run) float64 {
		return ratio(1000*(r.Durations[planRefused].Seconds+r.Durations[preempts].Seconds), float64(r.Durations[preempts].Count))
	}}

	metrics = []metric{throughput, deciding, binding, median, slowest, liveHeap, allocated, refusal, preemption}
)

// What the scheduler's own metrics are called in an observation.
const (
	planRefused = "muster_gang_plan_duration refused"
	preempts    = "muster_gang_preemption_duration preempts"
)

// average is the average of a duration, in milliseconds.
func average(r run, key string) float64 {
	return ratio(1000*r.Durations[key].Seconds, float64(r.Durations[key].Count))
}

// ratio is a/b, 0 if there is nothing to divide by.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// summary is what all runs of one scheduler on one case came to: the medians.
type summary struct {
	Case      workload.Case
	Scheduler workload.Scheduler
	Runs      int
	values    map[string]float64

	// CPU, Top, Heap and Durations are of the first run.
	CPU       cpu
	Top       []function
	Heap      map[string]int64
	Durations map[string]workload.Duration
}

// value is a figure, 0 if there is none.
func (s *summary) value(m metric) float64 {
	if s == nil {
		return 0
	}
	return s.values[m.unit]
}

// seconds is how long the gangs took.
func (s *summary) seconds() float64 { return ratio(float64(s.Case.Pods()), s.value(throughput)) }

// summarize takes runs that are sorted by case and scheduler.
func summarize(runs []run) []summary {
	var out []summary
	for start := 0; start < len(runs); {
		end := start + 1
		for end < len(runs) && runs[end].Case.Name == runs[start].Case.Name && runs[end].Scheduler.Name == runs[start].Scheduler.Name {
			end++
		}
		first := runs[start]
		s := summary{
			Case: first.Case, Scheduler: first.Scheduler, Runs: end - start, values: map[string]float64{},
			CPU: first.CPU, Top: first.Top, Heap: first.Heap, Durations: first.Durations,
		}
		for _, m := range metrics {
			var values []float64
			for _, r := range runs[start:end] {
				values = append(values, m.of(r))
			}
			s.values[m.unit] = benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), 0.95).Center
		}
		out = append(out, s)
		start = end
	}
	return out
}

// find returns the summary of a scheduler on a case, nil if there is none.
func find(all []summary, scheduler, of string) *summary {
	for i := range all {
		if all[i].Scheduler.Name == scheduler && all[i].Case.Name == of {
			return &all[i]
		}
	}
	return nil
}

// goBenchmark is all runs in the format of Go's benchmarks, for benchstat.
func goBenchmark(runs []run) string {
	var out strings.Builder
	for _, r := range runs {
		fmt.Fprintf(&out, "BenchmarkSchedulerPerf/case=%s/scheduler=%s 1", r.Case.Name, strings.ReplaceAll(r.Scheduler.Name, " ", "-"))
		for _, m := range metrics {
			if m.of(r) == 0 {
				continue // it has no meaning for this scheduler or case
			}
			fmt.Fprintf(&out, " %.6g %s", m.of(r), m.unit)
		}
		out.WriteString("\n")
	}
	return out.String()
}

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
	peakHeap   = metric{"peak-heap-MiB", func(r run) float64 { return float64(r.PeakHeapBytes) / (1 << 20) }}
	allocated  = metric{"allocated-KiB/pod", func(r run) float64 { return ratio(float64(r.AllocatedBytes)/1024, float64(r.Pods)) }}

	metrics = []metric{throughput, deciding, binding, median, slowest, peakHeap, allocated}
)

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
}

func (s *summary) value(m metric) float64 { return s.values[m.unit] }

// summarize takes runs that are sorted by case and scheduler.
func summarize(runs []run) []summary {
	var out []summary
	for start := 0; start < len(runs); {
		end := start + 1
		for end < len(runs) && runs[end].Case.Name == runs[start].Case.Name && runs[end].Scheduler.Name == runs[start].Scheduler.Name {
			end++
		}
		s := summary{Case: runs[start].Case, Scheduler: runs[start].Scheduler, Runs: end - start, values: map[string]float64{}}
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
			fmt.Fprintf(&out, " %.6g %s", m.of(r), m.unit)
		}
		out.WriteString("\n")
	}
	return out.String()
}

package main

import (
	"fmt"
	"strings"

	"github.com/muster-sched/muster/hack/bench/workload"
)

// markdown is the page of all tables.
func markdown(m machine, all []summary) string {
	var out strings.Builder
	fmt.Fprintf(&out, `# Benchmarks

Made by %[1]smake bench%[1]s (%[1]smake bench-full%[1]s runs all cases): Kubernetes' own scheduler_perf, with a real API server and
etcd in the same process or beside it, one scheduler and one case at a time. Absolute figures are this
machine's, and drift; compare within a table.

Machine: %[2]s, %[3]d cores, %[4]s. The API server and etcd share the cores with the scheduler, so that
throughput near the ceiling is theirs. Figures are medians of the runs.

- **pods/s**: from the first member seen to the last one bound.
- **deciding**: CPU of the scheduling code per pod, from the queue to the reservation, events included; from a CPU
  profile. **binding**: CPU of what follows for each pod.
- **gang p50, p99**: from the first member of a gang seen to its last one bound.
- **peak heap**: of the process, the API server included.
- **x ceiling**: the ratio to the scheduler without gangs in the same run.
`, "`", m.CPU, m.Cores, m.System)
	for _, name := range caseNames() {
		table(&out, name, all)
	}
	aimsTable(&out, measure(all))
	return out.String()
}

func table(out *strings.Builder, name string, all []summary) {
	first := true
	for i := range all {
		s := &all[i]
		if s.Case.Name != name {
			continue
		}
		if first {
			fmt.Fprintf(out, "\n## %s\n\n%d nodes, %d pods: %s.\n\n", name, s.Case.Nodes, s.Case.Pods(), s.Case.About)
			out.WriteString("| scheduler | pods/s | x ceiling | deciding, ms/pod | x ceiling | binding, ms/pod | gang p50, s | gang p99, s | peak heap, MiB | allocated, KiB/pod | runs |\n")
			out.WriteString("|---|---|---|---|---|---|---|---|---|---|---|\n")
			first = false
		}
		ceiling := find(all, workload.Ceiling, name)
		fmt.Fprintf(out, "| %s | %.1f | %s | %.2f | %s | %.2f | %.2f | %.2f | %.0f | %.0f | %d |\n", s.Scheduler.Name,
			s.value(throughput), times(s, ceiling, throughput), s.value(deciding), times(s, ceiling, deciding), s.value(binding),
			s.value(median), s.value(slowest), s.value(peakHeap), s.value(allocated), s.Runs)
	}
}

func times(s, ceiling *summary, m metric) string {
	if ceiling == nil || ceiling.value(m) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", s.value(m)/ceiling.value(m))
}

func aimsTable(out *strings.Builder, all []measured) {
	if len(all) == 0 {
		return
	}
	out.WriteString("\n## Aims\n\n| Muster's | case | aim | measured | met |\n|---|---|---|---|---|\n")
	for _, m := range all {
		met := "no"
		if m.met {
			met = "yes"
		}
		fmt.Fprintf(out, "| %s | %s | %s | %.2f | %s |\n", m.about, m.of, m.wanted(), m.value, met)
	}
}

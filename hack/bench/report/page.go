package main

import (
	_ "embed"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/muster-sched/muster/hack/bench/workload"
)

//go:embed introduction.md
var introduction string

// markdown is the page of all tables, and of the plots in these files.
func markdown(m machine, all []summary, plots []string) string {
	var out strings.Builder
	if err := template.Must(template.New("").Parse(introduction)).Execute(&out, m); err != nil {
		panic(err) // the text is part of the program
	}
	for _, name := range caseNames() {
		table(&out, name, all)
	}
	if len(plots) > 0 {
		out.WriteString("\n## Cost\n")
	}
	for _, file := range plots {
		name := filepath.Base(file)
		fmt.Fprintf(&out, "\n![%s](%s/%s)\n", strings.TrimSuffix(name, ".svg"), filepath.Base(filepath.Dir(file)), name)
	}
	aims := measure(all)
	aimsTable(&out, aims)
	explanations(&out, all, aims)
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
			out.WriteString("| scheduler | pods/s | x ceiling | deciding, ms/pod | x ceiling | binding, ms/pod | gang p50, s | gang p99, s | live heap, MiB | x ceiling | allocated, KiB/pod | runs |\n")
			out.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|\n")
			first = false
		}
		ceiling := find(all, workload.Ceiling, name)
		fmt.Fprintf(out, "| %s | %.1f | %s | %.2f | %s | %.2f | %.2f | %.2f | %.0f | %s | %.0f | %d |\n", s.Scheduler.Name,
			s.value(throughput), times(s, ceiling, throughput), s.value(deciding), times(s, ceiling, deciding), s.value(binding),
			s.value(median), s.value(slowest), s.value(liveHeap), times(s, ceiling, liveHeap), s.value(allocated), s.Runs)
	}
	durationsTable(out, name, all)
}

func times(s, ceiling *summary, m metric) string {
	if ceiling.value(m) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", s.value(m)/ceiling.value(m))
}

// durationsTable lists what the schedulers' own metrics say of a case with GPUs, where it is decisions that count.
func durationsTable(out *strings.Builder, name string, all []summary) {
	first := true
	for i := range all {
		s := &all[i]
		if s.Case.Name != name || s.Case.GPUs == 0 {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(s.Durations)) {
			if first {
				out.WriteString("\nOf the schedulers' own metrics, in the first run:\n\n| scheduler | metric and result | times | average, ms |\n|---|---|---|---|\n")
				first = false
			}
			d := s.Durations[key]
			fmt.Fprintf(out, "| %s | %s | %d | %.2f |\n", s.Scheduler.Name, key, d.Count, ratio(1000*d.Seconds, float64(d.Count)))
		}
	}
}

package demo

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// summarize renders what was measured in both acts, side by side.
func summarize(muster, standard *outcome) []string {
	out := &strings.Builder{}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	row := func(name string, value func(*outcome) string) {
		fmt.Fprintf(table, "%s\t%s\t%s\n", name, value(muster), value(standard))
	}
	fmt.Fprintf(table, "\tMuster\tdefault scheduler\n")
	row("GPU-seconds held by gangs that could not run", wastedText)
	row("time until all jobs are done", elapsedText)
	row("jobs done", func(o *outcome) string { return fmt.Sprintf("%d of %d", o.completed, len(workloads)) })
	_ = table.Flush() // a strings.Builder does not fail
	for _, o := range []*outcome{muster, standard} {
		if o.stuck && len(o.holding) > 0 {
			fmt.Fprintf(out, "\nStuck, each holding what the others need: %s.\n", strings.Join(o.holding, ", "))
		}
	}
	return strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
}

func wastedText(o *outcome) string {
	if o.stuck && o.wasting > 0 {
		return fmt.Sprintf("%.1f, and %d more every second", o.wasted, o.wasting)
	}
	return fmt.Sprintf("%.1f", o.wasted)
}

func elapsedText(o *outcome) string {
	if o.stuck {
		return fmt.Sprintf("never: deadlock, watched for %.1f s", o.elapsed.Seconds())
	}
	return fmt.Sprintf("%.1f s", o.elapsed.Seconds())
}

package replay

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// heads name the cells of a result.
var heads = []string{
	"policy", "delay mean", "p50", "p90", "p99", "JCT mean", "p50", "p90", "p99", "GPUs used", "GPU-h held idle", "fragmented", "racks/gang",
	"GPU-h preempted", "GPU-h failed", "restarts", "unended",
}

func (r *Result) cells() []string {
	cells := []string{r.Policy}
	for _, d := range []Distribution{r.Delay, r.Completion} {
		for _, v := range []float64{d.Mean, d.P50, d.P90, d.P99} {
			cells = append(cells, span(v))
		}
	}
	return append(cells,
		fmt.Sprintf("%.1f %%", 100*r.Utilisation), hours(r.IdleHeld), fmt.Sprintf("%.1f %%", 100*r.Fragmentation), fmt.Sprintf("%.2f", r.Racks),
		hours(r.PreemptionWaste), hours(r.FailureWaste), fmt.Sprint(r.Restarts), fmt.Sprint(r.Unended))
}

// span is a time in the largest unit of which there is one.
func span(seconds float64) string {
	switch d := time.Duration(seconds * float64(time.Second)); {
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", seconds)
	case d < time.Hour:
		return fmt.Sprintf("%.1f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.2f h", d.Hours())
	default:
		return fmt.Sprintf("%.2f d", d.Hours()/24)
	}
}

func hours(gpuSeconds float64) string { return fmt.Sprintf("%.0f", gpuSeconds/3600) }

// WriteTable writes one line for each result.
func WriteTable(to io.Writer, results []Result) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(heads, "\t"))
	for i := range results {
		fmt.Fprintln(w, strings.Join(results[i].cells(), "\t"))
	}
	return w.Flush()
}

// WriteMarkdown writes the same as a table in Markdown.
func WriteMarkdown(to io.Writer, results []Result) error {
	rows := [][]string{heads}
	for i := range results {
		rows = append(rows, results[i].cells())
	}
	return writeRows(to, rows)
}

// sizeHeads name the classes of sizes.
var sizeHeads = []string{"policy", "part of a node", "one node", "up to 8 nodes", "more"}

// WriteSizes writes, as a table in Markdown, how long jobs of each size wait on average.
func WriteSizes(to io.Writer, results []Result) error {
	rows := [][]string{sizeHeads}
	for i := range results {
		row := []string{results[i].Policy}
		for _, s := range results[i].Sizes {
			row = append(row, span(s.Delay))
		}
		rows = append(rows, row)
	}
	if len(results) > 0 {
		row := []string{"jobs"}
		for _, s := range results[0].Sizes {
			row = append(row, fmt.Sprint(s.Jobs))
		}
		rows = append(rows, row)
	}
	return writeRows(to, rows)
}

// writeRows writes rows of as many cells as a table in Markdown. The first has the heads.
func writeRows(to io.Writer, rows [][]string) error {
	var b strings.Builder
	for i, cells := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "|---%s|\n", strings.Repeat("|---:", len(cells)-1))
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}

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
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(heads)
	line(strings.Split("---"+strings.Repeat(" ---:", len(heads)-1), " "))
	for i := range results {
		line(results[i].cells())
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// Aim is a comparison of one of Muster's policies with a peer's.
type Aim struct {
	Trace  string `json:"trace"`
	Policy string `json:"policy"`
	Peer   string `json:"peer"`
	// What is compared, with Muster's value, the peer's, and whether Muster's is smaller, or as good as it can be.
	What   string  `json:"what"`
	Muster float64 `json:"muster"`
	Other  float64 `json:"other"`
	Met    bool    `json:"met"`
}

// Aims compare every policy of Muster with every peer: a shorter mean completion time, and fewer GPU-seconds held
// idle.
func Aims(results []Result) []Aim {
	var aims []Aim
	for _, m := range results {
		for _, p := range results {
			if m.Peer || !p.Peer || m.Trace != p.Trace {
				continue
			}
			aims = append(aims,
				Aim{m.Trace, m.Policy, p.Policy, "mean job completion time", m.Completion.Mean, p.Completion.Mean, m.Completion.Mean < p.Completion.Mean},
				Aim{m.Trace, m.Policy, p.Policy, "GPU-seconds held idle", m.IdleHeld, p.IdleHeld, m.IdleHeld < p.IdleHeld || m.IdleHeld == 0 && p.IdleHeld == 0})
		}
	}
	return aims
}

// WriteAims writes one line for each comparison.
func WriteAims(to io.Writer, aims []Aim) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, a := range aims {
		verdict := "met"
		if !a.Met {
			verdict = "NOT met"
		}
		fmt.Fprintf(w, "%s\t%s: %s\t%.0f\tagainst %s\t%.0f\tratio %.3f\n", verdict, a.Policy, a.What, a.Muster, a.Peer, a.Other, ratio(a.Muster, a.Other))
	}
	return w.Flush()
}

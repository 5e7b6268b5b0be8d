package replay

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Outcome says how a comparison ends.
type Outcome string

// Outcomes. A tie is one where neither could be better: both are 0.
const (
	Met    Outcome = "met"
	Tie    Outcome = "tie"
	NotMet Outcome = "NOT met"
)

// Aim is a comparison of one of Muster's policies with a peer's.
type Aim struct {
	Trace  string `json:"trace"`
	Policy string `json:"policy"`
	Peer   string `json:"peer"`
	// What is compared, with Muster's value and the peer's. The aim is that Muster's is smaller.
	What    string  `json:"what"`
	Muster  float64 `json:"muster"`
	Other   float64 `json:"other"`
	Outcome Outcome `json:"outcome"`
}

// What is compared.
const (
	completionAim = "mean job completion time"
	idleAim       = "GPU-seconds held idle"
)

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
				Aim{m.Trace, m.Policy, p.Policy, completionAim, m.Completion.Mean, p.Completion.Mean, outcomeOf(m.Completion.Mean, p.Completion.Mean)},
				Aim{m.Trace, m.Policy, p.Policy, idleAim, m.IdleHeld, p.IdleHeld, outcomeOf(m.IdleHeld, p.IdleHeld)})
		}
	}
	return aims
}

func outcomeOf(muster, peer float64) Outcome {
	switch {
	case muster < peer:
		return Met
	case muster == 0 && peer == 0:
		return Tie
	}
	return NotMet
}

// WriteAims writes one line for each comparison.
func WriteAims(to io.Writer, aims []Aim) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, a := range aims {
		compared := fmt.Sprintf("ratio %.3f", ratio(a.Muster, a.Other))
		if a.Outcome == Tie {
			compared = ""
		}
		fmt.Fprintf(w, "%s\t%s: %s\t%.0f\tagainst %s\t%.0f\t%s\n", a.Outcome, a.Policy, a.What, a.Muster, a.Peer, a.Other, compared)
	}
	return w.Flush()
}

// WriteAimsTable writes them as a table in Markdown: for each peer the ratio of the mean completion times, in bold if the
// aim is not met, and how what is held idle compares.
func WriteAimsTable(to io.Writer, aims []Aim) error {
	rows := [][]string{{"mean JCT, and held idle, against"}}
	cells := map[[2]string]string{}
	var policies []string
	for _, a := range aims {
		if !slices.Contains(policies, a.Policy) {
			policies = append(policies, a.Policy)
		}
		if !slices.Contains(rows[0], a.Peer) {
			rows[0] = append(rows[0], a.Peer)
		}
		cell := string(a.Outcome)
		if a.What == completionAim {
			if cell = fmt.Sprintf("%.3f", ratio(a.Muster, a.Other)); a.Outcome == NotMet {
				cell = "**" + cell + "**"
			}
		}
		key := [2]string{a.Policy, a.Peer}
		if cells[key] != "" {
			cell = cells[key] + ", " + cell
		}
		cells[key] = cell
	}
	for _, policy := range policies {
		row := []string{policy}
		for _, peer := range rows[0][1:] {
			row = append(row, cells[[2]string{policy, peer}])
		}
		rows = append(rows, row)
	}
	return writeRows(to, rows)
}

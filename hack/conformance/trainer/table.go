package main

import (
	"fmt"
	"io"
	"strings"
)

// printTable writes a line for every spec, and how many passed.
func printTable(w io.Writer, suite string, results []result, intended []difference) {
	listed := map[string]difference{}
	for _, d := range intended {
		listed[d.Spec] = d
	}
	fmt.Fprintf(w, "\nKubeflow Trainer's suite %q against Muster\n", suite)
	specs, passed, differ := 0, 0, 0
	for _, r := range results {
		specs += r.specs + r.notRun
		state, note := "pass", ""
		d, isListed := listed[r.text]
		switch {
		case r.notRun > 0:
			state = "not run"
		case r.failure != "" && isListed && strings.Contains(r.failure, d.Fails):
			state, note = "differs", ", fixes "+d.Fixes
			differ += r.specs
		case r.failure != "":
			state = "FAIL"
		default:
			passed += r.specs
		}
		if r.specs > 1 {
			note += fmt.Sprintf(" (%d specs)", r.specs)
		}
		fmt.Fprintf(w, "  %-7s  %s%s\n", state, r.text, note)
	}
	fmt.Fprintf(w, "%d of %d specs pass", passed, specs)
	if differ > 0 {
		fmt.Fprintf(w, ", %d differ as intended", differ)
	}
	fmt.Fprintln(w)
}

// Command report turns what hack/bench left into one JSON file, one page of tables and plots, and a file for
// benchstat, and compares it with a baseline.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	in := flag.String("in", "", "folder that hack/bench wrote to, or the file results.json that this command left there")
	page := flag.String("page", "", "Markdown file to write, with plots in a folder of the same name; standard output and no plots if empty")
	note := flag.String("note", "", "what a reader of the page should know of this measurement")
	baseline := flag.String("baseline", "", "file to write Muster's ratios to the ceiling to, for -check")
	check := flag.String("check", "", "file of ratios to compare with; the command fails if one fell by more than noise")
	flag.Parse()
	if err := report(*in, *page, *note, *baseline, *check); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func report(in, page, note, newBaseline, oldBaseline string) error {
	r, err := load(in)
	if err != nil {
		return err
	}
	if !strings.HasSuffix(in, ".json") {
		if err := writeJSON(filepath.Join(in, "results.json"), r); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(in, "results.txt"), []byte(goBenchmark(r.Runs)), 0o644); err != nil {
			return err
		}
	}
	r.Machine.Note = note
	all := summarize(r.Runs)
	if err := writePage(page, r.Machine, all); err != nil {
		return err
	}
	if newBaseline != "" {
		if err := writeBaseline(newBaseline, all); err != nil {
			return err
		}
	}
	if oldBaseline != "" {
		return checkBaseline(oldBaseline, all)
	}
	return nil
}

// writePage writes the page and its plots, or prints the page.
func writePage(page string, m machine, all []summary) error {
	if page == "" {
		_, err := os.Stdout.WriteString(markdown(m, all, nil))
		return err
	}
	folder := strings.TrimSuffix(page, filepath.Ext(page))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	plots, err := drawPlots(folder, all)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(markdown(m, all, plots)), 0o644)
}

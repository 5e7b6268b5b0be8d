// Command report turns what hack/bench left into one JSON file, one page of tables, and a file for benchstat.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	in := flag.String("in", "", "folder that hack/bench wrote to")
	page := flag.String("page", "", "Markdown file to write; standard output if empty")
	flag.Parse()
	if err := report(*in, *page); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func report(in, page string) error {
	runs, err := load(in)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(results{Machine: thisMachine(), Runs: runs}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(in, "results.json"), append(data, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(in, "results.txt"), []byte(goBenchmark(runs)), 0o644); err != nil {
		return err
	}
	text := markdown(thisMachine(), summarize(runs))
	if page == "" {
		_, err = os.Stdout.WriteString(text)
		return err
	}
	return os.WriteFile(page, []byte(text), 0o644)
}

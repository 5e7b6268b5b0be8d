// Command trainer runs Kubeflow Trainer's own integration suites against Muster.
//
//	make conformance-trainer
//
// The suites come from Kubeflow Trainer's module as it is released. Only the package that starts Kubeflow Trainer's
// controllers is replaced, by ours in framework, which starts bin/muster-scheduler beside a real API server; and a spec
// that fails does not keep the ones after it from running. Every spec must pass, but for those that differences.yaml
// lists, and these must fail.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	focus := flag.String("focus", "", "run only the specs whose text matches this regular expression")
	only := flag.String("suite", "", "run only this suite: "+strings.Join(suites, ", "))
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *focus); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// suites are the packages of Kubeflow Trainer's test/integration that run against Muster.
var suites = []string{"controller", "webhooks"}

func run(ctx context.Context, only, focus string) error {
	if only != "" && !slices.Contains(suites, only) {
		return fmt.Errorf("-suite: unknown suite %q, known are %s", only, strings.Join(suites, ", "))
	}
	bench, err := newBench(ctx)
	if err != nil {
		return err
	}
	intended, err := readDifferences(filepath.Join("trainer", "differences.yaml"))
	if err != nil {
		return err
	}
	var failures []error
	for _, name := range suites {
		if only != "" && name != only {
			continue
		}
		s, err := bench.build(ctx, name)
		if err != nil {
			return err
		}
		results, err := s.run(ctx, focus)
		if err != nil {
			return fmt.Errorf("suite %s: %w", name, err)
		}
		printTable(os.Stdout, name, results, intended[name])
		failures = append(failures, judge(name, results, intended[name], focus == "")...)
	}
	return errors.Join(failures...)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

// teardownGrace is how long an interrupted suite may take to end.
const teardownGrace = 30 * time.Second

// suite is a compiled suite.
type suite struct {
	name   string
	binary string
	dir    string // where the suite finds its files
	report string // written by every run
	log    string // of muster-scheduler
	env    []string
}

// result is what became of the specs of one text. Texts are not unique: entries of tables share some.
type result struct {
	text    string
	specs   int    // that ran
	notRun  int    // specs that did not
	failure string // of the first that failed; empty if all passed that ran
}

// run runs all specs, or those that match focus, and returns their results in the order of the suite.
func (s *suite) run(ctx context.Context, focus string) ([]result, error) {
	if err := errors.Join(os.RemoveAll(s.log), os.RemoveAll(s.report)); err != nil {
		return nil, err
	}
	args := []string{"-ginkgo.seed=1", "-ginkgo.no-color", "-ginkgo.succinct", "-ginkgo.timeout=30m", "-test.timeout=0", "-ginkgo.json-report=" + s.report}
	if focus != "" {
		args = append(args, "-ginkgo.focus="+focus)
	}
	command := exec.CommandContext(ctx, s.binary, args...)
	command.Dir, command.Env = s.dir, s.env
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	// An interrupted suite ends the programs that it started.
	command.Cancel, command.WaitDelay = func() error { return command.Process.Signal(os.Interrupt) }, teardownGrace
	fmt.Printf("running it; Muster logs to %s\n", s.log)
	failed := command.Run()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(s.report)
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	var reports []types.Report
	if err := json.Unmarshal(content, &reports); err != nil {
		return nil, fmt.Errorf("%s: %w", s.report, err)
	}
	if len(reports) != 1 {
		return nil, fmt.Errorf("%s has %d reports", s.report, len(reports))
	}
	results := sortOut(reports[0].SpecReports)
	// A failure outside the specs, as at the end of all, is in no result.
	anyFailed := slices.ContainsFunc(results, func(r result) bool { return r.failure != "" })
	if failed != nil && !anyFailed {
		return nil, fmt.Errorf("no spec failed, but the suite did: %w", failed)
	}
	return results, nil
}

// sortOut returns what became of the specs, in their order in the suite.
func sortOut(specs types.SpecReports) []result {
	byText := map[string]*result{}
	place := map[string]string{}
	for _, spec := range specs {
		if spec.LeafNodeType != types.NodeTypeIt {
			continue
		}
		text := spec.FullText()
		r := byText[text]
		if r == nil {
			r = &result{text: text}
			byText[text] = r
			place[text] = fmt.Sprintf("%s:%06d %s", spec.LeafNodeLocation.FileName, spec.LeafNodeLocation.LineNumber, text)
		}
		if spec.State.Is(types.SpecStateSkipped | types.SpecStatePending) {
			r.notRun++
			continue
		}
		r.specs++
		if spec.Failed() && r.failure == "" {
			r.failure = spec.Failure.Message
		}
	}
	var results []result
	for _, r := range byText {
		results = append(results, *r)
	}
	slices.SortFunc(results, func(a, b result) int { return strings.Compare(place[a.text], place[b.text]) })
	return results
}

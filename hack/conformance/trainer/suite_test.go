package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
)

func spec(text string, line int, state types.SpecState) types.SpecReport {
	report := types.SpecReport{LeafNodeType: types.NodeTypeIt, LeafNodeText: text, State: state}
	report.LeafNodeLocation.LineNumber = line
	if report.Failed() {
		report.Failure.Message = "because it " + text
	}
	return report
}

func TestSortOut(t *testing.T) {
	results := sortOut(types.SpecReports{
		{LeafNodeType: types.NodeTypeBeforeSuite, State: types.SpecStatePassed},
		spec("passes", 10, types.SpecStatePassed),
		spec("fails", 20, types.SpecStateFailed),
		spec("panics", 3, types.SpecStatePanicked),
		spec("takes too long", 4, types.SpecStateTimedout),
		spec("is skipped", 5, types.SpecStateSkipped),
		spec("is pending", 6, types.SpecStatePending),
		spec("two, and both pass", 7, types.SpecStatePassed),
		spec("two, and both pass", 107, types.SpecStatePassed),
		spec("two, and one fails", 8, types.SpecStatePassed),
		spec("two, and one fails", 9, types.SpecStateFailed),
		spec("two, and one is skipped", 1, types.SpecStatePassed),
		spec("two, and one is skipped", 2, types.SpecStateSkipped),
	})
	want := []result{
		{text: "two, and one is skipped", specs: 1, notRun: 1},
		{text: "panics", specs: 1, failure: "because it panics"},
		{text: "takes too long", specs: 1, failure: "because it takes too long"},
		{text: "is skipped", notRun: 1},
		{text: "is pending", notRun: 1},
		{text: "two, and both pass", specs: 2},
		{text: "two, and one fails", specs: 2, failure: "because it two, and one fails"},
		{text: "passes", specs: 1},
		{text: "fails", specs: 1, failure: "because it fails"},
	}
	if !slices.Equal(results, want) {
		t.Errorf("results %+v\nwant %+v", results, want)
	}
}

func TestTable(t *testing.T) {
	var table strings.Builder
	printTable(&table, "webhooks", []result{
		{text: "passes", specs: 1}, {text: "passes twice", specs: 2}, {text: "fails", specs: 1, failure: "why"},
		{text: "differs", specs: 1, failure: "why"}, {text: "fails otherwise", specs: 1, failure: "timed out"}, {text: "never ran", notRun: 1},
	}, []difference{
		{Spec: "differs", Fixes: "kubeflow/trainer#1", Fails: "why"}, {Spec: "fails otherwise", Fixes: "kubeflow/trainer#2", Fails: "why"},
	})
	const want = `
Kubeflow Trainer's suite "webhooks" against Muster
  pass     passes
  pass     passes twice (2 specs)
  FAIL     fails
  differs  differs, fixes kubeflow/trainer#1
  FAIL     fails otherwise
  not run  never ran
3 of 7 specs pass, 1 differ as intended
`
	if table.String() != want {
		t.Errorf("table:%s", table.String())
	}
}

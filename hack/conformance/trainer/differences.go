package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// difference is a spec that Muster deliberately does not pass.
type difference struct {
	// Suite and Spec name it; Spec is the whole text.
	Suite string `json:"suite"`
	Spec  string `json:"spec"`

	// Fixes is the issue or pull request about what the spec demands, as kubeflow/trainer#NUMBER.
	Fixes string `json:"fixes"`

	// Fails is a part of the message that the spec fails with.
	Fails string `json:"fails"`

	// Why says what Muster does instead.
	Why string `json:"why"`
}

var upstreamIssue = regexp.MustCompile(`^kubeflow/trainer#[1-9][0-9]*$`)

// readDifferences returns the listed differences by suite.
func readDifferences(file string) (map[string][]difference, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list []difference
	if err := yaml.UnmarshalStrict(content, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	bySuite := map[string][]difference{}
	for i, d := range list {
		switch {
		case !slices.Contains(suites, d.Suite):
			return nil, fmt.Errorf("%s: [%d].suite: %q is none of %v", file, i, d.Suite, suites)
		case d.Spec == "":
			return nil, fmt.Errorf("%s: [%d].spec: must not be empty", file, i)
		case slices.ContainsFunc(bySuite[d.Suite], func(other difference) bool { return other.Spec == d.Spec }):
			return nil, fmt.Errorf("%s: [%d].spec: %q is listed twice", file, i, d.Spec)
		case !upstreamIssue.MatchString(d.Fixes):
			return nil, fmt.Errorf("%s: [%d].fixes: %q is not kubeflow/trainer#NUMBER", file, i, d.Fixes)
		case d.Fails == "":
			return nil, fmt.Errorf("%s: [%d].fails: must not be empty", file, i)
		case d.Why == "":
			return nil, fmt.Errorf("%s: [%d].why: must not be empty", file, i)
		}
		bySuite[d.Suite] = append(bySuite[d.Suite], d)
	}
	return bySuite, nil
}

// judge returns an error for every spec that is not as it should be. Where not all specs were meant to run, those that
// did not are none.
func judge(suite string, results []result, intended []difference, all bool) []error {
	var errs []error
	listed := map[string]string{}
	for _, d := range intended {
		listed[d.Spec] = d.Fails
	}
	found := false
	for _, r := range results {
		message, differs := listed[r.text]
		switch {
		case r.notRun > 0 && all:
			errs = append(errs, fmt.Errorf("%s: did not run: %s", suite, r.text))
		case r.specs == 0:
		case r.failure != "" && !differs:
			errs = append(errs, fmt.Errorf("%s: fails: %s", suite, r.text))
		case r.failure != "" && !strings.Contains(r.failure, message):
			errs = append(errs, fmt.Errorf("%s: fails as listed, but not with %q: %s", suite, message, r.text))
		case r.failure == "" && differs:
			errs = append(errs, fmt.Errorf("%s: passes, but is listed as a difference: %s", suite, r.text))
		}
		found = found || r.specs > 0
		delete(listed, r.text)
	}
	for _, d := range intended {
		if _, missing := listed[d.Spec]; missing {
			errs = append(errs, fmt.Errorf("%s: is listed as a difference, but there is no such spec: %s", suite, d.Spec))
		}
	}
	if !found {
		errs = append(errs, fmt.Errorf("%s: no spec ran", suite))
	}
	return errs
}

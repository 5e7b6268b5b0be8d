package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDifferencesMustBeComplete(t *testing.T) {
	const good = "- {suite: webhooks, spec: a spec, fixes: kubeflow/trainer#1, fails: wrongly, why: because}\n"
	for name, tc := range map[string]struct{ content, want string }{
		"none":             {"[]", ""},
		"one":              {good, ""},
		"unknown field":    {"- {suite: webhooks, test: a spec}", "unknown field"},
		"unknown suite":    {strings.Replace(good, "webhooks", "e2e", 1), `[0].suite: "e2e"`},
		"no spec":          {strings.Replace(good, "a spec", `""`, 1), "[0].spec: must not be empty"},
		"twice":            {good + good, `[1].spec: "a spec" is listed twice`},
		"no issue":         {strings.Replace(good, "kubeflow/trainer#1", "taste", 1), `[0].fixes: "taste"`},
		"somebody's issue": {strings.Replace(good, "kubeflow/trainer", "jobset", 1), `[0].fixes: "jobset#1"`},
		"no message":       {strings.Replace(good, "wrongly", `""`, 1), "[0].fails: must not be empty"},
		"no reason":        {strings.Replace(good, "because", `""`, 1), "[0].why: must not be empty"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "differences.yaml")
			if err := os.WriteFile(file, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := readDifferences(file)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error = %v, want %q", err, tc.want)
			}
		})
	}
}

func TestTheListedDifferencesCanBeRead(t *testing.T) {
	if _, err := readDifferences("differences.yaml"); err != nil {
		t.Error(err)
	}
}

func TestJudge(t *testing.T) {
	passes := result{text: "passes", specs: 1}
	fails := result{text: "fails", specs: 1, failure: "expected something"}
	neverRan := result{text: "never ran", notRun: 1}
	half := result{text: "half", specs: 1, notRun: 1}
	for name, tc := range map[string]struct {
		results  []result
		intended []string
		some     bool
		want     []string
	}{
		"all pass":                   {results: []result{passes}},
		"one fails":                  {results: []result{passes, fails}, want: []string{"fails: fails"}},
		"one fails as listed":        {results: []result{passes, fails}, intended: []string{"fails"}},
		"one fails otherwise":        {results: []result{passes, {text: "fails", specs: 1, failure: "timed out"}}, intended: []string{"fails"}, want: []string{"but not with"}},
		"a listed one passes":        {results: []result{passes}, intended: []string{"passes"}, want: []string{"passes, but is listed"}},
		"a listed one is gone":       {results: []result{passes}, intended: []string{"gone"}, want: []string{"no such spec: gone"}},
		"one did not run":            {results: []result{passes, neverRan}, want: []string{"did not run: never ran"}},
		"one of a table did not run": {results: []result{passes, half}, want: []string{"did not run: half"}},
		"a listed one did not run":   {results: []result{passes, neverRan}, intended: []string{"never ran"}, want: []string{"did not run: never ran"}},
		"one was not meant to run":   {results: []result{passes, neverRan}, some: true},
		"nothing ran":                {results: []result{neverRan}, some: true, want: []string{"no spec ran"}},
		"there is nothing":           {want: []string{"no spec ran"}},
		"several are not as they be": {results: []result{passes, fails}, intended: []string{"passes"}, want: []string{"passes, but is listed", "fails: fails"}},
	} {
		t.Run(name, func(t *testing.T) {
			var intended []difference
			for _, spec := range tc.intended {
				intended = append(intended, difference{Spec: spec, Fails: "expected"})
			}
			errs := judge("suite", tc.results, intended, !tc.some)
			if len(errs) != len(tc.want) {
				t.Fatalf("errors = %v, want %q", errs, tc.want)
			}
			for i, err := range errs {
				if !strings.Contains(err.Error(), tc.want[i]) {
					t.Errorf("error %d = %v, want %q", i, err, tc.want[i])
				}
			}
		})
	}
}

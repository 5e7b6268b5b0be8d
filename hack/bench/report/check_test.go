package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-sched/muster/hack/bench/workload"
)

// figures is a summary with only what the guard looks at.
func figures(of, scheduler string, podsPerSecond, decidingPerPod float64) summary {
	return summary{
		Case: workload.Case{Name: of}, Scheduler: workload.Scheduler{Name: scheduler},
		values: map[string]float64{throughput.unit: podsPerSecond, deciding.unit: decidingPerPod},
	}
}

func TestCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "baseline.json")
	before := []summary{
		figures("gang-1000x3", workload.Ceiling, 100, 2), figures("gang-1000x3", workload.Ours, 100, 0.5),
		figures("gang-1000x3", workload.KubernetesNative, 50, 8), figures("topology-750x4", workload.Ours, 100, 1),
	}
	if err := writeBaseline(file, before); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(text), workload.KubernetesNative) || strings.Contains(string(text), "topology") {
		t.Errorf("the baseline has more than Muster's ratios to a ceiling: %v\n%s", err, text)
	}
	for _, tc := range []struct {
		name                       string
		ceiling, ours              float64
		ceilingDeciding, oursDecid float64
		worse                      []string
	}{
		{name: "as before", ceiling: 100, ours: 100, ceilingDeciding: 2, oursDecid: 0.5},
		{name: "another machine", ceiling: 300, ours: 300, ceilingDeciding: 0.2, oursDecid: 0.05},
		{name: "better", ceiling: 100, ours: 150, ceilingDeciding: 2, oursDecid: 0.1},
		{name: "noise", ceiling: 100, ours: 86, ceilingDeciding: 2, oursDecid: 0.7},
		{name: "slower", ceiling: 100, ours: 84, ceilingDeciding: 2, oursDecid: 0.5, worse: []string{"pods/s"}},
		{name: "the ceiling alone is faster", ceiling: 130, ours: 100, ceilingDeciding: 2, oursDecid: 0.5, worse: []string{"pods/s"}},
		{name: "costlier", ceiling: 100, ours: 100, ceilingDeciding: 2, oursDecid: 0.75, worse: []string{"deciding"}},
		{name: "both", ceiling: 100, ours: 50, ceilingDeciding: 2, oursDecid: 1, worse: []string{"pods/s", "deciding"}},
	} {
		err := checkBaseline(file, []summary{
			figures("gang-1000x3", workload.Ceiling, tc.ceiling, tc.ceilingDeciding), figures("gang-1000x3", workload.Ours, tc.ours, tc.oursDecid),
		})
		if (err != nil) != (len(tc.worse) > 0) {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		for _, word := range tc.worse {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v says nothing of %s", tc.name, err, word)
			}
		}
	}
	if err := checkBaseline(file, []summary{figures("gang-3x1000", workload.Ceiling, 1, 1)}); err == nil {
		t.Error("nothing was compared, and that is not an error")
	}
	if err := checkBaseline(file+".absent", before); err == nil {
		t.Error("no baseline, and that is not an error")
	}
}

func TestCommittedBaseline(t *testing.T) {
	var b baseline
	if err := read("../baseline.json", &b); err != nil {
		t.Fatal(err)
	}
	for of, schedulers := range b {
		if position(of, caseNames()) == len(caseNames()) {
			t.Errorf("no case is named %s", of)
		}
		for scheduler, values := range schedulers {
			if position(scheduler, schedulerNames()) == len(schedulerNames()) || len(values) != len(guarded) {
				t.Errorf("%s: %s has %v", of, scheduler, values)
			}
		}
	}
}

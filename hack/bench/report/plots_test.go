package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/hack/bench/workload"
)

func TestPlots(t *testing.T) {
	folder := t.TempDir()
	point := func(c workload.Case, scheduler string, cost float64) summary {
		s := figures(c.Name, scheduler, 1, cost)
		s.Case = c
		return s
	}
	var all []summary
	for _, c := range workload.Cases() {
		switch c.Name {
		case "gpu-waiting-0", "gpu-waiting-2000":
			all = append(all, point(c, workload.Ours, 0.5), point(c, workload.KubernetesNative, 5))
		case "gang-1000x3": // a single point is no line
			all = append(all, point(c, workload.Ours, 0.5))
		}
	}
	files, err := drawPlots(folder, all)
	if err != nil || !slices.Equal(files, []string{filepath.Join(folder, "cost-against-queue.svg")}) {
		t.Fatalf("%v, %v", files, err)
	}
	first, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "gangs that wait", workload.Ours, workload.KubernetesNative} {
		if !strings.Contains(string(first), want) {
			t.Errorf("the plot lacks %q", want)
		}
	}
	if _, err := drawPlots(folder, all); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(first, again) {
		t.Errorf("the same figures make another plot: %v", err)
	}
	if page := markdown(machine{}, all, files); !strings.Contains(page, "/cost-against-queue.svg)") {
		t.Error("the page does not show the plot")
	}
}

// A plot would lose a curve without notice if a case changed its name.
func TestCasesOfPlots(t *testing.T) {
	for _, c := range curves {
		for _, name := range c.cases {
			if !slices.Contains(caseNames(), name) {
				t.Errorf("%s: no case is named %s", c.file, name)
			}
		}
	}
	for _, a := range aims {
		if !slices.ContainsFunc(caseNames(), func(name string) bool { return strings.HasPrefix(name, a.cases) }) {
			t.Errorf("no case is named %s", a.cases)
		}
		if a.beside != "" && !slices.Contains(caseNames(), a.beside) {
			t.Errorf("no case is named %s", a.beside)
		}
	}
}

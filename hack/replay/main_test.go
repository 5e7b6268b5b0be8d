package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDrawAll(t *testing.T) {
	in := `{"results": [
		{"policy": "muster", "trace": "a/jobs.csv", "jobCompletionSeconds": {"mean": 3600}},
		{"policy": "native", "trace": "a/jobs.csv", "peer": true, "jobCompletionSeconds": {"mean": 7200}}]}`
	dir := t.TempDir()
	if err := drawAll(strings.NewReader(in), dir); err != nil {
		t.Fatal(err)
	}
	for _, m := range measures {
		svg, err := os.ReadFile(filepath.Join(dir, "jobs.csv-"+m.file+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"<svg", "muster", "native", "jobs.csv"} {
			if !strings.Contains(string(svg), want) {
				t.Errorf("%s: there is no %q in it", m.file, want)
			}
		}
	}
	if err := drawAll(strings.NewReader("{"), dir); err == nil {
		t.Error("half a file was read")
	}
}

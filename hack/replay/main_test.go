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

func TestFillIn(t *testing.T) {
	dir := t.TempDir()
	page, tables := filepath.Join(dir, "page.md"), filepath.Join(dir, "tables.md")
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(page, "a\n"+fromMark+"old\n"+toMark+"b\n")
	write(tables, "new\n\n")
	if err := fillIn(page, tables); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != "a\n"+fromMark+"new\n"+toMark+"b\n" {
		t.Errorf("got %q, %v", got, err)
	}
	write(page, fromMark)
	if err := fillIn(page, tables); err == nil {
		t.Error("a page without an end was filled")
	}
}

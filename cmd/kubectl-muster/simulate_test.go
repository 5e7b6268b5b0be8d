package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func runCommand(args ...string) (string, error) {
	cmd := newCommand()
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

func TestSimulateSaysWhatIsWrong(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(bad, []byte("job,submit,pods,gpus,duration\na,0,1,many,5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"trace":  {[]string{"--trace", "borg"}, `there is no trace "borg"; a file's name ends with .csv`},
		"policy": {[]string{"--policy", "lottery"}, `there is no policy "lottery"; there are muster, `},
		"output": {[]string{"-o", "yaml"}, `there is no output "yaml"; there are table, markdown and json`},
		"days":   {[]string{"--days", "0"}, "--days must be above 0 and up to 3650"},
		"shape":  {[]string{"--nodes", "0"}, "a cluster needs at least one node"},
		"file":   {[]string{"--trace", "nowhere.csv"}, "open nowhere.csv: "},
		"line":   {[]string{"--trace", bad}, bad + `:2: field "gpus": "many" is no integer from 1 to 8`},
		"write":  {[]string{"--write-trace", "x.csv"}, "--write-trace writes one trace"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := runCommand(append([]string{"simulate"}, c.args...)...)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// What is written is read again and gives the same numbers, in every output.
func TestSimulate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "jobs.csv")
	if _, err := runCommand("simulate", "--trace", "philly", "--days", "0.2", "--nodes", "20", "--write-trace", file); err != nil {
		t.Fatal(err)
	}
	args := []string{"simulate", "--trace", file, "--nodes", "20", "--policy", "muster,native,no-gang"}
	out, err := runCommand(append(args, "-o", "json")...)
	if err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Results) != 3 || len(doc.Aims) != 4 {
		t.Fatalf("%d results and %d aims, want 3 and 4", len(doc.Results), len(doc.Aims))
	}
	for _, r := range doc.Results {
		if r.Jobs == 0 || r.Unended != 0 || r.Completion.Mean <= 0 || r.Utilisation <= 0 {
			t.Errorf("%s: %+v", r.Policy, r)
		}
	}
	first, err := runCommand(args...)
	if err != nil {
		t.Fatal(err)
	}
	second, err := runCommand(args...)
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Errorf("first\n%s\nthen\n%s", first, second)
	}
	for _, want := range []string{"\npolicy ", "\nmuster ", "\nnative ", "mean job completion time"} {
		if !strings.Contains(first, want) {
			t.Errorf("there is no %q in\n%s", want, first)
		}
	}
	page, err := runCommand(append(args, "-o", "markdown")...)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| policy | delay mean |", "| policy | part of a node |", "against | native | no-gang |"} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %q in\n%s", want, page)
		}
	}
	report := filepath.Join(t.TempDir(), "report.md")
	if _, err := runCommand(append(args, "--report", report)...); err != nil {
		t.Fatal(err)
	}
	if written, err := os.ReadFile(report); err != nil || string(written) != page {
		t.Errorf("the report is (%v)\n%s\nwant\n%s", err, written, page)
	}
}

func TestVersion(t *testing.T) {
	out, err := runCommand("version")
	if err != nil || !strings.HasPrefix(out, "v") {
		t.Errorf("got %q, %v", out, err)
	}
}

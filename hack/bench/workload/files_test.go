package workload

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every scheduler gets files for every case that it runs, with nothing left to fill in but what scheduler_perf
// fills in, and each file that one of them names is there.
func TestWriteFiles(t *testing.T) {
	named := regexp.MustCompile(`(?:templatePath|TemplatePath|schedulerConfigPath): (\S+)`)
	left := regexp.MustCompile(`{{[^}]*}}`)
	for _, c := range Cases() {
		for _, s := range Schedulers() {
			if !s.Runs(&c) {
				continue
			}
			run, err := WriteFiles(c, s, filepath.Join(t.TempDir(), strings.ReplaceAll(c.Name+"-"+s.Name, " ", "-")))
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(filepath.Join(run.Files, "performance-config.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			paths := named.FindAllStringSubmatch(string(data), -1)
			if want := 2 + len(c.Gangs); len(paths) != want {
				t.Errorf("%s, %s: %d files are named, want %d", c.Name, s.Name, len(paths), want)
			}
			for _, path := range paths {
				text, err := os.ReadFile(path[1])
				if err != nil {
					t.Error(err)
				}
				for _, hole := range left.FindAllString(string(text), -1) {
					if !strings.Contains(hole, ".Index") {
						t.Errorf("%s: %s", path[1], hole)
					}
				}
				if strings.Contains(string(text), "[[") {
					t.Errorf("%s has brackets left", path[1])
				}
			}
			var again Run
			if data, err = os.ReadFile(filepath.Join(run.Files, RunFile)); err != nil || json.Unmarshal(data, &again) != nil {
				t.Fatal(err)
			}
			if again.Case.Pods() != c.Pods() || again.Scheduler.Name != s.Name {
				t.Errorf("the process reads %+v", again)
			}
		}
	}
}

func TestCasesAndSchedulersAreToldApart(t *testing.T) {
	names := map[string]bool{}
	for _, c := range Cases() {
		if names[c.Name] {
			t.Errorf("two cases %s", c.Name)
		}
		names[c.Name] = true
		if c.Pods() == 0 || c.Nodes == 0 || c.RackSize == 0 || c.About == "" {
			t.Errorf("%+v", c)
		}
	}
	for _, s := range Schedulers() {
		if names[s.Name] {
			t.Errorf("two schedulers %s", s.Name)
		}
		names[s.Name] = true
	}
	for _, name := range []string{Ceiling, Ours} {
		if !names[name] {
			t.Errorf("no scheduler %s", name)
		}
	}
}

// A GPU cluster has room for all gangs of its case beside what fills it: a run would not end otherwise.
func TestCasesFit(t *testing.T) {
	for _, c := range Cases() {
		need, have := 0, c.Nodes*c.GPUs
		if c.Filled {
			have = c.Nodes * (c.GPUs - 4) // on average
		}
		for _, g := range c.Gangs {
			need += g.Count * g.Size * g.GPUs
		}
		if need > have {
			t.Errorf("%s needs %d GPUs of %d", c.Name, need, have)
		}
	}
}

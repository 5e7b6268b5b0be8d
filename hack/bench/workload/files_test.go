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
	named := regexp.MustCompile(`(?:templatePath|TemplatePath|schedulerConfigPath|templatePaths): \[?([^\]\s]+)`)
	count := map[bool]int{true: 1}
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
			if want := 1 + len(c.Gangs) + len(run.Waiting()) + count[c.Churn]; len(paths) != want {
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

// A GPU cluster has room for all gangs of its case beside what fills it, and for none of those that must not fit: a
// run would not end otherwise.
func TestCasesFit(t *testing.T) {
	for _, c := range Cases() {
		need, have := 0, c.Nodes*c.GPUs
		if c.Filling == Fragments {
			have = c.Empty*c.GPUs + (c.Nodes-c.Empty)*(c.GPUs-4) // on average
		}
		for _, g := range c.Gangs {
			need += g.Count * g.Size * g.GPUs
			if c.Refused && (g.GPUs != c.GPUs || g.Size <= c.Empty) {
				t.Errorf("%s: there may be room for a gang of %d", c.Name, g.Size)
			}
		}
		if need > have && !c.Refused {
			t.Errorf("%s needs %d GPUs of %d", c.Name, need, have)
		}
		if w := c.Waiting; w.Count > 0 && (w.GPUs != c.GPUs || c.Empty >= w.Size) {
			t.Errorf("%s: there may be room for the gangs that wait", c.Name)
		}
	}
}

// A member of the gang fits on a node only when all victims there are gone.
func TestVictims(t *testing.T) {
	const cpus = 128 // in templates/node.yaml
	if VictimsPerNode*VictimCPU > cpus {
		t.Error("the victims do not fit on a node")
	}
	if left := cpus - VictimCPU; left >= OtherCPU {
		t.Errorf("a member fits beside a victim: %d CPUs are left", left)
	}
	if cpus-OtherCPU >= OtherCPU {
		t.Error("a member fits beside a pod of high priority")
	}
}

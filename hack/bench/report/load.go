package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/muster-sched/muster/hack/bench/workload"
)

// results is the whole of what was measured, for other programs.
type results struct {
	Machine machine `json:"machine"`
	Runs    []run   `json:"runs"`
}

// machine is where it was measured.
type machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	System string `json:"system"`

	// Note is what else to know, for the page.
	Note string `json:"-"`
}

// run is one scheduler on one case, once.
type run struct {
	Case      workload.Case      `json:"case"`
	Scheduler workload.Scheduler `json:"scheduler"`
	workload.Observation
	CPU cpu `json:"cpu"`

	// Top are the functions that took most of the deciding.
	Top []function `json:"top"`

	// Heap is how many bytes of what was in use at the end each function allocated.
	Heap map[string]int64 `json:"heap"`
}

// load reads what was measured: a folder that hack/bench left, or a file of results.
func load(path string) (results, error) {
	if strings.HasSuffix(path, ".json") {
		var r results
		return r, read(path, &r)
	}
	runs, err := loadFolder(path)
	return results{Machine: thisMachine(), Runs: runs}, err
}

// loadFolder reads all runs that have figures, in the order of cases and schedulers.
func loadFolder(folder string) ([]run, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*", workload.RunFile))
	if err != nil {
		return nil, err
	}
	var runs []run
	for _, file := range files {
		r, err := loadRun(filepath.Dir(file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("-in: no figures in %q", folder)
	}
	slices.SortStableFunc(runs, func(a, b run) int {
		if c := position(a.Case.Name, caseNames()) - position(b.Case.Name, caseNames()); c != 0 {
			return c
		}
		return position(a.Scheduler.Name, schedulerNames()) - position(b.Scheduler.Name, schedulerNames())
	})
	return runs, nil
}

func loadRun(folder string) (run, error) {
	var r struct{ workload.Run }
	if err := read(filepath.Join(folder, workload.RunFile), &r.Run); err != nil {
		return run{}, err
	}
	out := run{Case: r.Case, Scheduler: r.Scheduler}
	if err := read(filepath.Join(folder, workload.ObservationFile), &out.Observation); err != nil {
		return run{}, err
	}
	var err error
	if out.Heap, err = readHeap(filepath.Join(folder, workload.HeapFile)); err != nil {
		return run{}, err
	}
	out.CPU, out.Top, err = readProfile(filepath.Join(folder, workload.ProfileFile))
	return out, err
}

func read(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func position(name string, names []string) int {
	if i := slices.Index(names, name); i >= 0 {
		return i
	}
	return len(names)
}

func caseNames() []string {
	var names []string
	for _, c := range workload.Cases() {
		names = append(names, c.Name)
	}
	return names
}

func schedulerNames() []string {
	var names []string
	for _, s := range workload.Schedulers() {
		names = append(names, s.Name)
	}
	return names
}

// thisMachine describes the machine as Linux does.
func thisMachine() machine {
	m := machine{CPU: runtime.GOARCH, Cores: runtime.NumCPU(), System: runtime.GOOS}
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for _, line := range strings.Split(string(data), "\n") {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	return m
}

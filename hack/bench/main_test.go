package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-sched/muster/hack/bench/workload"
)

// chosen are the pairs that flags lead to, as "case/scheduler".
func chosen(t *testing.T, full bool, peers, cases, schedulers string) []string {
	t.Helper()
	o := options{full: full}
	if err := o.complete("main", peers, "bin", cases, schedulers); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range o.pairs() {
		names = append(names, p.Case.Name+"/"+p.Scheduler.Name)
	}
	return names
}

func TestPairs(t *testing.T) {
	const peer = "scheduler-plugins=peer"
	small, full := chosen(t, false, peer, ".", "."), chosen(t, true, peer, ".", ".")
	for _, name := range small {
		if !slices.Contains(full, name) {
			t.Errorf("%s is in the small set and not in the full one", name)
		}
	}
	for name, want := range map[string][2]bool{ // in the small set, in the full one
		"gang-1000x3/no gangs":           {true, true},
		"gang-1000x3/coscheduling":       {true, true},
		"gang-3000x3/muster":             {false, true},
		"topology-750x4/no gangs":        {true, true},
		"topology-750x4/muster native":   {true, true},
		"topology-750x4/coscheduling":    {false, false}, // it knows no topology
		"gpu-refused/muster":             {true, true},
		"gpu-refused/no gangs":           {false, false}, // there is no gang to refuse
		"gpu-preempt/coscheduling":       {false, false}, // it makes no room for gangs
		"gpu-waiting-500/no gangs":       {false, true},
		"gpu-waiting-2000/no gangs":      {false, false}, // it would not end
		"gpu-waiting-2000/muster native": {false, true},
	} {
		if slices.Contains(small, name) != want[0] || slices.Contains(full, name) != want[1] {
			t.Errorf("%s: small %v, full %v", name, slices.Contains(small, name), slices.Contains(full, name))
		}
	}
	for _, name := range chosen(t, true, "", ".", ".") {
		if strings.HasSuffix(name, "/coscheduling") {
			t.Errorf("%s, and its binary is not built", name)
		}
	}
	if got := chosen(t, true, peer, "gang-1000x3$", "^muster$"); !slices.Equal(got, []string{"gang-1000x3/" + workload.Ours}) {
		t.Errorf("filtered: %v", got)
	}
}

func TestBadFlags(t *testing.T) {
	var o options
	if err := o.complete("main", "", "bin", "(", "."); err == nil || !strings.Contains(err.Error(), "-cases") {
		t.Errorf("%v", err)
	}
	if err := o.complete("main", "", "bin", "no such case", "."); err != nil {
		t.Fatal(err)
	}
	if err := o.run(context.Background()); err == nil || !strings.Contains(err.Error(), "gang-1000x3") {
		t.Errorf("the error does not name the cases: %v", err)
	}
}

// A run takes what its process leaves for the figures, whatever its exit code, and says where the log is if there is
// nothing.
func TestMeasure(t *testing.T) {
	script := filepath.Join(t.TempDir(), "test")
	o := options{folder: t.TempDir()}
	if err := o.complete(script, "", "bin", ".", "."); err != nil {
		t.Fatal(err)
	}
	c, s := workload.Cases()[0], workload.Schedulers()[0]
	for _, tc := range []struct {
		name, script string
		pods         int
	}{
		{"figures", `echo '{"pods": 7}' > observation.json; test -s crds.json -a -s run.json && exit 1`, 7},
		{"none", "exit 0", 0},
	} {
		if err := os.WriteFile(script, []byte("#!/bin/sh\n"+tc.script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		seen, err := measure(t.Context(), o.binaries, c, s, filepath.Join(o.folder, tc.name))
		if (err == nil) != (tc.pods > 0) || seen.Pods != tc.pods {
			t.Errorf("%s: %v, %+v", tc.name, err, seen)
		}
		if err != nil && !strings.Contains(err.Error(), filepath.Join(tc.name, "log")) {
			t.Errorf("%s: %v does not name the log", tc.name, err)
		}
	}
}

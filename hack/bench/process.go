package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/muster-sched/muster/hack/bench/workload"
	"github.com/muster-sched/muster/manifests"
)

// runTimeout ends a run that does not come to an end by itself.
const runTimeout = 15 * time.Minute

// binaries are the test binaries that have schedulers linked, by the name of their module, and etcd's folder.
type binaries struct {
	tests map[string]string
	etcd  string
}

// measure runs one scheduler on one case in a process of its own and returns what was seen. All that the process
// wrote stays in the folder.
func measure(ctx context.Context, b binaries, c workload.Case, s workload.Scheduler, folder string) (workload.Observation, error) {
	var seen workload.Observation
	test, ok := b.tests[s.Binary]
	if !ok {
		return seen, fmt.Errorf("binary %q is not built", s.Binary)
	}
	run, err := workload.WriteFiles(c, s, folder)
	if err != nil {
		return seen, err
	}
	if err := writeCRDs(filepath.Join(run.Files, workload.CRDFile)); err != nil {
		return seen, err
	}
	log, err := os.Create(filepath.Join(run.Files, "log"))
	if err != nil {
		return seen, err
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, test, "-test.run=^$", "-test.bench=.", "-test.benchtime=1x", "-test.timeout=0",
		"-bench-folder="+run.Files, "-data-items-dir="+run.Files, "-v=0")
	cmd.Dir, cmd.Stdout, cmd.Stderr = run.Files, log, log
	cmd.Env = append(os.Environ(), "PATH="+b.etcd+string(os.PathListSeparator)+os.Getenv("PATH"), "KUBE_CACHE_MUTATION_DETECTOR=false")
	// The process does not end its etcd when it is ended, so that all of its group is.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = time.Second
	failed := cmd.Run()
	data, err := os.ReadFile(filepath.Join(run.Files, workload.ObservationFile))
	if err != nil {
		// scheduler_perf has thresholds of its own, so that it may fail and yet have figures.
		return seen, fmt.Errorf("no figures (%v); the log is %s", failed, log.Name())
	}
	return seen, json.Unmarshal(data, &seen)
}

// writeCRDs writes Muster's custom resource definitions, whose PodGroup serves the peers too, as JSON.
func writeCRDs(file string) error {
	crds, err := manifests.CRDs()
	if err != nil {
		return err
	}
	data, err := json.Marshal(crds)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

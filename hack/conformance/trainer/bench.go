package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const upstreamModule = "github.com/kubeflow/trainer/v2"

// bench is where the suites run: what they are built from, and the programs that they run.
type bench struct {
	root     string // of Muster's repository
	upstream string // the directory of Kubeflow Trainer's module
	jobSet   string // the directory of JobSet's module
	out      string // for what is built and written
}

// newBench finds the parts. The error says which is missing.
func newBench(ctx context.Context) (*bench, error) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return nil, err
	}
	b := &bench{root: root, out: filepath.Join(root, "bin", "conformance")}
	for _, program := range []string{"muster-scheduler", "kube-apiserver", "etcd"} {
		if _, err := os.Stat(b.program(program)); err != nil {
			return nil, fmt.Errorf("%w: run make conformance-trainer", err)
		}
	}
	if b.upstream, err = module(ctx, upstreamModule); err != nil {
		return nil, err
	}
	if b.jobSet, err = module(ctx, "sigs.k8s.io/jobset"); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return nil, err
	}
	return b, b.copyUpstream()
}

func (b *bench) program(name string) string {
	return filepath.Join(b.root, "bin", name)
}

// module returns the directory of a module.
func module(ctx context.Context, name string) (string, error) {
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", name).Output()
	if err != nil || len(dir) == 0 {
		return "", fmt.Errorf("finding module %s: %w", name, errors.Join(err, errors.New("is it downloaded?")))
	}
	return strings.TrimSpace(string(dir)), nil
}

// copied are the parts of Kubeflow Trainer's module that the suites are built from. The go command lets nobody replace
// files of the module cache, so they run from a copy.
var copied = []string{"pkg", "test/util", "test/integration/controller", "test/integration/webhooks"}

// copyUpstream makes a copy of Kubeflow Trainer's module with our framework in place of its own, and a go.mod, to be
// used with -modfile, that takes it for the module.
func (b *bench) copyUpstream() error {
	if err := os.RemoveAll(b.copy()); err != nil {
		return err
	}
	for _, dir := range copied {
		if err := os.CopyFS(filepath.Join(b.copy(), dir), os.DirFS(filepath.Join(b.upstream, dir))); err != nil {
			return err
		}
	}
	if err := continueOnFailure(filepath.Join(b.copy(), "test", "integration")); err != nil {
		return err
	}
	framework := os.DirFS(filepath.Join(b.root, "hack", "conformance", "trainer", "framework"))
	if err := os.CopyFS(filepath.Join(b.copy(), "test", "integration", "framework"), framework); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(b.copy(), "go.mod"), filepath.Join(b.upstream, "go.mod"), ""); err != nil {
		return err
	}
	replace := fmt.Sprintf("\nreplace %s => %s\n", upstreamModule, b.copy())
	return errors.Join(copyFile(b.modFile(), "go.mod", replace), copyFile(filepath.Join(b.out, "go.sum"), "go.sum", ""))
}

// continueOnFailure has the suites go on after a spec that fails. Theirs skip what comes after it, and some of that needs
// what it does.
func continueOnFailure(dir string) error {
	const ordered = ", ginkgo.Ordered, func() {"
	files, err := filepath.Glob(filepath.Join(dir, "*", "*_test.go"))
	if err != nil {
		return err
	}
	found := false
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		found = found || strings.Contains(string(content), ordered)
		changed := strings.ReplaceAll(string(content), ordered, ", ginkgo.Ordered, ginkgo.ContinueOnFailure, func() {")
		if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("no ordered containers in %s: does anything keep failures from hiding what comes after them?", dir)
	}
	return nil
}

func (b *bench) copy() string {
	return filepath.Join(b.out, "kubeflow-trainer")
}

func (b *bench) modFile() string {
	return filepath.Join(b.out, "go.mod")
}

// copyFile writes what a file has, and more.
func copyFile(to, from, more string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, append(content, more...), 0o644)
}

// build compiles a suite.
func (b *bench) build(ctx context.Context, name string) (*suite, error) {
	s := &suite{
		name:   name,
		binary: filepath.Join(b.out, name+".test"),
		dir:    filepath.Join(b.copy(), "test", "integration", name),
		report: filepath.Join(b.out, name+".json"),
		log:    filepath.Join(b.out, name+".log"),
	}
	s.env = append(os.Environ(),
		"KUBEBUILDER_ASSETS="+filepath.Join(b.root, "bin"),
		"MUSTER_BINARY="+b.program("muster-scheduler"),
		"MUSTER_LOG="+s.log,
		"MUSTER_WEBHOOKS="+filepath.Join(b.root, "manifests", "components", "webhooks"),
		"MUSTER_CRDS="+strings.Join([]string{
			filepath.Join(b.root, "manifests", "crds"),
			filepath.Join(b.root, "hack", "conformance", "trainer", "crds"),
			filepath.Join(b.jobSet, "config", "components", "crd", "bases"),
		}, string(filepath.ListSeparator)),
	)
	fmt.Printf("compiling Kubeflow Trainer's suite %q, the first time for minutes\n", name)
	start := time.Now()
	compile := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-w", "-modfile="+b.modFile(), "-o", s.binary,
		upstreamModule+"/test/integration/"+name)
	compile.Stdout, compile.Stderr = os.Stdout, os.Stderr
	if err := compile.Run(); err != nil {
		return nil, fmt.Errorf("compiling the suite %s: %w", name, err)
	}
	fmt.Printf("compiled in %s\n", time.Since(start).Round(time.Second))
	return s, nil
}

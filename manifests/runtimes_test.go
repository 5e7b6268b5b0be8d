package manifests

import (
	"context"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestRuntimesAreTrainingRuntimes(t *testing.T) {
	runtimes, err := Runtimes()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, runtime := range runtimes {
		if kind := runtime.GetKind(); kind != "ClusterTrainingRuntime" {
			t.Errorf("%s %q is not a training runtime of the cluster", kind, runtime.GetName())
		}
		names = append(names, runtime.GetName())
	}
	for _, name := range []string{
		"torch-distributed", "deepspeed-distributed", "mlx-distributed", "jax-distributed", "xgboost-distributed",
		"torchtune-llama3.2-1b", "torchtune-llama3.2-3b", "torchtune-qwen2.5-1.5b",
	} {
		for _, want := range []string{name, name + "-gang"} {
			if !slices.Contains(names, want) {
				t.Errorf("no runtime %s", want)
			}
		}
	}
}

func TestEveryRuntimeIsInstalled(t *testing.T) {
	data, err := FS.ReadFile("runtimes/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kustomization := struct{ Resources []string }{}
	if err := yaml.Unmarshal(data, &kustomization); err != nil {
		t.Fatal(err)
	}
	files, err := fs.Glob(FS, "runtimes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if base := path.Base(file); base != "kustomization.yaml" && !slices.Contains(kustomization.Resources, base) {
			t.Errorf("runtimes/kustomization.yaml does not list %s", base)
		}
	}
	if built := build(t, "runtimes"); len(built) != len(files)-1 {
		t.Errorf("kustomize builds %d runtimes of %d files", len(built), len(files)-1)
	}
}

// waitScript returns the script by which the launcher of an MPI gang waits for the workers.
func waitScript(t *testing.T, runtime string) string {
	t.Helper()
	runtimes, err := Runtimes()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range runtimes {
		jobs, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "replicatedJobs")
		for _, job := range jobs {
			containers, _, _ := unstructured.NestedSlice(job.(map[string]any), "template", "spec", "template", "spec", "initContainers")
			if object.GetName() == runtime && len(containers) == 1 {
				command, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "command")
				if len(command) != 3 || command[1] != "-c" {
					t.Fatalf("command = %q", command)
				}
				return command[2]
			}
		}
	}
	t.Fatalf("no launcher of %s waits", runtime)
	return ""
}

// The launcher of an MPI gang waits until every worker serves SSH, and does not wait for itself.
func TestLauncherWaitsForWorkers(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	script := waitScript(t, "deepspeed-distributed-gang")
	if other := waitScript(t, "mlx-distributed-gang"); other != script {
		t.Error("the launchers wait in different ways")
	}
	hostfile := filepath.Join(t.TempDir(), "hostfile")
	if err := os.WriteFile(hostfile, []byte("127.0.0.1 slots=8\nllm-launcher-0-0.llm slots=8\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// A free port in the place of SSH's.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	script = strings.ReplaceAll(script, "/etc/mpi/hostfile", hostfile)
	script = strings.ReplaceAll(script, "/2222", "/"+address[strings.LastIndex(address, ":")+1:])
	// Tell of each attempt.
	attempted := filepath.Join(t.TempDir(), "attempted")
	script = strings.ReplaceAll(script, "sleep 1", "touch "+attempted+"; sleep 0.05")

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, bash, "-c", script)
	cmd.Env = []string{"HOSTNAME=llm-launcher-0-0", "PATH=" + os.Getenv("PATH")}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(attempted); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("it does not wait")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if listener, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("it does not end: %v", err)
	}
}

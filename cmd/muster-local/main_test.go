package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// asCommand makes this test binary behave as muster-local, so that tests can run it as the processes
// that users run.
const asCommand = "MUSTER_LOCAL_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// process is a muster-local with a temporary directory of its own.
type process struct {
	*exec.Cmd
	tmp    string
	stdout io.Reader
	stderr *bytes.Buffer
}

func command(t *testing.T, args ...string) *process {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.CommandContext(t.Context(), executable, args...), tmp: t.TempDir(), stderr: &bytes.Buffer{}}
	p.Env = append(os.Environ(), asCommand+"=1", "TMPDIR="+p.tmp)
	p.Stderr = p.stderr
	if p.stdout, err = p.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// end waits for the process and checks that it ended well, said nothing on standard error and left
// nothing behind.
func (p *process) end(t *testing.T) {
	t.Helper()
	if err := p.Wait(); err != nil {
		t.Errorf("%v: %s", err, p.stderr)
	}
	if p.stderr.Len() > 0 {
		t.Errorf("standard error: %s", p.stderr)
	}
	left, err := os.ReadDir(p.tmp)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// kubeconfig reads the output of up to the line that exports it, and goes on reading.
func (p *process) kubeconfig(t *testing.T) string {
	t.Helper()
	lines := bufio.NewScanner(p.stdout)
	for lines.Scan() {
		if path, found := strings.CutPrefix(lines.Text(), "export KUBECONFIG="); found {
			go func() { _, _ = io.Copy(io.Discard, p.stdout) }()
			return path
		}
	}
	_ = p.Wait()
	t.Fatalf("no kubeconfig: %s", p.stderr)
	return ""
}

func nodes(ctx context.Context, kubeconfig string) (int, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return 0, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	return len(list.Items), nil
}

func TestUpSideBySide(t *testing.T) {
	first := command(t, "up", "--nodes=2")
	second := command(t, "up", "--nodes=3", "--topology=", "--scheduler=none")
	for _, up := range []struct {
		*process
		nodes  int
		signal os.Signal
	}{{first, 2, os.Interrupt}, {second, 3, syscall.SIGTERM}} {
		kubeconfig := up.kubeconfig(t)
		got, err := nodes(t.Context(), kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		if got != up.nodes {
			t.Errorf("%d nodes, want %d", got, up.nodes)
		}
		if err := up.Process.Signal(up.signal); err != nil {
			t.Fatal(err)
		}
		up.end(t)
		if _, err := nodes(t.Context(), kubeconfig); err == nil {
			t.Error("the cluster still answers")
		}
	}
}

func TestInterruptedStart(t *testing.T) {
	p := command(t, "up", "--nodes=0")
	lines := bufio.NewScanner(p.stdout)
	for lines.Scan() && !strings.Contains(lines.Text(), "kube-apiserver") {
	}
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, p.stdout)
	_ = p.Wait()
	if code := p.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d, want 130: %s", code, p.stderr)
	}
	left, err := os.ReadDir(p.tmp)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestClosedPipe stops reading what up prints, as head does.
func TestClosedPipe(t *testing.T) {
	p := command(t, "up", "--nodes=0", "--scheduler=none")
	if !bufio.NewScanner(p.stdout).Scan() {
		t.Fatalf("no output: %s", p.stderr)
	}
	if err := p.stdout.(io.Closer).Close(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	left, err := os.ReadDir(p.tmp)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestDemo runs what users see first, and checks the two numbers that it is about.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	began := time.Now()
	p := command(t, "demo")
	output, err := io.ReadAll(p.stdout)
	if err != nil {
		t.Fatal(err)
	}
	p.end(t)
	t.Logf("took %s\n%s", time.Since(began).Round(time.Second), output)

	row := regexp.MustCompile(`(?m)^GPU-seconds held by gangs that could not run\s+([0-9.]+)\s+([0-9.]+)`).FindSubmatch(output)
	if row == nil {
		t.Fatal("no summary")
	}
	muster, musterErr := strconv.ParseFloat(string(row[1]), 64)
	standard, standardErr := strconv.ParseFloat(string(row[2]), 64)
	if musterErr != nil || standardErr != nil {
		t.Fatalf("%s and %s are not numbers", row[1], row[2])
	}
	if muster >= standard/10 {
		t.Errorf("Muster held %v GPU-seconds for nothing, the default scheduler %v", muster, standard)
	}
	for _, job := range []string{"atlas", "birch", "cedar"} {
		if !regexp.MustCompile(fmt.Sprintf(`(?s)With Muster.*%s is whole.*%s is done.*The same jobs`, job, job)).Match(output) {
			t.Errorf("%s was not run by Muster", job)
		}
	}
	if !regexp.MustCompile(`cedar waits: .*nvidia.com/gpu`).Match(output) && !regexp.MustCompile(`atlas waits: .*nvidia.com/gpu`).Match(output) {
		t.Error("no gang was told why it waits")
	}
}

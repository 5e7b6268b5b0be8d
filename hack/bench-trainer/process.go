package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/cert"
)

// probeAddress is where a contender says that it is ready.
const probeAddress = "127.0.0.1:18081"

// kubeflowCertDir is where Kubeflow Trainer looks for the certificate of its webhooks, which nobody calls here.
const kubeflowCertDir = "/tmp/k8s-webhook-server/serving-certs"

// process is a program that runs beside this one.
type process struct {
	command *exec.Cmd
	log     string // file
	done    chan struct{}
}

func start(command *exec.Cmd, log string) (*process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	command.Stdout, command.Stderr = file, file
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &process{command: command, log: log, done: make(chan struct{})}
	go func() {
		_ = command.Wait()
		close(p.done)
	}()
	return p, nil
}

// ended returns an error with the last words of a process that has ended, nil of one that runs.
func (p *process) ended() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s ended: %s", p.command.Path, content[max(0, len(content)-2000):])
}

// stop ends the process and waits for its end.
func (p *process) stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		_ = p.command.Process.Kill()
		<-p.done
	}
}

// await polls until the condition holds or the process has ended.
func (p *process) await(ctx context.Context, condition func() bool) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return condition(), p.ended()
	})
}

// controlPlane is a muster-local without scheduler, controllers and nodes.
type controlPlane struct {
	*process
	kubeconfig string
}

func startControlPlane(ctx context.Context, binary, dir string) (*controlPlane, error) {
	data := filepath.Join(dir, "cluster")
	p, err := start(exec.Command(binary, "up", "--nodes=0", "--scheduler=none", "--data-dir="+data), filepath.Join(dir, "control-plane.log"))
	if err != nil {
		return nil, err
	}
	plane := &controlPlane{process: p}
	err = p.await(ctx, func() bool {
		content, _ := os.ReadFile(p.log)
		_, rest, ok := strings.Cut(string(content), "export KUBECONFIG=")
		plane.kubeconfig, _, _ = strings.Cut(rest, "\n")
		return ok
	})
	if err != nil {
		p.stop()
		return nil, err
	}
	return plane, nil
}

// startContender starts a controller with the common limits, and waits until it is ready.
func startContender(ctx context.Context, name, binary, kubeconfig, dir string) (*process, error) {
	var command *exec.Cmd
	switch name {
	case "muster":
		config := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q, qps: %d, burst: %d}
`, kubeconfig, qps, burst)
		file := filepath.Join(dir, "muster.yaml")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return nil, err
		}
		command = exec.Command(binary, "--config="+file, "--scheduler=false", "--controllers=trainer", "--controllers-leader-elect=false",
			"--controllers-metrics-bind-address=0", "--controllers-health-probe-bind-address="+probeAddress,
			fmt.Sprintf("--trainer-concurrency=%d", concurrency))
	case "kubeflow":
		config := fmt.Sprintf(`apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
leaderElection: {leaderElect: false}
health: {healthProbeBindAddress: %q}
metrics: {bindAddress: "0"}
webhook: {port: 19443}
certManagement: {enable: false}
clientConnection: {qps: %d, burst: %d}
controller: {groupKindConcurrency: {TrainJob.trainer.kubeflow.org: %d}}
`, probeAddress, qps, burst, concurrency)
		file := filepath.Join(dir, "kubeflow.yaml")
		if err := errors.Join(os.WriteFile(file, []byte(config), 0o600), writeCertificate(kubeflowCertDir)); err != nil {
			return nil, err
		}
		command = exec.Command(binary, "--config="+file)
		command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	default:
		return nil, fmt.Errorf("known are muster and kubeflow")
	}
	p, err := start(command, filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	err = p.await(ctx, func() bool {
		response, err := http.Get("http://" + probeAddress + "/readyz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	if err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func writeCertificate(dir string) error {
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		return err
	}
	return errors.Join(
		os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600),
		os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600),
	)
}

// settle waits until the process does hardly anything, and returns what it has used then.
func (p *process) settle(ctx context.Context) (*usage, error) {
	for {
		worked, err := p.work(ctx, 5*time.Second)
		if err != nil {
			return nil, err
		}
		if worked < 250*time.Millisecond {
			return p.usage()
		}
	}
}

// work returns how long the process uses a CPU within some time.
func (p *process) work(ctx context.Context, within time.Duration) (time.Duration, error) {
	before, err := p.usage()
	if err != nil {
		return 0, err
	}
	select {
	case <-time.After(within):
	case <-p.done:
		return 0, p.ended()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	after, err := p.usage()
	if err != nil {
		return 0, err
	}
	return after.cpu - before.cpu, nil
}

// usage is what a process has used so far.
type usage struct {
	cpu                  time.Duration
	residentMiB, peakMiB int
}

func (p *process) usage() (*usage, error) {
	pid := strconv.Itoa(p.command.Process.Pid)
	file, err := os.Open(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	u := &usage{}
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		fields := strings.Fields(scanner.Text())
		if len(fields) != 3 {
			continue
		}
		kib, err := strconv.Atoi(fields[1])
		if err != nil {
			continue
		}
		switch fields[0] {
		case "VmRSS:":
			u.residentMiB = kib >> 10
		case "VmHWM:":
			u.peakMiB = kib >> 10
		}
	}
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return nil, err
	}
	// After the name, which may have spaces; in hundredths of a second on every Linux.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return nil, fmt.Errorf("/proc/%s/stat: %q", pid, stat)
	}
	for _, ticks := range fields[11:13] {
		n, err := strconv.Atoi(ticks)
		if err != nil {
			return nil, err
		}
		u.cpu += time.Duration(n) * 10 * time.Millisecond
	}
	return u, nil
}

package integration

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	"github.com/muster-sched/muster/manifests"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// deniedRequests is a proxy before the API server that keeps what the API server forbids.
type deniedRequests struct {
	url string
	ca  []byte // PEM: clients send tokens over TLS only

	mu     sync.Mutex
	denied []string
}

func watchDenied(t *testing.T) *deniedRequests {
	t.Helper()
	target, err := url.Parse(cluster.REST().Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(cluster.REST()))
	if err != nil {
		t.Fatal(err)
	}
	d := &deniedRequests{}
	server := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ModifyResponse: func(response *http.Response) error {
			if response.StatusCode != http.StatusForbidden && response.StatusCode != http.StatusUnauthorized {
				return nil
			}
			body, err := io.ReadAll(response.Body)
			if err != nil {
				return err
			}
			response.Body = io.NopCloser(bytes.NewReader(body))
			// An earlier test's namespace takes nothing new, from whoever it comes.
			if !bytes.Contains(body, []byte(corev1.NamespaceTerminatingCause)) {
				d.add(fmt.Sprintf("%s %s: %s", response.Request.Method, response.Request.URL.Path, response.Status))
			}
			return nil
		},
		// A client that ends in the middle of a watch is no news.
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	server.EnableHTTP2 = true
	server.StartTLS()
	d.url = server.URL
	d.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return d
}

// through returns the configuration of a client whose requests are watched.
func (d *deniedRequests) through(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Host, config.TLSClientConfig = d.url, rest.TLSClientConfig{CAData: d.ca}
	return config
}

func (d *deniedRequests) add(request string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.denied, request) {
		d.denied = append(d.denied, request)
	}
}

func (d *deniedRequests) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.denied
}

// process is muster-scheduler as a process of its own.
type process struct {
	*testing.T
	command *exec.Cmd
	output  string // file
	done    chan struct{}

	schedulerURL, metricsURL, probesURL string
}

// startProcess runs muster-scheduler with the given flags and free ports until the test ends.
func startProcess(t *testing.T, kubeconfig string, args ...string) *process {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t, 3)
	p := &process{
		T:            t,
		output:       filepath.Join(t.TempDir(), "output"),
		done:         make(chan struct{}),
		schedulerURL: fmt.Sprintf("https://127.0.0.1:%d", ports[0]),
		metricsURL:   fmt.Sprintf("https://127.0.0.1:%d", ports[1]),
		probesURL:    fmt.Sprintf("http://127.0.0.1:%d", ports[2]),
	}
	output, err := os.Create(p.output)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	p.command = exec.Command(executable, append(args,
		"--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", ports[0]),
		fmt.Sprintf("--controllers-metrics-bind-address=127.0.0.1:%d", ports[1]),
		fmt.Sprintf("--controllers-health-probe-bind-address=127.0.0.1:%d", ports[2]),
	)...)
	p.command.Env = append(os.Environ(), asScheduler+"=1")
	p.command.Stdout, p.command.Stderr = output, output
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.command.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.command.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("end of muster-scheduler's output:\n%s", tail(p.output, 60))
		}
	})
	return p
}

// exited waits until the process ended and returns its exit code, -1 after a signal.
func (p *process) exited() int {
	p.Helper()
	select {
	case <-p.done:
		return p.command.ProcessState.ExitCode()
	case <-time.After(patience):
		p.Fatal("muster-scheduler does not end")
		return 0
	}
}

func (p *process) signal(signal syscall.Signal) {
	p.Helper()
	if err := p.command.Process.Signal(signal); err != nil {
		p.Fatal(err)
	}
}

func (p *process) log() string {
	data, _ := os.ReadFile(p.output)
	return string(data)
}

func tail(file string, lines int) string {
	data, _ := os.ReadFile(file)
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// awaitServing waits until a path of the process answers with 200.
func (s *scene) awaitServing(p *process, probe func() (int, error)) {
	s.Helper()
	s.await("muster-scheduler", func() string {
		select {
		case <-p.done:
			s.Fatalf("muster-scheduler ended with exit code %d:\n%s", p.command.ProcessState.ExitCode(), tail(p.output, 20))
		default:
		}
		status, err := probe()
		if err != nil {
			return err.Error()
		}
		if status != http.StatusOK {
			return http.StatusText(status)
		}
		return ""
	})
}

// holder returns who holds a lease, "" if nobody does.
func (s *scene) holder(namespace, name string) string {
	s.Helper()
	lease := &coordinationv1.Lease{}
	err := kube.Get(s.ctx, client.ObjectKey{Namespace: namespace, Name: name}, lease)
	if apierrors.IsNotFound(err) {
		return ""
	}
	s.must(err)
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

func (s *scene) awaitHeld(namespace, name string) {
	s.Helper()
	s.await("lease "+name, func() string {
		if s.holder(namespace, name) == "" {
			return "nobody holds it"
		}
		return ""
	})
}

// steal takes a lease away from its holder for good.
func (s *scene) steal(namespace, name string) {
	s.Helper()
	s.await("stealing lease "+name, func() string {
		lease := &coordinationv1.Lease{}
		s.must(kube.Get(s.ctx, client.ObjectKey{Namespace: namespace, Name: name}, lease))
		now := metav1.NowMicro()
		lease.Spec.HolderIdentity = ptr.To("thief")
		lease.Spec.LeaseDurationSeconds = ptr.To[int32](3600)
		lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
		if err := kube.Update(s.ctx, lease); err != nil {
			return err.Error()
		}
		return ""
	})
}

// pauseScheduler stops the scheduler that the tests share, for tests that run their own.
func pauseScheduler(t *testing.T) {
	t.Helper()
	scheduler.Stop()
	t.Cleanup(func() {
		var err error
		if scheduler, err = startScheduler(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// deployedConfig writes the deployed scheduler configuration with quick leader election.
func deployedConfig(t *testing.T) string {
	t.Helper()
	data, err := manifests.SchedulerConfig(func(config *configv1.KubeSchedulerConfiguration) {
		config.ClientConnection.Kubeconfig = cluster.Kubeconfig()
		config.LeaderElection.ResourceNamespace = metav1.NamespaceDefault
		config.LeaderElection.LeaseDuration = metav1.Duration{Duration: 3 * time.Second}
		config.LeaderElection.RenewDeadline = metav1.Duration{Duration: 2 * time.Second}
		config.LeaderElection.RetryPeriod = metav1.Duration{Duration: 200 * time.Millisecond}
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The names of both halves' leases.
const (
	schedulerLease   = "muster-scheduler"
	controllersLease = "muster-controllers"
)

// startDeployed runs the deployed configuration with quick leader election and leases that are the
// test's own, and waits until each half that runs leads.
func startDeployed(s *scene, args ...string) *process {
	s.Helper()
	p := startProcess(s.T, cluster.Kubeconfig(), append([]string{
		"--config=" + deployedConfig(s.T),
		"--controllers-leader-elect-resource-namespace=default",
		"--controllers-leader-elect-lease-duration=3s",
		"--controllers-leader-elect-renew-deadline=2s",
		"--controllers-leader-elect-retry-period=200ms",
	}, args...)...)
	s.Cleanup(func() {
		for _, name := range []string{schedulerLease, controllersLease} {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
			s.must(client.IgnoreNotFound(kube.Delete(context.Background(), lease)))
		}
	})
	if !slices.Contains(args, withoutControllers) {
		s.awaitServing(p, func() (int, error) { return get(p.probesURL+"/readyz", "") })
		s.awaitHeld("default", controllersLease)
	}
	if !slices.Contains(args, withoutScheduler) {
		s.awaitServing(p, func() (int, error) { return get(p.schedulerURL+"/readyz", "") })
		s.awaitHeld("default", schedulerLease)
	}
	return p
}

// The flags that leave one half out.
const (
	withoutControllers = "--controllers="
	withoutScheduler   = "--scheduler=false"
)

// What one half does shows that it runs, what the other would have done that it does not: a gang is
// bound without its status being kept, or its members are counted without being bound.
func TestEitherHalfRunsAlone(t *testing.T) {
	pauseScheduler(t)
	t.Run("scheduler", func(t *testing.T) {
		s := newScene(t)
		p := startDeployed(s, withoutControllers)
		s.nodes(2, controlplane.NodeShape{})
		s.group("gang", 2)
		s.create(s.members("gang", 2, 8)...)
		s.awaitBound("gang", 2)
		if holder := s.holder("default", controllersLease); holder != "" {
			t.Errorf("controllers run: %s holds their lease", holder)
		}
		p.signal(syscall.SIGTERM)
		if code := p.exited(); code != 0 {
			t.Errorf("exit code %d after SIGTERM, want 0", code)
		}
		if group := s.podGroup("gang"); group.Status.Phase != "" {
			t.Errorf("without controllers the PodGroup has phase %q", group.Status.Phase)
		}
	})
	t.Run("controllers", func(t *testing.T) {
		s := newScene(t)
		p := startDeployed(s, withoutScheduler)
		s.nodes(2, controlplane.NodeShape{})
		s.group("gang", 2)
		s.create(s.members("gang", 2, 8)...)
		s.await("PodGroup gang", func() string {
			if s.podGroup("gang").Status.Phase == "" {
				return "has no phase"
			}
			return ""
		})
		if n := len(s.bound(s.namespace, "gang")); n != 0 {
			t.Errorf("without a scheduler %d members are bound", n)
		}
		if holder := s.holder("default", schedulerLease); holder != "" {
			t.Errorf("a scheduler runs: %s holds its lease", holder)
		}
		p.signal(syscall.SIGTERM)
		if code := p.exited(); code != 0 {
			t.Errorf("exit code %d after SIGTERM, want 0", code)
		}
	})
}

func (s *scene) podGroup(name string) *podgroups.PodGroup {
	s.Helper()
	group := &podgroups.PodGroup{}
	s.must(kube.Get(s.ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, group))
	return group
}

func TestSIGTERMEndsBothHalvesCleanly(t *testing.T) {
	pauseScheduler(t)
	s := newScene(t)
	p := startDeployed(s)
	p.signal(syscall.SIGTERM)
	if code := p.exited(); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0", code)
	}
	for _, lease := range []string{schedulerLease, controllersLease} {
		if holder := s.holder("default", lease); holder != "" {
			t.Errorf("lease %s is still held by %s: a successor would have to wait for it to expire", lease, holder)
		}
	}
}

func TestOneHalfDies(t *testing.T) {
	pauseScheduler(t)
	for _, lease := range []string{schedulerLease, controllersLease} {
		t.Run(lease, func(t *testing.T) {
			s := newScene(t)
			p := startDeployed(s)
			s.steal("default", lease)
			if code := p.exited(); code == 0 || code == -1 {
				t.Errorf("exit code %d after the lease was lost, want a failure", code)
			}
		})
	}
}

func TestStartWithoutAnAPIServerIsRefused(t *testing.T) {
	data, err := manifests.SchedulerConfig(func(config *configv1.KubeSchedulerConfiguration) {
		unreachable := &rest.Config{Host: "http://127.0.0.1:1"}
		kubeconfig, err := cluster.WriteKubeconfig("unreachable.kubeconfig", unreachable)
		if err != nil {
			t.Fatal(err)
		}
		config.ClientConnection.Kubeconfig = kubeconfig
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, cluster.Kubeconfig(), "--config="+file)
	if code := p.exited(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if !strings.Contains(p.log(), "ask the API server") {
		t.Errorf("the output does not say what is wrong:\n%s", p.log())
	}
}

// get asks without checking the certificate, which the process signed itself.
func get(url, token string) (int, error) {
	status, _, err := read(url, token)
	return status, err
}

// read is get, and returns the answer too.
func read(url, token string) (int, string, error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := insecureClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	body, readErr := io.ReadAll(response.Body)
	return response.StatusCode, string(body), errors.Join(readErr, response.Body.Close())
}

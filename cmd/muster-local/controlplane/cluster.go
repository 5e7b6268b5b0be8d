package controlplane

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

const (
	// readyTimeout bounds each wait of Start. Ready takes seconds; a loaded machine takes longer.
	readyTimeout = 2 * time.Minute
	pollInterval = 50 * time.Millisecond
)

// running is true while this process has a cluster.
var running atomic.Bool

// Cluster is a running control plane. Its methods may be called from several goroutines.
type Cluster struct {
	config Config
	dir    string
	log    *logSink
	ca     *authority

	rest       *rest.Config
	client     kubernetes.Interface
	kubeconfig string

	failed   chan error
	stopping atomic.Bool

	mu       sync.Mutex
	cleanups []func()
}

// Start starts a cluster and returns when its API server is ready, its controllers run and pods can be
// created in the default namespace. It has no nodes and no scheduler yet: see AddNodes, StartScheduler
// and StartDefaultScheduler.
//
// ctx bounds Start alone; the cluster runs until Stop. When Start fails it leaves nothing behind.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("invalid configuration: %w", err)
	}
	if !running.CompareAndSwap(false, true) {
		return nil, errors.New("another cluster runs in this process: feature gates and logging are process-wide, stop it first")
	}
	c := &Cluster{config: config, failed: make(chan error, 1)}
	c.onStop(func() { running.Store(false) })
	if err := c.start(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	c.config.progress("preparing keys and directories")
	for _, step := range []func() error{c.openDir, c.openLog, c.openKeys} {
		if err := step(); err != nil {
			return err
		}
	}

	c.config.progress("starting etcd")
	etcdURL, err := c.startEtcd(ctx)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	c.config.progress("starting kube-apiserver")
	if err := c.startAPIServer(ctx, etcdURL); err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	if err := c.installConfiguredCRDs(); err != nil {
		return err
	}
	c.config.progress("starting kube-controller-manager")
	if err := c.startControllerManager(ctx); err != nil {
		return fmt.Errorf("kube-controller-manager: %w", err)
	}
	if !c.config.DisableJobSet {
		c.config.progress("starting the JobSet controller")
		if err := c.startJobSet(ctx); err != nil {
			return fmt.Errorf("jobset: %w", err)
		}
	}
	c.config.progress("starting simulated kubelets")
	if err := c.startKwok(ctx); err != nil {
		return fmt.Errorf("kwok: %w", err)
	}
	return c.waitDefaultServiceAccount(ctx)
}

// openDir makes the data directory and keeps other processes out of it.
func (c *Cluster) openDir() error {
	c.dir = c.config.DataDir
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "muster-local-")
		if err != nil {
			return fmt.Errorf("temporary data directory: %w", err)
		}
		c.dir = dir
		c.onStop(func() { _ = os.RemoveAll(dir) })
		return nil
	}
	dir, err := filepath.Abs(c.dir)
	if err != nil {
		return fmt.Errorf("dataDir: %w", err)
	}
	c.dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("dataDir: %w", err)
	}
	lock, err := os.OpenFile(c.file("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("dataDir: %w", err)
	}
	// The kernel drops the lock with the process, so a killed cluster leaves no stale lock.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return fmt.Errorf("dataDir: %s is in use by another process", dir)
	}
	c.onStop(func() { _ = lock.Close() })
	return nil
}

func (c *Cluster) openLog() error {
	name := c.config.LogFile
	if name == "" {
		name = c.file("muster-local.log")
	}
	log, err := redirectLogs(name)
	if err != nil {
		return fmt.Errorf("logFile: %w", err)
	}
	c.log = log
	c.onStop(log.Close)
	return nil
}

func (c *Cluster) openKeys() error {
	var err error
	if c.ca, err = loadAuthority(c.dir); err != nil {
		return err
	}
	_, err = loadKey(c.file(serviceAccountKeyFile))
	return err
}

// openClient makes the administrator of a server: his kubeconfig and his client.
func (c *Cluster) openClient(server string) error {
	caPEM, err := cert.EncodeCertificates(c.ca.certificate)
	if err != nil {
		return err
	}
	certPEM, keyPEM, err := c.ca.issue(pkix.Name{CommonName: "muster-local-admin", Organization: []string{"system:masters"}})
	if err != nil {
		return err
	}
	c.rest = &rest.Config{
		Host:            server,
		TLSClientConfig: rest.TLSClientConfig{CAData: caPEM, CertData: certPEM, KeyData: keyPEM},
		QPS:             -1,
		WarningHandler:  rest.NoWarnings{},
	}
	if c.kubeconfig, err = c.WriteKubeconfig("kubeconfig", c.rest); err != nil {
		return err
	}
	c.client, err = kubernetes.NewForConfig(c.rest)
	return err
}

// waitDefaultServiceAccount waits until pods can be created: admission refuses them before their
// namespace's service account is there.
func (c *Cluster) waitDefaultServiceAccount(ctx context.Context) error {
	if !c.controllerEnabled(serviceAccountController) {
		return nil
	}
	return c.await(ctx, "service account default/default", func(ctx context.Context) (bool, error) {
		_, err := c.client.CoreV1().ServiceAccounts(corev1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, ignore(err, apierrors.IsNotFound)
	})
}

// REST returns a configuration of the cluster's administrator without client-side rate limit. The
// caller owns the copy.
func (c *Cluster) REST() *rest.Config { return rest.CopyConfig(c.rest) }

// Client returns a client of the cluster's administrator without client-side rate limit.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// LogFile returns the path of the file that the components log to.
func (c *Cluster) LogFile() string { return c.log.name }

// Failed delivers the first error of a component that ended without being asked to. The cluster is of
// no further use then, but must still be stopped.
func (c *Cluster) Failed() <-chan error { return c.failed }

// Stop stops every component, frees every port and removes the data directory if it is temporary. It
// returns when all of that is done; calling it again does nothing.
func (c *Cluster) Stop() {
	c.stopping.Store(true)
	c.mu.Lock()
	cleanups := c.cleanups
	c.cleanups = nil
	c.mu.Unlock()
	for _, cleanup := range slices.Backward(cleanups) {
		cleanup()
	}
}

// onStop registers what Stop must do; what was started last is stopped first.
func (c *Cluster) onStop(cleanup func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleanups = append(c.cleanups, cleanup)
}

// run runs a component until Stop, or the returned function, ends it. If it ends before, the cluster has
// failed.
func (c *Cluster) run(ctx context.Context, name string, component func(context.Context) error) (stop func()) {
	return c.watch(ctx, component, func(err error) { c.fail(fmt.Errorf("%s: %w", name, err)) })
}

// watch runs a component until Stop, or the returned function, ends it, and tells ended why if it ends
// before.
func (c *Cluster) watch(ctx context.Context, component func(context.Context) error, ended func(error)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := component(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("ended unexpectedly")
		}
		ended(err)
	}()
	stop = func() {
		cancel()
		<-done
	}
	c.onStop(stop)
	return stop
}

// fail reports that a component ended without being asked to. The first failure is the cause of the
// others.
func (c *Cluster) fail(err error) {
	if c.stopping.Load() {
		return
	}
	select {
	case c.failed <- err:
	default:
	}
}

// await polls a condition of the cluster, and gives up early when a component dies.
func (c *Cluster) await(ctx context.Context, what string, condition wait.ConditionWithContextFunc) error {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, readyTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-c.failed:
			c.failed <- err
			return false, err
		default:
			return condition(ctx)
		}
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

// file names a file of the data directory.
func (c *Cluster) file(name string) string { return filepath.Join(c.dir, name) }

// ignore turns an expected error into nil.
func ignore(err error, expected func(error) bool) error {
	if err != nil && expected(err) {
		return nil
	}
	return err
}

package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/configz"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"sigs.k8s.io/yaml"
)

// schedulerConfigz is the name under which every kube-scheduler publishes its configuration.
const schedulerConfigz = "componentconfig"

// probeTimeout bounds a single question whether a scheduler is ready.
const probeTimeout = 5 * time.Second

// SchedulerConfig says how a scheduler is started.
type SchedulerConfig struct {
	// REST is who the scheduler is: see ServiceAccountREST. Nil means the cluster's administrator.
	REST *rest.Config

	// Configuration is a KubeSchedulerConfiguration in YAML; empty means the default one. Its client
	// connection and leader election are overwritten.
	Configuration []byte

	// Args are further command line flags.
	Args []string
}

// Scheduler is a running scheduler.
type Scheduler struct {
	once sync.Once
	stop func()
}

// Stop stops the scheduler and returns when it has ended; another one may be started then. Calling it
// again does nothing. The cluster's Stop includes it.
func (s *Scheduler) Stop() { s.once.Do(s.stop) }

// StartDefaultScheduler starts kube-scheduler as Kubernetes ships it and returns when it is ready.
func (c *Cluster) StartDefaultScheduler(ctx context.Context, config SchedulerConfig) (*Scheduler, error) {
	const name = "kube-scheduler"
	files, err := c.writeSchedulerFiles(name, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	opts := options.NewOptions()
	if err := parse(*opts.Flags, files.args, config.Args); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	// The registry of informer names is process-wide and a scheduler does not give its name back.
	informers, err := cache.NewInformerName(name)
	if err != nil {
		return nil, err
	}
	opts.InformerName = informers

	// Setup starts goroutines that must live as long as the scheduler.
	setupCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	release := func() {
		cancel()
		informers.Release()
		configz.Delete(schedulerConfigz)
	}
	completed, instance, err := scheduler.Setup(setupCtx, opts)
	if err != nil {
		release()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	run := func(ctx context.Context) error { return scheduler.Run(ctx, completed, instance) }
	return c.runScheduler(ctx, name, run, release, files.ready)
}

// runScheduler runs a scheduler and waits until all probes succeed. What ends it before that is the
// caller's error; what ends it later is a failure of the cluster.
func (c *Cluster) runScheduler(ctx context.Context, name string, run func(context.Context) error, release func(), probes ...string) (*Scheduler, error) {
	var ready atomic.Bool
	early := make(chan error, 1)
	stop := c.watch(ctx, run, func(err error) {
		err = fmt.Errorf("%s: %w", name, err)
		if ready.Load() {
			c.fail(err)
		} else {
			early <- err
		}
	})
	s := &Scheduler{stop: func() {
		stop()
		release()
	}}
	c.onStop(s.Stop)
	trusted := x509.NewCertPool()
	trusted.AddCert(c.ca.certificate)
	client := &http.Client{
		// A scheduler that failed to start can leave a port on which nobody answers.
		Timeout: probeTimeout,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{RootCAs: trusted},
		},
	}
	err := c.await(ctx, name, func(ctx context.Context) (bool, error) {
		select {
		case err := <-early:
			return false, err
		default:
		}
		for _, url := range probes {
			if !probe(ctx, client, url) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		s.Stop()
		return nil, err
	}
	ready.Store(true)
	return s, nil
}

// probe is true if a URL answers with success.
func probe(ctx context.Context, client *http.Client, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// schedulerFiles are the flags that make a scheduler read its files, and where it then says that it is
// ready.
type schedulerFiles struct {
	args  []string
	ready string
}

func (c *Cluster) writeSchedulerFiles(name string, config SchedulerConfig) (*schedulerFiles, error) {
	who := config.REST
	if who == nil {
		who = c.rest
	}
	kubeconfig, err := c.WriteKubeconfig(name+".kubeconfig", who)
	if err != nil {
		return nil, err
	}
	content, err := localSchedulerConfig(config.Configuration, kubeconfig)
	if err != nil {
		return nil, err
	}
	file := c.file(name + ".yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return nil, err
	}
	certFile, keyFile, err := c.ca.issueFiles(c.dir, name, pkix.Name{CommonName: name}, loopback)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return &schedulerFiles{
		args: []string{
			"--config=" + file,
			"--bind-address=" + loopback,
			"--secure-port=" + strconv.Itoa(port),
			"--tls-cert-file=" + certFile,
			"--tls-private-key-file=" + keyFile,
		},
		ready: fmt.Sprintf("https://%s:%d/readyz", loopback, port),
	}, nil
}

// parse parses flags, of which later ones win.
func parse(sets cliflag.NamedFlagSets, args ...[]string) error {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		flags.AddFlagSet(set)
	}
	return flags.Parse(slices.Concat(args...))
}

// localSchedulerConfig adapts a KubeSchedulerConfiguration to this process. It works on the document,
// not on the type, so that the scheduler itself still judges every field.
func localSchedulerConfig(content []byte, kubeconfig string) ([]byte, error) {
	document := map[string]any{}
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if len(document) == 0 {
		document["apiVersion"], document["kind"] = "kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration"
	}
	for _, field := range []struct {
		value any
		path  []string
	}{
		{false, []string{"leaderElection", "leaderElect"}},
		{kubeconfig, []string{"clientConnection", "kubeconfig"}},
		// The API server is in this process; waiting for tokens would only distort measurements.
		{int64(1000), []string{"clientConnection", "qps"}},
		{int64(2000), []string{"clientConnection", "burst"}},
	} {
		if err := unstructured.SetNestedField(document, field.value, field.path...); err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
	}
	return yaml.Marshal(document)
}

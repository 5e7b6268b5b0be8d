package controlplane

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/configz"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"sigs.k8s.io/yaml"
)

// schedulerConfigz is the name under which every kube-scheduler publishes its configuration.
const schedulerConfigz = "componentconfig"

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

// StartDefaultScheduler starts kube-scheduler as Kubernetes ships it.
func (c *Cluster) StartDefaultScheduler(ctx context.Context, config SchedulerConfig) (*Scheduler, error) {
	args, err := c.schedulerArgs("kube-scheduler", config)
	if err != nil {
		return nil, fmt.Errorf("kube-scheduler: %w", err)
	}
	opts := options.NewOptions()
	flags := pflag.NewFlagSet("kube-scheduler", pflag.ContinueOnError)
	for _, set := range opts.Flags.FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return nil, fmt.Errorf("kube-scheduler: %w", err)
	}
	// The registry of informer names is process-wide and a scheduler does not give its name back.
	name, err := cache.NewInformerName("muster-local-kube-scheduler")
	if err != nil {
		return nil, err
	}
	opts.InformerName = name

	// Setup starts goroutines that must live as long as the scheduler.
	setupCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	completed, instance, err := scheduler.Setup(setupCtx, opts)
	if err != nil {
		cancel()
		name.Release()
		return nil, fmt.Errorf("kube-scheduler: %w", err)
	}
	configz.Delete(schedulerConfigz)
	stop := c.run(ctx, "kube-scheduler", func(ctx context.Context) error { return scheduler.Run(ctx, completed, instance) })
	s := &Scheduler{stop: func() {
		stop()
		cancel()
		name.Release()
	}}
	c.onStop(s.Stop)
	return s, nil
}

// schedulerArgs writes the files that a scheduler reads and returns its flags.
func (c *Cluster) schedulerArgs(name string, config SchedulerConfig) ([]string, error) {
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
	return append([]string{"--config=" + file, "--secure-port=0"}, config.Args...), nil
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

package app

import (
	"context"
	"fmt"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/rest"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	basecompatibility "k8s.io/component-base/compatibility"
	componentbaseconfig "k8s.io/component-base/config"
	"k8s.io/component-base/configz"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	schedapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedserverconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	schedoptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/muster-sched/muster/plugins/coscheduling"
)

// schedulerConfigz is the process-wide name under which kube-scheduler publishes its configuration.
const schedulerConfigz = "componentconfig"

// Run runs what the options ask for until ctx is done, and returns nil if both halves then stopped
// cleanly. It returns an error if an option or the scheduler's configuration is wrong, if the
// cluster lacks a resource that a half needs, or if one half ends while it should run.
//
// With the scheduler's leader election on, Run ends the process with exit code 0 when ctx is done,
// as kube-scheduler does, and after an error the scheduler may still be running: the caller must
// end the process. Without it Run returns only when everything has stopped, and may be called again.
func Run(ctx context.Context, opts *Options) error {
	logger := klog.FromContext(ctx)
	if errs := opts.Validate(); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	registry := opts.Scheduler.ComponentGlobalsRegistry
	if err := registry.SetFallback(); err != nil {
		return err
	}
	gates := registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	configuration, err := opts.configuration(logger)
	if err != nil {
		return err
	}
	needs := opts.Controllers.requirements()
	if opts.RunScheduler {
		if configuration != nil {
			if err := checkGenerators(configuration.Profiles); err != nil {
				return fmt.Errorf("--config: %w", err)
			}
		}
		needs = append(schedulerRequirements(gates), needs...)
	}
	restConfig, err := opts.restConfig(configuration)
	if err != nil {
		return err
	}
	// To write the effective configuration needs no cluster.
	if opts.Scheduler.WriteConfigTo == "" {
		if err := checkServed(ctx, restConfig, needs); err != nil {
			return err
		}
	}

	// What the scheduler starts while it is set up must live as long as the scheduler, which outlives
	// ctx by the time that the controllers need to stop.
	setupCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var scheduler *schedulerHalf
	if opts.RunScheduler {
		if scheduler, err = setupScheduler(setupCtx, opts.Scheduler, gates); err != nil {
			return err
		}
		defer func() {
			cancel()
			scheduler.release()
		}()
	}

	// The controllers come first, because the first is stopped first.
	var halves []half
	if len(opts.Controllers.Names) > 0 {
		mgr, err := newManager(klog.NewContext(setupCtx, logger.WithName("controllers")), restConfig, &opts.Controllers)
		if err != nil {
			return err
		}
		logger.Info("Starting controllers", "controllers", opts.Controllers.Names)
		halves = append(halves, half{name: "controllers", run: mgr.Start})
	}
	if scheduler != nil {
		halves = append(halves, half{name: "scheduler", run: scheduler.run, endsProcess: scheduler.config.LeaderElection != nil})
	}
	return runHalves(ctx, halves)
}

// schedulerHalf is a scheduler that is set up, and what must be given back after it.
type schedulerHalf struct {
	config       *schedserverconfig.CompletedConfig
	run          func(ctx context.Context) error
	informerName *clientcache.InformerName
}

// setupScheduler makes kube-scheduler with Muster's plugins from its flags and configuration file.
func setupScheduler(ctx context.Context, opts *schedoptions.Options, gates featuregate.FeatureGate) (*schedulerHalf, error) {
	informerName, err := clientcache.NewInformerName(Name)
	if err != nil {
		return nil, err
	}
	opts.InformerName = informerName
	config, scheduler, err := schedapp.Setup(ctx, opts, Plugins()...)
	if err != nil {
		informerName.Release()
		return nil, fmt.Errorf("scheduler: %w", err)
	}
	scheduler.FailureHandler = coscheduling.TellReasons(scheduler.FailureHandler)
	warnIfUnused(klog.FromContext(ctx), config.ComponentConfig.Profiles)
	warnIfPreempting(klog.FromContext(ctx), config.ComponentConfig.Profiles)
	warnIfLevelsDiffer(klog.FromContext(ctx), config.ComponentConfig.Profiles)
	warnIfNotNative(klog.FromContext(ctx), gates, config.ComponentConfig.Profiles)
	return &schedulerHalf{
		config:       config,
		informerName: informerName,
		run: func(ctx context.Context) error {
			err := schedapp.Run(ctx, config, scheduler)
			if ctx.Err() != nil {
				// kube-scheduler has no way to end without an error.
				return nil
			}
			return err
		},
	}, nil
}

// release waits for the scheduler's informers and frees the names that are unique in a process.
func (s *schedulerHalf) release() {
	if s.config.LeaderElection != nil {
		// The process ends, and the scheduler may still be running.
		return
	}
	if s.config.SecureServing != nil {
		// Closed already if the scheduler ran.
		_ = s.config.SecureServing.Listener.Close()
	}
	s.config.InformerFactory.Shutdown()
	s.config.DynInformerFactory.Shutdown()
	s.informerName.Release()
	configz.Delete(schedulerConfigz)
}

// configuration returns what the scheduler's --config file says, nil without one.
func (o *Options) configuration(logger klog.Logger) (*schedconfig.KubeSchedulerConfiguration, error) {
	file := o.Scheduler.ConfigFile
	if file == "" {
		return nil, nil
	}
	config, err := schedoptions.LoadConfigFromFile(logger, file)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	return config, nil
}

// restConfig returns the connection to the API server that the scheduler's options describe, for
// what is not the scheduler itself.
func (o *Options) restConfig(configuration *schedconfig.KubeSchedulerConfiguration) (*rest.Config, error) {
	connection := componentbaseconfig.ClientConnectionConfiguration{
		Kubeconfig: o.Scheduler.Deprecated.Kubeconfig,
		QPS:        o.Scheduler.Deprecated.QPS,
		Burst:      o.Scheduler.Deprecated.Burst,
	}
	if configuration != nil {
		connection = configuration.ClientConnection
	}
	restConfig, err := clientcmd.BuildConfigFromFlags(o.Scheduler.Master, connection.Kubeconfig)
	if err != nil {
		return nil, err
	}
	restConfig.QPS, restConfig.Burst = connection.QPS, int(connection.Burst)
	return rest.AddUserAgent(restConfig, "controllers"), nil
}

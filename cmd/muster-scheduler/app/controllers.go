package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	podgroupv1alpha1 "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	podgroupcontroller "github.com/muster-sched/muster/podgroup/controller"
	"github.com/muster-sched/muster/trainer"
	trainerv1alpha1 "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

const (
	podGroupName = "podgroup"
	trainerName  = "trainer"

	// shutdownGrace is how long reconciles in flight may take when the process is asked to end; a
	// pod has 30 seconds, and the scheduler stops after the controllers.
	shutdownGrace = 15 * time.Second

	// skipNameValidation lets a process run one manager after another: the check that no two
	// controllers have one name knows only the process.
	skipNameValidation = true

	// cacheSyncProbe is how long one readiness probe waits for the caches, less than a kubelet does.
	cacheSyncProbe = 500 * time.Millisecond
)

// controller is one of the controllers that --controllers names.
type controller struct {
	name        string
	addToScheme func(*runtime.Scheme) error
	cache       func() map[client.Object]cache.ByObject
	resources   []schema.GroupVersionResource
	setup       func(ctx context.Context, mgr manager.Manager, opts *ControllerOptions) error
}

// controllers returns all controllers, in the order in which they are set up.
func controllers() []controller {
	podGroups := podgroupv1alpha1.GroupVersion.WithResource("podgroups")
	return []controller{
		{
			name:        podGroupName,
			addToScheme: podgroupv1alpha1.AddToScheme,
			resources:   []schema.GroupVersionResource{podGroups},
			setup: func(_ context.Context, mgr manager.Manager, opts *ControllerOptions) error {
				options := podgroupcontroller.Options{AdoptGroups: opts.PodGroupAdopt, Rendezvous: opts.Rendezvous}
				if opts.PodGroupTTL > 0 {
					options.TTLAfterFinished = &opts.PodGroupTTL
				}
				return podgroupcontroller.SetupWithManager(mgr, options)
			},
		},
		{
			name:        trainerName,
			addToScheme: trainer.AddToScheme,
			cache:       trainer.CacheByObject,
			resources: []schema.GroupVersionResource{
				trainerv1alpha1.GroupVersion.WithResource("trainjobs"),
				trainerv1alpha1.GroupVersion.WithResource("trainingruntimes"),
				trainerv1alpha1.GroupVersion.WithResource("clustertrainingruntimes"),
				jobsetv1alpha2.GroupVersion.WithResource("jobsets"),
				podGroups,
			},
			setup: func(ctx context.Context, mgr manager.Manager, opts *ControllerOptions) error {
				return trainer.SetupWithManager(ctx, mgr, trainer.Options{
					SchedulerName:           opts.TrainerSchedulerName,
					MaxConcurrentReconciles: opts.TrainerConcurrency,
					Webhooks:                opts.webhooks(),
					StatusServer:            opts.statusServer(),
					SkipNameValidation:      skipNameValidation,
				})
			},
		},
	}
}

func controllerNames() []string {
	var names []string
	for _, c := range controllers() {
		names = append(names, c.name)
	}
	return names
}

// enabled returns the controllers that the options name, in the order of controllers.
func (o *ControllerOptions) enabled() []controller {
	return slices.DeleteFunc(controllers(), func(c controller) bool { return !slices.Contains(o.Names, c.name) })
}

// requirements returns the custom resources that the enabled controllers watch.
func (o *ControllerOptions) requirements() []requirement {
	var needs []requirement
	for _, c := range o.enabled() {
		for _, resource := range c.resources {
			needs = append(needs, requirement{
				resource: resource,
				neededBy: "controller " + c.name,
				remedy:   "install the CustomResourceDefinition " + resource.GroupResource().String() + ", or leave the controller out of --controllers",
			})
		}
	}
	return needs
}

// newManager returns a manager that has all enabled controllers and is not started.
func newManager(ctx context.Context, restConfig *rest.Config, opts *ControllerOptions) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	caches := cache.Options{DefaultTransform: trainer.KeepOwnManagedFields, ByObject: map[client.Object]cache.ByObject{}}
	for _, c := range opts.enabled() {
		if err := c.addToScheme(scheme); err != nil {
			return nil, fmt.Errorf("controller %s: %w", c.name, err)
		}
		if c.cache != nil {
			maps.Copy(caches.ByObject, c.cache())
		}
	}
	server, err := webhookServer(opts)
	if err != nil {
		return nil, err
	}
	election := &opts.LeaderElection
	mgr, err := manager.New(restConfig, manager.Options{
		Scheme: scheme,
		Logger: klog.FromContext(ctx),
		Cache:  caches,
		Metrics: metricsserver.Options{
			BindAddress:    opts.MetricsBindAddress,
			SecureServing:  true,
			FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
		WebhookServer:                 server,
		HealthProbeBindAddress:        opts.HealthProbeBindAddress,
		LeaderElection:                election.LeaderElect,
		LeaderElectionID:              election.ResourceName,
		LeaderElectionNamespace:       election.ResourceNamespace,
		LeaderElectionResourceLock:    election.ResourceLock,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &election.LeaseDuration.Duration,
		RenewDeadline:                 &election.RenewDeadline.Duration,
		RetryPeriod:                   &election.RetryPeriod.Duration,
		GracefulShutdownTimeout:       ptr.To(shutdownGrace),
		Controller:                    config.Controller{SkipNameValidation: ptr.To(skipNameValidation)},
	})
	if err != nil {
		return nil, err
	}
	for _, c := range opts.enabled() {
		if err := c.setup(ctx, mgr, opts); err != nil {
			return nil, fmt.Errorf("controller %s: %w", c.name, err)
		}
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	if err := mgr.AddReadyzCheck("caches", cachesSynced(mgr.GetCache())); err != nil {
		return nil, err
	}
	return mgr, nil
}

// cachesSynced is a probe that fails until the controllers have seen the whole cluster once.
func cachesSynced(caches cache.Cache) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), cacheSyncProbe)
		defer cancel()
		if !caches.WaitForCacheSync(ctx) {
			return errors.New("caches are not synced")
		}
		return nil
	}
}

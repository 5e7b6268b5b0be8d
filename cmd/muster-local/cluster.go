package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	muster "github.com/muster-sched/muster/cmd/muster-scheduler/app"
	"github.com/muster-sched/muster/manifests"
	"github.com/muster-sched/muster/plugins/coscheduling"
	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/gputopology"
)

// The schedulers that --scheduler knows.
const (
	schedulerMuster  = "muster"
	schedulerDefault = "default"
	schedulerNone    = "none"
)

// options is what the command line says about the cluster.
type options struct {
	config    controlplane.Config
	shape     controlplane.NodeShape
	topology  string
	scheduler string
}

func (o *options) validate() error {
	var errs []error
	if o.shape.Count < 0 {
		errs = append(errs, fmt.Errorf("--nodes: must not be negative, is %d", o.shape.Count))
	}
	if o.shape.GPUs < 0 {
		errs = append(errs, fmt.Errorf("--gpus-per-node: must not be negative, is %d", o.shape.GPUs))
	}
	levels, err := controlplane.ParseTopology(o.topology)
	if err != nil {
		errs = append(errs, fmt.Errorf("--topology: %w", err))
	}
	for _, level := range levels {
		if o.shape.Count > 0 && level.Domains > o.shape.Count {
			errs = append(errs, fmt.Errorf("--topology: level %s: %d domains are more than the %d nodes", level.Label, level.Domains, o.shape.Count))
		}
	}
	o.shape.Topology = levels
	if known := []string{schedulerMuster, schedulerDefault, schedulerNone}; !slices.Contains(known, o.scheduler) {
		errs = append(errs, fmt.Errorf("--scheduler: %q is not one of %s", o.scheduler, strings.Join(known, ", ")))
	}
	return errors.Join(errs...)
}

// startCluster starts the control plane with Muster's custom resources and the nodes. The caller stops
// it.
func startCluster(ctx context.Context, o *options) (*controlplane.Cluster, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	crds, err := manifests.CRDs()
	if err != nil {
		return nil, err
	}
	o.config.CRDs = crds
	cluster, err := controlplane.Start(ctx, o.config)
	if err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context, *controlplane.Cluster, *options) error{installRuntimes, addNodes} {
		if err := step(ctx, cluster, o); err != nil {
			cluster.Stop()
			return nil, err
		}
	}
	return cluster, nil
}

// installRuntimes applies the training runtimes that Muster ships.
func installRuntimes(ctx context.Context, cluster *controlplane.Cluster, _ *options) error {
	runtimes, err := manifests.Runtimes()
	if err != nil {
		return err
	}
	cl, err := client.New(cluster.REST(), client.Options{})
	if err != nil {
		return err
	}
	for _, r := range runtimes {
		if err := cl.Apply(ctx, client.ApplyConfigurationFromUnstructured(r), client.ForceOwnership, client.FieldOwner("muster-local")); err != nil {
			return fmt.Errorf("install training runtime %s: %w", r.GetName(), err)
		}
	}
	return nil
}

// addNodes adds the nodes to a cluster that has none: a kept data directory has its own.
func addNodes(ctx context.Context, cluster *controlplane.Cluster, o *options) error {
	existing, err := cluster.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if o.shape.Count > 0 && len(existing.Items) == 0 {
		o.config.Progress(fmt.Sprintf("adding %d nodes with %d GPUs each", o.shape.Count, o.shape.GPUs))
		if _, err := cluster.AddNodes(ctx, o.shape); err != nil {
			return fmt.Errorf("add nodes: %w", err)
		}
	}
	return cluster.WaitNodesReady(ctx)
}

// startScheduler starts a scheduler by the name that --scheduler has for it. Muster's controllers come
// with every scheduler, so that TrainJobs work, and none means none of either: the place for a
// muster-scheduler that runs elsewhere.
func (o *options) startScheduler(ctx context.Context, cluster *controlplane.Cluster, name string) (stop func(), err error) {
	switch name {
	case schedulerMuster:
		return o.startMuster(ctx, cluster)
	case schedulerDefault:
		return startDefault(ctx, cluster)
	default:
		return func() {}, nil
	}
}

// startMuster runs Muster as the only scheduler: it also serves pods that name none.
func (o *options) startMuster(ctx context.Context, cluster *controlplane.Cluster) (stop func(), err error) {
	configuration, err := manifests.SchedulerConfig(o.fitLocally)
	if err != nil {
		return nil, err
	}
	scheduler, err := cluster.StartScheduler(ctx, controlplane.SchedulerConfig{
		Configuration: configuration,
		Args:          []string{"--trainer-scheduler-name=" + muster.Name},
	})
	if err != nil {
		return nil, err
	}
	return scheduler.Stop, nil
}

// startDefault runs the default scheduler, and Muster's controllers for the sake of TrainJobs.
func startDefault(ctx context.Context, cluster *controlplane.Cluster) (stop func(), err error) {
	controllers, err := cluster.StartScheduler(ctx, controlplane.SchedulerConfig{Args: []string{"--scheduler=false"}})
	if err != nil {
		return nil, err
	}
	scheduler, err := cluster.StartDefaultScheduler(ctx, controlplane.SchedulerConfig{})
	if err != nil {
		controllers.Stop()
		return nil, err
	}
	return func() {
		scheduler.Stop()
		controllers.Stop()
	}, nil
}

// fitLocally tells Muster's plugins the levels of the simulated network, and adds a profile like the
// first for pods of the default scheduler.
func (o *options) fitLocally(config *configv1.KubeSchedulerConfiguration) {
	profile := &config.Profiles[0]
	if args := o.levelArgs(); args != nil {
		for _, plugin := range []string{coscheduling.Name, gputopology.Name} {
			profile.PluginConfig = append(profile.PluginConfig, configv1.PluginConfig{Name: plugin, Args: runtime.RawExtension{Raw: args}})
		}
	}
	other := *profile.DeepCopy()
	other.SchedulerName = ptr.To(corev1.DefaultSchedulerName)
	config.Profiles = append(config.Profiles, other)
}

// levelArgs are the arguments that name the levels of the nodes' topology, nil if there are none.
func (o *options) levelArgs() []byte {
	if len(o.shape.Topology) == 0 {
		return nil
	}
	var args gangplan.LevelArgs
	for _, level := range o.shape.Topology {
		args.TopologyLevels = append(args.TopologyLevels, level.Label)
	}
	raw, err := json.Marshal(args)
	if err != nil {
		panic(fmt.Sprintf("marshalling strings: %v", err))
	}
	return raw
}

// Package integration runs Muster's scheduler and controllers against a real API server, etcd and
// controller manager. Nodes and the running of pods are simulated; decisions are not.
package integration

import (
	"context"
	"fmt"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	"github.com/muster-sched/muster/cmd/muster-scheduler/app"
	"github.com/muster-sched/muster/manifests"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// asScheduler makes this binary run as muster-scheduler, for tests that need a process to kill.
const asScheduler = "MUSTER_TEST_AS_SCHEDULER"

// The cluster that all tests share, one after another, and a client of its administrator.
var (
	cluster   *controlplane.Cluster
	kube      client.Client
	scheduler *controlplane.Scheduler
)

func TestMain(m *testing.M) {
	if os.Getenv(asScheduler) != "" {
		cmd := app.NewCommand()
		cmd.SetArgs(os.Args[1:])
		if err := cmd.Execute(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	crds, err := manifests.CRDs()
	if err != nil {
		return fail(err)
	}
	config := controlplane.Config{CRDs: append(crds, volcanoCRD()), LogFile: os.Getenv("MUSTER_TEST_LOG")}
	native := os.Getenv(withNativeGangs) != ""
	if native {
		config.FeatureGates = map[string]bool{"GenericWorkload": true}
		config.RuntimeConfig = map[string]bool{"scheduling.k8s.io/v1beta1": true}
	}
	if os.Getenv(inNativeMode) != "" {
		config.FeatureGates = map[string]bool{"GenericWorkload": true, "TopologyAwareWorkloadScheduling": true}
		config.RuntimeConfig = map[string]bool{"scheduling.k8s.io/v1beta1": true}
	}
	cluster, err = controlplane.Start(ctx, config)
	if err != nil {
		return fail(err)
	}
	defer cluster.Stop()
	if kube, err = newClient(); err != nil {
		return fail(err)
	}
	if native {
		err = startNativeScheduler(ctx)
	} else {
		scheduler, err = startScheduler(ctx)
	}
	if err != nil {
		return fail(err)
	}
	return m.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func newClient() (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, podgroups.AddToScheme, jobset.AddToScheme, trainer.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return client.New(cluster.REST(), client.Options{Scheme: scheme})
}

// startScheduler starts both halves of muster-scheduler as they are deployed.
func startScheduler(ctx context.Context) (*controlplane.Scheduler, error) {
	return startSchedulerWith(ctx, nil)
}

// startSchedulerWith starts them with another configuration, and more arguments.
func startSchedulerWith(ctx context.Context, mutate func(*configv1.KubeSchedulerConfiguration), args ...string) (*controlplane.Scheduler, error) {
	config, err := manifests.SchedulerConfig(mutate)
	if err != nil {
		return nil, err
	}
	return cluster.StartScheduler(ctx, controlplane.SchedulerConfig{
		Configuration: config,
		Args:          append([]string{"--v=2", "--trainer-scheduler-name=" + schedulerName}, args...),
	})
}

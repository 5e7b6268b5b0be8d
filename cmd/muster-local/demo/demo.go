package demo

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// Scheduler starts what schedules, and the controllers that turn TrainJobs into pods, and returns how
// to stop them.
type Scheduler func(ctx context.Context) (stop func(), err error)

// Run performs the demo on a cluster with the nodes that the constants of this package name, and prints
// a summary. It fails if the jobs are not all done under Muster; what the default scheduler makes of
// them is only reported.
func Run(ctx context.Context, cluster *controlplane.Cluster, screen *Screen, muster, standard Scheduler) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, podgroup.AddToScheme, trainer.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	cl, err := client.New(cluster.REST(), client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	if err := installRuntime(ctx, cl); err != nil {
		return err
	}
	nodes, err := mapNodes(ctx, cluster)
	if err != nil {
		return err
	}
	screen.Say("")
	screen.Say("On the maps a letter is a GPU of the job with that initial, in lower case while the job lacks")
	screen.Say("pods and cannot run; %s is a free GPU.", freeGPU)
	perform := func(title, namespace string, start Scheduler) (*outcome, error) {
		screen.Say("")
		screen.Say("%s", screen.paint(bold, title))
		stop, err := start(ctx)
		if err != nil {
			return nil, err
		}
		defer stop()
		a := &act{screen: screen, kube: cluster.Client(), client: cl, namespace: namespace, nodes: nodes, failed: cluster.Failed()}
		return a.perform(ctx)
	}
	first, err := perform("With Muster", "with-muster", muster)
	if err != nil {
		return fmt.Errorf("with Muster: %w", err)
	}
	second, err := perform("The same jobs with the default scheduler", "with-default", standard)
	if err != nil {
		return fmt.Errorf("with the default scheduler: %w", err)
	}
	screen.Say("")
	screen.lines(summarize(first, second)...)
	if first.stuck {
		return errors.New("not all jobs were done under Muster")
	}
	return nil
}

// installRuntime creates the training runtime, or gives an existing one of the name the gang policy.
func installRuntime(ctx context.Context, cl client.Client) error {
	want := trainingRuntime()
	got := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: want.Name}}
	if _, err := controllerutil.CreateOrUpdate(ctx, cl, got, func() error {
		got.Spec = want.Spec
		return nil
	}); err != nil {
		return fmt.Errorf("install training runtime %s: %w", want.Name, err)
	}
	return nil
}

// mapNodes returns the cluster's nodes by rack and name.
func mapNodes(ctx context.Context, cluster *controlplane.Cluster) ([]mapNode, error) {
	list, err := cluster.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	nodes := make([]mapNode, 0, len(list.Items))
	for _, node := range list.Items {
		gpus := node.Status.Allocatable[controlplane.GPUResource]
		nodes = append(nodes, mapNode{name: node.Name, rack: node.Labels[controlplane.RackLabel], gpus: int(gpus.Value())})
	}
	sortNodes(nodes)
	return nodes, nil
}

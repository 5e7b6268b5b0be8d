package perf

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/muster-sched/muster/hack/bench/workload"
	"github.com/muster-sched/muster/manifests"
)

// creators is how many objects are created at a time before the gangs come.
const creators = 32

// run is what this process measures.
type run struct {
	workload.Run
	config   string
	observer *observer
}

func readRun(folder string) (*run, error) {
	data, err := os.ReadFile(filepath.Join(folder, workload.RunFile))
	if err != nil {
		return nil, fmt.Errorf("-bench-folder: %w", err)
	}
	r := &run{config: filepath.Join(folder, "performance-config.yaml")}
	return r, json.Unmarshal(data, &r.Run)
}

// withCRD installs the PodGroup CRD before a plugin is made that needs it: scheduler_perf starts the scheduler
// right after the API server.
func (r *run) withCRD(factory frameworkruntime.PluginFactory) frameworkruntime.PluginFactory {
	return func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		crds, err := manifests.CRDs()
		if err != nil {
			return nil, err
		}
		if _, err := envtest.InstallCRDs(h.KubeConfig(), envtest.CRDInstallOptions{CRDs: crds}); err != nil {
			return nil, err
		}
		return factory(ctx, args, h)
	}
}

// nodesAreThere makes what must be there before the gangs come, and starts to observe.
func (r *run) nodesAreThere(tCtx ktesting.TContext, _ *scheduler.Scheduler, _ *perf.Workload, nodes *corev1.NodeList) error {
	if r.Case.Filled {
		if err := each(tCtx, len(nodes.Items), func(i int) error {
			_, err := tCtx.Client().CoreV1().Pods(workload.Namespace).Create(tCtx, filler(i, nodes.Items[i].Name), metav1.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	for _, kind := range r.Kinds() {
		if err := each(tCtx, kind.Count, func(i int) error { return createGroup(tCtx, kind, i) }); err != nil {
			return err
		}
	}
	var err error
	r.observer, err = observe(tCtx, r.Run)
	return err
}

// each calls do for 0 to n-1, several at a time, and returns one of the errors.
func each(ctx context.Context, n int, do func(i int) error) error {
	failures := make(chan error, n)
	workqueue.ParallelizeUntil(ctx, creators, n, func(i int) {
		if err := do(i); err != nil && !apierrors.IsAlreadyExists(err) {
			failures <- err
		}
	})
	close(failures)
	return <-failures
}

// filler is a pod that takes part of a node.
func filler(i int, node string) *corev1.Pod {
	gpus := resource.MustParse(fmt.Sprint(2 + 2*(i*7919%3)))
	requests := corev1.ResourceList{"nvidia.com/gpu": gpus}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("filler-%d", i)},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "pause", Image: "pause", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}},
		},
	}
}

func createGroup(tCtx ktesting.TContext, kind workload.Members, i int) error {
	group := &unstructured.Unstructured{Object: map[string]any{}}
	group.SetName(kind.GroupName(i))
	resource := schema.GroupVersionResource{Resource: "podgroups"}
	switch kind.Scheduler.Dialect {
	case workload.Label:
		resource.Group, resource.Version = "scheduling.x-k8s.io", "v1alpha1"
		group.Object["spec"] = map[string]any{"minMember": int64(kind.Size), "scheduleTimeoutSeconds": int64(600)}
		if kind.Case.Topology {
			group.SetAnnotations(map[string]string{"muster.dev/required-topology": workload.RackLabel})
		}
	case workload.Native:
		resource.Group, resource.Version = "scheduling.k8s.io", "v1beta1"
		spec := map[string]any{"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(kind.Size)}}}
		if kind.Case.Topology {
			spec["schedulingConstraints"] = map[string]any{"topology": []any{map[string]any{"key": workload.RackLabel}}}
		}
		group.Object["spec"] = spec
	default:
		return nil
	}
	group.SetGroupVersionKind(resource.GroupVersion().WithKind("PodGroup"))
	_, err := tCtx.Dynamic().Resource(resource).Namespace(workload.Namespace).Create(tCtx, group, metav1.CreateOptions{})
	return err
}

// Package harness makes the cluster of a benchmark's case and observes what a scheduler does there, whatever version
// of Kubernetes scheduler_perf comes from.
package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/muster-sched/muster/hack/bench/workload"
)

const (
	// creators is how many objects are created at a time before the gangs come.
	creators = 32
	// fillers is the namespace of what runs from the start; in that of the gangs, scheduler_perf would count it.
	fillers = "fillers"
)

// Test is what is needed of scheduler_perf's test context, whose package differs from version to version.
type Test interface {
	context.Context
	Client() kubernetes.Interface
	Dynamic() dynamic.Interface
	RESTConfig() *rest.Config
	Cleanup(func())
	Errorf(format string, args ...any)
}

// ReadRun reads what a process is to measure.
func ReadRun(folder string) (workload.Run, error) {
	var r workload.Run
	data, err := os.ReadFile(filepath.Join(folder, workload.RunFile))
	if err != nil {
		return r, fmt.Errorf("-bench-folder: %w", err)
	}
	return r, json.Unmarshal(data, &r)
}

// Prepare makes all that is there before the gangs come, and starts to observe.
func Prepare(t Test, r workload.Run) error {
	// Those too who do not need them: what the API server spends on them is no scheduler's.
	if err := InstallCRDs(t, t.RESTConfig(), r); err != nil {
		return err
	}
	namespaces := []string{workload.Namespace, fillers}
	for _, kind := range r.Waiting() {
		namespaces = append(namespaces, kind.Namespace)
	}
	for _, name := range namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := t.Client().CoreV1().Namespaces().Create(t, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	if err := createNodes(t, r); err != nil {
		return err
	}
	var running []*corev1.Pod
	for i := r.Case.Empty; i < r.Case.Nodes; i++ {
		running = append(running, fill(r.Case.Filling, i)...)
	}
	if err := each(t, len(running), func(i int) error {
		_, err := t.Client().CoreV1().Pods(fillers).Create(t, running[i], metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	for _, kind := range slices.Concat(r.Waiting(), r.Kinds()) {
		if err := each(t, kind.Count, func(i int) error { return createGroup(t, kind, i) }); err != nil {
			return err
		}
	}
	return observe(t, r)
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

// createNodes creates the nodes.
func createNodes(t Test, r workload.Run) error {
	node, err := nodeTemplate(r)
	if err != nil {
		return err
	}
	return each(t, r.Case.Nodes, func(i int) error {
		n, err := node(i)
		if err != nil {
			return err
		}
		_, err = t.Client().CoreV1().Nodes().Create(t, n, metav1.CreateOptions{})
		return err
	})
}

// nodeTemplate returns what makes a node, by number, of the template in the run's folder.
func nodeTemplate(r workload.Run) (func(i int) (*corev1.Node, error), error) {
	functions := template.FuncMap{"DivideInt": func(a, b int) int { return a / b }}
	text, err := template.New("").Funcs(functions).ParseFiles(filepath.Join(r.Files, workload.NodeFile))
	if err != nil {
		return nil, err
	}
	return func(i int) (*corev1.Node, error) {
		var out bytes.Buffer
		if err := text.ExecuteTemplate(&out, workload.NodeFile, map[string]int{"Index": i}); err != nil {
			return nil, err
		}
		node := &corev1.Node{}
		return node, yaml.UnmarshalStrict(out.Bytes(), node)
	}, nil
}

// fill returns the pods that run on a node from the start.
func fill(filling workload.Filling, node int) []*corev1.Pod {
	switch {
	case filling == workload.Fragments:
		return []*corev1.Pod{filler(node, 0, 0, corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(int64(2+2*(node*7919%3)), resource.DecimalSI)})}
	case filling == workload.Victims && node >= workload.VictimNodes:
		return []*corev1.Pod{filler(node, 0, workload.OtherPriority, cpus(workload.OtherCPU))}
	case filling == workload.Victims:
		pods := make([]*corev1.Pod, workload.VictimsPerNode)
		for i := range pods {
			pods[i] = filler(node, i, 0, cpus(workload.VictimCPU))
		}
		return pods
	}
	return nil
}

func cpus(n int64) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(n, resource.DecimalSI)}
}

// filler is a bound pod that is gone as soon as it is deleted: there is no kubelet to wait for.
func filler(node, i int, priority int32, requests corev1.ResourceList) *corev1.Pod {
	var none int64
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("filler-%d-%d", node, i)},
		Spec: corev1.PodSpec{
			NodeName:                      "node-" + strconv.Itoa(node),
			Priority:                      &priority,
			TerminationGracePeriodSeconds: &none,
			Containers:                    []corev1.Container{{Name: "pause", Image: "pause", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}},
		},
	}
}

func createGroup(t Test, kind workload.Members, i int) error {
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
		if priority := kind.Case.Priority(); priority != 0 {
			spec["priority"] = int64(priority)
		}
		group.Object["spec"] = spec
	default:
		return nil
	}
	group.SetGroupVersionKind(resource.GroupVersion().WithKind("PodGroup"))
	_, err := t.Dynamic().Resource(resource).Namespace(kind.Namespace).Create(t, group, metav1.CreateOptions{})
	return err
}

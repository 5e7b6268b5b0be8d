// Command kueue records what Kueue sees of the TrainJobs of the conformance test.
//
//	cd hack/conformance/kueue && go run .
//
// Kueue does not look at the JobSet of a TrainJob: it computes one, with Kubeflow Trainer's library, before the
// TrainJob may start, and counts its pods. For each trainer/testdata/conformance/NAME.input.yaml, a runtime and a
// TrainJob, this writes the pods that Kueue would count to NAME.kueue.yaml: of each group the name, the number, and
// the fields of the pod template that say what a pod takes and where it may run.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	testingutil "github.com/kubeflow/trainer/v2/pkg/util/testing"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobs/trainjob"
	"sigs.k8s.io/yaml"
)

const (
	inputSuffix  = ".input.yaml"
	outputSuffix = ".kueue.yaml"
)

func main() {
	if err := run(context.Background(), filepath.Join("..", "..", "..", "trainer", "testdata", "conformance")); err != nil {
		fmt.Fprintln(os.Stderr, "kueue:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string) error {
	inputs, err := filepath.Glob(filepath.Join(dir, "*"+inputSuffix))
	if err != nil {
		return err
	}
	if len(inputs) == 0 {
		return fmt.Errorf("no inputs in %s: run it in hack/conformance/kueue", dir)
	}
	for _, input := range inputs {
		content, err := os.ReadFile(input)
		if err != nil {
			return err
		}
		seen, err := view(ctx, content)
		if err != nil {
			return fmt.Errorf("%s: %w", input, err)
		}
		if err := os.WriteFile(strings.TrimSuffix(input, inputSuffix)+outputSuffix, seen, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// podSet is a group of like pods.
type podSet struct {
	Name  string         `json:"name"`
	Count int32          `json:"count"`
	Spec  map[string]any `json:"spec"`
}

// view returns the pods that Kueue counts, as YAML.
func view(ctx context.Context, input []byte) ([]byte, error) {
	documents := bytes.Split(input, []byte("\n---\n"))
	if len(documents) != 2 {
		return nil, fmt.Errorf("has %d documents", len(documents))
	}
	// Not strictly: what the Trainer that Kueue is built with does not know, Kueue does not see.
	trainJob := &trainer.TrainJob{}
	runtime, err := runtimeOf(documents[0])
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(documents[1], trainJob); err != nil {
		return nil, err
	}
	builder := testingutil.NewClientBuilder(kueue.AddToScheme).WithObjects(runtime)
	indexer := testingutil.AsIndex(builder)
	if _, err := trainjob.NewReconciler(ctx, builder.Build(), indexer, nil); err != nil {
		return nil, err
	}
	podSets, err := (*trainjob.TrainJob)(trainJob).PodSets(ctx)
	if err != nil {
		return nil, err
	}
	var seen []podSet
	for _, p := range podSets {
		spec, err := counted(p.Template.Spec)
		if err != nil {
			return nil, err
		}
		seen = append(seen, podSet{Name: string(p.Name), Count: p.Count, Spec: spec})
	}
	return yaml.Marshal(seen)
}

// runtimeOf decodes a runtime of either kind, and gives it the number of Jobs that the API server gives it.
func runtimeOf(document []byte) (client.Object, error) {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return nil, err
	}
	var runtime client.Object
	var spec *trainer.TrainingRuntimeSpec
	if kind.Kind == trainer.ClusterTrainingRuntimeKind {
		cluster := &trainer.ClusterTrainingRuntime{}
		runtime, spec = cluster, &cluster.Spec
	} else {
		namespaced := &trainer.TrainingRuntime{}
		runtime, spec = namespaced, &namespaced.Spec
	}
	if err := yaml.Unmarshal(document, runtime); err != nil {
		return nil, err
	}
	jobs := spec.Template.Spec.ReplicatedJobs
	for i := range jobs {
		jobs[i].Replicas = max(jobs[i].Replicas, 1)
	}
	return runtime, nil
}

var (
	podFields = []string{
		"initContainers", "containers", "overhead", "resources", "resourceClaims", "nodeSelector", "affinity",
		"tolerations", "topologySpreadConstraints", "priorityClassName", "runtimeClassName", "schedulerName",
		"schedulingGates",
	}
	containerFields = []string{"name", "resources", "restartPolicy"}
)

// counted returns the fields of a pod's spec that say what it takes and where it may run.
func counted(spec any) (map[string]any, error) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	keep(fields, podFields)
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := fields[list].([]any)
		for _, container := range containers {
			keep(container.(map[string]any), containerFields)
		}
	}
	return fields, nil
}

func keep(fields map[string]any, names []string) {
	for name := range fields {
		if !slices.Contains(names, name) {
			delete(fields, name)
		}
	}
}

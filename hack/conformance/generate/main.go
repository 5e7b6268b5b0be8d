// Command generate records what Kubeflow Trainer makes of the inputs of the conformance test.
//
//	cd hack/conformance && go run ./generate
//
// For each NAME.input.yaml in trainer/testdata/conformance, and in volcano beside it, a runtime and a TrainJob, it writes the objects that
// Kubeflow Trainer's runtime framework builds to NAME.kubeflow.yaml; of Secrets, and of ConfigMaps but for
// MPI's hostfile, it keeps no data. For each trainer/testdata/runtimes/NAME.input.yaml, a TrainJob, it does so
// with the runtime that Kubeflow Trainer ships and the TrainJob names. It also writes the schemas of Kubeflow
// Trainer's CustomResourceDefinitions, without descriptions, to trainer/testdata/crds.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/runtime/core"
	testingutil "github.com/kubeflow/trainer/v2/pkg/util/testing"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const (
	inputSuffix  = ".input.yaml"
	outputSuffix = ".kubeflow.yaml"
)

// recorded are the kinds that the test compares.
var recorded = []string{"JobSet", "PodGroup", "ConfigMap", "Secret"}

func main() {
	if err := run(context.Background(), filepath.Join("..", "..", "trainer", "testdata")); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, testdata string) error {
	upstream, err := module()
	if err != nil {
		return err
	}
	for _, dir := range []string{"conformance", "volcano"} {
		err := record(filepath.Join(testdata, dir), func(content []byte) ([]byte, error) {
			trainJob, runtime, err := decode(content)
			if err != nil {
				return nil, err
			}
			if runtime == nil {
				return nil, errors.New("an input needs a runtime")
			}
			return build(ctx, trainJob, runtime)
		})
		if err != nil {
			return err
		}
	}
	runtimes, err := shipped(upstream)
	if err != nil {
		return err
	}
	err = record(filepath.Join(testdata, "runtimes"), func(content []byte) ([]byte, error) {
		trainJob, _, err := decode(content)
		if err != nil {
			return nil, err
		}
		runtime, ok := runtimes[trainJob.Spec.RuntimeRef.Name]
		if !ok {
			return nil, fmt.Errorf("Kubeflow Trainer ships no runtime %q", trainJob.Spec.RuntimeRef.Name)
		}
		return build(ctx, trainJob, runtime)
	})
	if err != nil {
		return err
	}
	return schemas(upstream, filepath.Join(testdata, "crds"))
}

// module returns the directory of Kubeflow Trainer's module.
func module() (string, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubeflow/trainer/v2").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	return strings.TrimSpace(string(dir)), nil
}

// record writes the output of every input in a directory.
func record(dir string, output func(input []byte) ([]byte, error)) error {
	inputs, err := filepath.Glob(filepath.Join(dir, "*"+inputSuffix))
	if err != nil {
		return err
	}
	if len(inputs) == 0 {
		return fmt.Errorf("no inputs in %s: run it in hack/conformance", dir)
	}
	for _, input := range inputs {
		content, err := os.ReadFile(input)
		if err != nil {
			return err
		}
		recorded, err := output(content)
		if err != nil {
			return fmt.Errorf("%s: %w", input, err)
		}
		if err := os.WriteFile(strings.TrimSuffix(input, inputSuffix)+outputSuffix, recorded, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// shipped returns the runtimes of Kubeflow Trainer's release by name, with the tags of its images.
func shipped(upstream string) (map[string]client.Object, error) {
	overlay, err := os.ReadFile(filepath.Join(upstream, "manifests", "overlays", "runtimes", "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	kustomization := struct {
		Images []struct{ Name, NewTag string }
	}{}
	if err := yaml.Unmarshal(overlay, &kustomization); err != nil {
		return nil, err
	}
	runtimes := map[string]client.Object{}
	base := filepath.Join(upstream, "manifests", "base", "runtimes")
	err = filepath.WalkDir(base, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".yaml" || filepath.Base(file) == "kustomization.yaml" {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		runtime := &trainer.ClusterTrainingRuntime{}
		if err := yaml.UnmarshalStrict(content, runtime); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for i := range runtime.Spec.Template.Spec.ReplicatedJobs {
			containers := runtime.Spec.Template.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec.Containers
			for c := range containers {
				for _, image := range kustomization.Images {
					if containers[c].Image == image.Name {
						containers[c].Image += ":" + image.NewTag
					}
				}
			}
		}
		runtimes[runtime.Name] = runtime
		return nil
	})
	return runtimes, err
}

// build returns the recorded objects as YAML documents, sorted by kind and name.
func build(ctx context.Context, trainJob *trainer.TrainJob, runtime client.Object) ([]byte, error) {
	builder := testingutil.NewClientBuilder().WithObjects(runtime)
	runtimes, err := core.New(ctx, builder.Build(), testingutil.AsIndex(builder), nil)
	if err != nil {
		return nil, err
	}
	kind := schema.GroupKind{Group: *trainJob.Spec.RuntimeRef.APIGroup, Kind: *trainJob.Spec.RuntimeRef.Kind}
	objects, err := runtimes[kind.String()].NewObjects(ctx, trainJob)
	if err != nil {
		return nil, err
	}
	var documents []string
	for _, object := range objects {
		raw, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		decoded := &unstructured.Unstructured{}
		if err := decoded.UnmarshalJSON(raw); err != nil {
			return nil, err
		}
		if !slices.Contains(recorded, decoded.GetKind()) {
			continue
		}
		dropData(decoded)
		document, err := yaml.Marshal(decoded.Object)
		if err != nil {
			return nil, err
		}
		documents = append(documents, "# "+decoded.GetKind()+" "+decoded.GetName()+"\n"+string(document))
	}
	slices.Sort(documents)
	return []byte(strings.Join(documents, "---\n")), nil
}

// dropData takes the data, which is random or programs, out of Secrets and ConfigMaps.
func dropData(object *unstructured.Unstructured) {
	switch object.GetKind() {
	case "Secret":
		delete(object.Object, "data")
	case "ConfigMap":
		data, _ := object.Object["data"].(map[string]any)
		for key := range data {
			if key != "hostfile" {
				delete(data, key)
			}
		}
		if len(data) == 0 {
			delete(object.Object, "data")
		}
	}
}

func decode(content []byte) (*trainer.TrainJob, client.Object, error) {
	var trainJob *trainer.TrainJob
	var runtime client.Object
	for _, document := range bytes.Split(content, []byte("\n---\n")) {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return nil, nil, err
		}
		var target client.Object
		switch object.GetKind() {
		case trainer.TrainJobKind:
			trainJob = &trainer.TrainJob{}
			target = trainJob
		case trainer.TrainingRuntimeKind:
			runtime = &trainer.TrainingRuntime{}
			target = runtime
		case trainer.ClusterTrainingRuntimeKind:
			runtime = &trainer.ClusterTrainingRuntime{}
			target = runtime
		default:
			return nil, nil, fmt.Errorf("unexpected kind %q", object.GetKind())
		}
		if err := yaml.UnmarshalStrict(document, target); err != nil {
			return nil, nil, err
		}
	}
	if trainJob == nil {
		return nil, nil, errors.New("an input needs a TrainJob")
	}
	return trainJob, runtime, nil
}

// schemas writes Kubeflow Trainer's CustomResourceDefinitions without the texts for people.
func schemas(upstream, dir string) error {
	crds, err := filepath.Glob(filepath.Join(upstream, "manifests", "base", "crds", "trainer.kubeflow.org_*.yaml"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, crd := range crds {
		content, err := os.ReadFile(crd)
		if err != nil {
			return err
		}
		var definition any
		if err := yaml.Unmarshal(content, &definition); err != nil {
			return fmt.Errorf("%s: %w", crd, err)
		}
		bare, err := json.Marshal(withoutDescriptions(definition))
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(filepath.Base(crd), ".yaml") + ".json"
		if err := os.WriteFile(filepath.Join(dir, name), append(bare, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func withoutDescriptions(value any) any {
	switch value := value.(type) {
	case map[string]any:
		bare := make(map[string]any, len(value))
		for key, field := range value {
			// A property may be called description; its schema is an object.
			if _, text := field.(string); key == "description" && text {
				continue
			}
			bare[key] = withoutDescriptions(field)
		}
		return bare
	case []any:
		bare := make([]any, len(value))
		for i := range value {
			bare[i] = withoutDescriptions(value[i])
		}
		return bare
	default:
		return value
	}
}

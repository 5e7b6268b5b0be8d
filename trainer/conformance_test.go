package trainer

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/volcano"
)

const conformanceDir = "testdata/conformance"

// difference is a place where Muster deliberately builds something else than Kubeflow Trainer. An empty
// value means that the field is absent.
type difference struct {
	path             string
	kubeflow, muster string
}

// TestBuildsWhatKubeflowTrainerBuilds compares the children of every input with what Kubeflow Trainer's own
// library made of it, which hack/conformance recorded. Each difference must be listed in
// intendedDifferences, and each that is listed must be there.
func TestBuildsWhatKubeflowTrainerBuilds(t *testing.T) {
	compareWithKubeflow(t, conformanceDir, intendedDifferences, func(t *testing.T, input string) []client.Object {
		trainJob, spec := readInput(t, input)
		return buildAll(t, trainJob, spec, "")
	})
}

// TestBuildsVolcanosGroupsAsKubeflowTrainer does the same for groups of Volcano.
func TestBuildsVolcanosGroupsAsKubeflowTrainer(t *testing.T) {
	compareWithKubeflow(t, "testdata/volcano", intendedVolcanoDifferences, func(t *testing.T, input string) []client.Object {
		trainJob, spec := readInput(t, input)
		return buildAll(t, trainJob, spec, "")
	})
}

// compareWithKubeflow builds the children of every input in a directory and compares them with the recorded
// ones.
func compareWithKubeflow(t *testing.T, dir string, intended map[string][]intent, build func(t *testing.T, input string) []client.Object) {
	inputs, err := filepath.Glob(filepath.Join(dir, "*.input.yaml"))
	if err != nil || len(inputs) == 0 {
		t.Fatalf("found %d inputs, error %v", len(inputs), err)
	}
	intended = maps.Clone(intended)
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".input.yaml")
		t.Run(name, func(t *testing.T) {
			muster := flattenAll(t, build(t, input))
			kubeflow := flattenAll(t, readObjects(t, filepath.Join(dir, name+".kubeflow.yaml")))
			compareLeaves(t, "Kubeflow Trainer", kubeflow, muster, intended[name])
		})
		delete(intended, name)
	}
	for name := range intended {
		t.Errorf("differences are intended for %q, which is no input", name)
	}
}

// compareLeaves compares what somebody else makes of an input with what Muster makes of it.
func compareLeaves(t *testing.T, other string, theirs, muster map[string]string, intended []intent) {
	t.Helper()
	got := []difference{}
	for _, path := range slices.Sorted(maps.Keys(union(theirs, muster))) {
		if theirs[path] != muster[path] {
			got = append(got, difference{path, theirs[path], muster[path]})
		}
	}
	want := []difference{}
	for _, intent := range intended {
		t.Logf("intended: %s", intent.why)
		want = append(want, intent.differences...)
	}
	slices.SortFunc(want, func(a, b difference) int { return strings.Compare(a.path, b.path) })
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(difference{})); diff != "" {
		t.Errorf("differences from %s (-intended +found):\n%s", other, diff)
	}
}

// buildAll returns the child objects of a TrainJob.
func buildAll(t *testing.T, trainJob *v1alpha1.TrainJob, spec *v1alpha1.TrainingRuntimeSpec, schedulerName string) []client.Object {
	t.Helper()
	f := framework.New(plugins.All(nil, nil, schedulerName)...)
	info, err := runtime.New(trainJob, spec)
	if err != nil {
		t.Fatal(err)
	}
	if errs := f.Validate(info, trainJob); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	components, err := f.Build(context.Background(), info, trainJob)
	if err != nil {
		t.Fatal(err)
	}
	var objects []client.Object
	for _, component := range components {
		objects = append(objects, component.Objects...)
	}
	return objects
}

// readInput reads a runtime and a TrainJob, strictly, so that a field that the API lacks is an error.
func readInput(t *testing.T, file string) (*v1alpha1.TrainJob, *v1alpha1.TrainingRuntimeSpec) {
	t.Helper()
	documents := readDocuments(t, file)
	if len(documents) != 2 {
		t.Fatalf("%s has %d documents", file, len(documents))
	}
	runtime := &v1alpha1.ClusterTrainingRuntime{}
	trainJob := &v1alpha1.TrainJob{}
	for i, target := range []any{runtime, trainJob} {
		if err := yaml.UnmarshalStrict(documents[i], target); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return trainJob, &runtime.Spec
}

func readObjects(t *testing.T, file string) []client.Object {
	t.Helper()
	var objects []client.Object
	for _, document := range readDocuments(t, file) {
		head := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &head.Object); err != nil {
			t.Fatal(err)
		}
		var object client.Object
		switch kind := head.GetKind(); kind {
		case "JobSet":
			object = &jobsetv1alpha2.JobSet{}
		case "PodGroup":
			object = &podgroup.PodGroup{}
			if head.GetAPIVersion() == volcano.GroupVersion.String() {
				object = &volcano.PodGroup{}
			}
		case "ConfigMap":
			object = &corev1.ConfigMap{}
		case "Secret":
			object = &corev1.Secret{}
		default:
			t.Fatalf("%s: unexpected kind %q", file, kind)
		}
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		objects = append(objects, object)
	}
	return objects
}

func readDocuments(t *testing.T, file string) [][]byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var documents [][]byte
	for _, document := range strings.Split(string(content), "\n---\n") {
		documents = append(documents, []byte(document))
	}
	return documents
}

// flattenAll returns every leaf of objects by its path. Elements of a list that have names are addressed by
// name, and the order of the names is a leaf of its own.
func flattenAll(t *testing.T, objects []client.Object) map[string]string {
	t.Helper()
	leaves := map[string]string{}
	for _, object := range objects {
		content, err := apiruntime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		delete(content, "status")
		// Only MPI's hostfile is recorded: the rest of the data is programs, or random.
		if data, ok := content["data"].(map[string]any); ok {
			maps.DeleteFunc(data, func(key string, _ any) bool { return key != "hostfile" })
			if len(data) == 0 {
				delete(content, "data")
			}
		}
		flatten(fmt.Sprintf("%s/%s", content["kind"], object.GetName()), content, leaves)
	}
	return leaves
}

func flatten(path string, value any, leaves map[string]string) {
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 {
			leaves[path] = "{}"
		}
		for key, field := range value {
			flatten(path+"/"+key, field, leaves)
		}
	case []any:
		var names []string
		for i, element := range value {
			key := fmt.Sprint(i)
			if fields, ok := element.(map[string]any); ok && fields["name"] != nil {
				key = fmt.Sprint(fields["name"])
				names = append(names, key)
			}
			flatten(path+"["+key+"]", element, leaves)
		}
		if names != nil {
			leaves[path+"[order]"] = strings.Join(names, " ")
		}
	default:
		leaves[path] = fmt.Sprint(value)
	}
}

func union(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

package trainer

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins"
)

// TestKueueCountsWhatIsBuilt compares the pods of every input's JobSet, in a queue of Kueue's, with those that Kueue
// counts before it lets the TrainJob start, which hack/conformance/kueue recorded: who takes more than Kueue counts,
// takes others' quota. Each difference must be listed in kueueDifferences, and each that is listed must be there.
func TestKueueCountsWhatIsBuilt(t *testing.T) {
	inputs, err := filepath.Glob(filepath.Join(conformanceDir, "*.input.yaml"))
	if err != nil || len(inputs) == 0 {
		t.Fatalf("found %d inputs, error %v", len(inputs), err)
	}
	intended := maps.Clone(kueueDifferences)
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".input.yaml")
		t.Run(name, func(t *testing.T) {
			var kueue any
			content, err := os.ReadFile(filepath.Join(conformanceDir, name+".kueue.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(content, &kueue); err != nil {
				t.Fatal(err)
			}
			trainJob, spec := readInput(t, input)
			metav1.SetMetaDataLabel(&trainJob.ObjectMeta, "kueue.x-k8s.io/queue-name", "research")
			if field, refused := refusedInQueues[name]; refused {
				_, refusal := framework.New(plugins.All(nil, nil, "")...).Check(trainJob, spec)
				if refusal == nil || len(refusal.Errors) != 1 || refusal.Errors[0].Field != field {
					t.Errorf("refusal: %+v, want of %s", refusal, field)
				}
				return
			}
			muster := podsToCount(t, buildAll(t, trainJob, spec, ""))
			seen, built := map[string]string{}, map[string]string{}
			flatten("podSets", kueue, seen)
			flatten("podSets", muster, built)
			compareLeaves(t, "Kueue", seen, built, intended[name])
		})
		delete(intended, name)
	}
	for name := range intended {
		t.Errorf("differences are intended for %q, which is no input", name)
	}
}

// podsToCount returns, of each replicated job of the JobSet, the number of pods and what they take, in the form that
// hack/conformance/kueue writes.
func podsToCount(t *testing.T, objects []client.Object) any {
	t.Helper()
	i := slices.IndexFunc(objects, func(object client.Object) bool { _, ok := object.(*jobsetv1alpha2.JobSet); return ok })
	if i < 0 {
		t.Fatal("no JobSet")
	}
	var podSets []any
	for _, job := range objects[i].(*jobsetv1alpha2.JobSet).Spec.ReplicatedJobs {
		raw, err := json.Marshal(job.Template.Spec.Template.Spec)
		if err != nil {
			t.Fatal(err)
		}
		var spec map[string]any
		if err := json.Unmarshal(raw, &spec); err != nil {
			t.Fatal(err)
		}
		keepFields(spec, "initContainers", "containers", "overhead", "resources", "resourceClaims", "nodeSelector", "affinity",
			"tolerations", "topologySpreadConstraints", "priorityClassName", "runtimeClassName", "schedulerName", "schedulingGates")
		for _, list := range []string{"initContainers", "containers"} {
			containers, _ := spec[list].([]any)
			for _, container := range containers {
				keepFields(container.(map[string]any), "name", "resources", "restartPolicy")
			}
		}
		// The API server makes one Job of none.
		count := max(job.Replicas, 1) * *job.Template.Spec.Parallelism
		podSets = append(podSets, map[string]any{"name": job.Name, "count": count, "spec": spec})
	}
	return podSets
}

func keepFields(fields map[string]any, names ...string) {
	maps.DeleteFunc(fields, func(name string, _ any) bool { return !slices.Contains(names, name) })
}

// refusedInQueues are the inputs of which Kueue would count fewer pods than are built, and the field that says so.
var refusedInQueues = map[string]string{"mpi-runtime-nodes": "spec.trainer.numNodes"}

// kueueDifferences are the inputs of which Kueue 0.17 counts something else than is built. The issues are those of
// github.com/kubeflow/trainer. Those of merged resources are not Muster's alone: Kueue 0.17 is built with Kubeflow
// Trainer 2.2, and 2.3 merges too.
var kueueDifferences = map[string][]intent{
	"torch-resources-merged": {kueueReplacesResources(
		difference{path: kueueNode + "/limits/memory", muster: "64Gi"},
		difference{path: kueueNode + "/requests/cpu", muster: "8"},
	)},
	"torch-runtime-gpu-job-cpu":    {kueueReplacesResources(difference{path: kueueNode + "/limits/nvidia.com/gpu", muster: "8"})},
	"torchtune-cpu":                {kueueReplacesResources(difference{path: kueueNode + "/limits/nvidia.com/gpu", muster: "2"})},
	"xgboost-runtime-gpus-job-cpu": {kueueReplacesResources(difference{path: kueueNode + "/limits/nvidia.com/gpu", muster: "4"})},
	"mpi-runtime-gpus-job-cpu":     {kueueReplacesResources(difference{path: kueueNode + "/limits/nvidia.com/gpu", muster: "4"})},
	"mpi-one-node":                 {kueueCountsAWorker},
	"mpi-no-trainer":               {kueueCountsAWorker},
}

// kueueNode is the resources of the training container.
const kueueNode = "podSets[node]/spec/containers[node]/resources"

var kueueCountsAWorker = intent{
	why:         "a launcher that is the only node has no workers (#3954)",
	differences: []difference{{"podSets[node]/count", "1", "0"}},
}

func kueueReplacesResources(differences ...difference) intent {
	return intent{
		why:         "resourcesPerNode is merged into the runtime's resources, which Kubeflow Trainer 2.2 replaces by it",
		differences: differences,
	}
}

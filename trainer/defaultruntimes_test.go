package trainer

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/manifests"
	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

const runtimesDir = "testdata/runtimes"

// defaultRuntimes returns the runtimes that Muster ships, by name.
func defaultRuntimes(t *testing.T) map[string]*v1alpha1.ClusterTrainingRuntime {
	t.Helper()
	objects, err := manifests.Runtimes()
	if err != nil {
		t.Fatal(err)
	}
	runtimes := map[string]*v1alpha1.ClusterTrainingRuntime{}
	for _, object := range objects {
		runtime := &v1alpha1.ClusterTrainingRuntime{}
		if err := apiruntime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, runtime, true); err != nil {
			t.Fatalf("%s: %v", object.GetName(), err)
		}
		runtimes[runtime.Name] = runtime
	}
	return runtimes
}

// readTrainJob reads a TrainJob, strictly.
func readTrainJob(t *testing.T, file string) *v1alpha1.TrainJob {
	t.Helper()
	documents := readDocuments(t, file)
	if len(documents) != 1 {
		t.Fatalf("%s has %d documents", file, len(documents))
	}
	trainJob := &v1alpha1.TrainJob{}
	if err := yaml.UnmarshalStrict(documents[0], trainJob); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return trainJob
}

// The runtimes that Kubeflow Trainer ships are here under the same names, and make the same of a TrainJob.
func TestDefaultRuntimesBuildWhatKubeflowTrainersBuild(t *testing.T) {
	runtimes := defaultRuntimes(t)
	compareWithKubeflow(t, runtimesDir, intendedRuntimeDifferences, func(t *testing.T, input string) []client.Object {
		trainJob := readTrainJob(t, input)
		runtime := runtimes[trainJob.Spec.RuntimeRef.Name]
		if runtime == nil {
			t.Fatalf("no runtime %s", trainJob.Spec.RuntimeRef.Name)
		}
		return buildAll(t, trainJob, &runtime.Spec, "")
	})
}

// ignoreDisruptions has a Job not count pods that were evicted.
var ignoreDisruptions = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
	Action:          batchv1.PodFailurePolicyActionIgnore,
	OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
}}}

// Every runtime has a variant that makes gangs, whose members may be evicted, and is otherwise the same but for where a
// launcher waits.
func TestDefaultRuntimesHaveGangs(t *testing.T) {
	runtimes := defaultRuntimes(t)
	inputs, err := filepath.Glob(filepath.Join(runtimesDir, "*.input.yaml"))
	if err != nil || len(inputs) != 8 || len(runtimes) != 16 {
		t.Fatalf("%d inputs, %d runtimes, error %v", len(inputs), len(runtimes), err)
	}
	// Gangs of the inputs' four nodes, or of the initializers before the only one.
	gangs := map[string]map[string]int32{
		"torch-distributed": {"llm": 4}, "jax-distributed": {"llm": 4}, "xgboost-distributed": {"llm": 4},
		"deepspeed-distributed": {"llm": 4}, "mlx-distributed": {"llm": 4},
		"torchtune-llama3.2-1b": {"llm-phase-0": 2, "llm": 1}, "torchtune-llama3.2-3b": {"llm-phase-0": 2, "llm": 1}, "torchtune-qwen2.5-1.5b": {"llm-phase-0": 2, "llm": 1},
	}
	for _, input := range inputs {
		trainJob := readTrainJob(t, input)
		name := trainJob.Spec.RuntimeRef.Name
		t.Run(name, func(t *testing.T) {
			plain, gang := runtimes[name], runtimes[name+"-gang"]
			if plain == nil || gang == nil {
				t.Fatal("no such pair")
			}
			if plain.Spec.PodGroupPolicy != nil || gang.Spec.PodGroupPolicy == nil {
				t.Fatalf("policies: %v and %v", plain.Spec.PodGroupPolicy, gang.Spec.PodGroupPolicy)
			}
			if _, ok := plain.Labels["trainer.kubeflow.org/framework"]; !ok {
				t.Error("no framework label, by which Kubeflow's SDK finds runtimes")
			}
			got := map[string]int32{}
			trainJob.Spec.RuntimeRef.Name = gang.Name
			for _, object := range buildAll(t, trainJob, &gang.Spec, "") {
				switch object := object.(type) {
				case *podgroup.PodGroup:
					got[object.Name] = object.Spec.MinMember
				case *jobsetv1alpha2.JobSet:
					for _, job := range object.Spec.ReplicatedJobs {
						if job.Name == "launcher" && len(job.DependsOn) > 0 {
							t.Error("the launcher depends on the workers, and so is no member of their gang")
						}
					}
				}
			}
			if diff := cmp.Diff(gangs[name], got); diff != "" {
				t.Errorf("gangs (-want +got)\n%s", diff)
			}

			same := gang.DeepCopy()
			same.Name, same.Spec.PodGroupPolicy = plain.Name, nil
			for i := range same.Spec.Template.Spec.ReplicatedJobs {
				job := &same.Spec.Template.Spec.ReplicatedJobs[i].Template.Spec
				if diff := cmp.Diff(ignoreDisruptions, job.PodFailurePolicy); diff != "" {
					t.Errorf("pod failure policy of job %d (-want +got)\n%s", i, diff)
				}
				// Without it the API server refuses the policy.
				if got := job.Template.Spec.RestartPolicy; got != corev1.RestartPolicyNever {
					t.Errorf("restart policy of job %d: %q", i, got)
				}
				// As many retries as a Job has by default, but for each member, and all of them are needed.
				if ptr.Deref(job.BackoffLimitPerIndex, -1) != 6 || ptr.Deref(job.MaxFailedIndexes, -1) != 0 {
					t.Errorf("retries of job %d: %v for each member, %v may fail", i, job.BackoffLimitPerIndex, job.MaxFailedIndexes)
				}
				job.BackoffLimitPerIndex, job.MaxFailedIndexes = nil, nil
				job.PodFailurePolicy, job.Template.Spec.RestartPolicy = nil, ""
			}
			if strings.HasPrefix(name, "deepspeed") || strings.HasPrefix(name, "mlx") {
				launcher := &same.Spec.Template.Spec.ReplicatedJobs[1]
				launcher.DependsOn = []jobsetv1alpha2.DependsOn{{Name: "node", Status: jobsetv1alpha2.DependencyReady}}
				if n := len(launcher.Template.Spec.Template.Spec.InitContainers); n != 1 {
					t.Errorf("%d init containers of the launcher", n)
				}
				launcher.Template.Spec.Template.Spec.InitContainers = nil
			}
			if diff := cmp.Diff(plain, same); diff != "" {
				t.Errorf("more than the gang differs (-plain +gang)\n%s", diff)
			}
		})
	}
}

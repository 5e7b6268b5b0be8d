package integration

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

const (
	// notebooks has the TrainJobs that the notebooks among Kubeflow Trainer's examples create.
	notebooks = "testdata/notebooks"

	dataset = trainer.AncestorDatasetInitializer
	model   = trainer.AncestorModelInitializer

	completionIndex = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
	jobSetName      = "metadata.labels['jobset.sigs.k8s.io/jobset-name']"
)

type variables = map[string]string

// upstreamExample is one of Kubeflow Trainer's examples, and what must come of it.
type upstreamExample struct {
	// job is the name of its TrainJob.
	job string

	// pods is how many there are of each replicated job, and env what the container that trains or initializes gets.
	pods map[string]int
	env  map[string]variables
}

// upstreamExamples are all of them, by the file in examples of Kubeflow Trainer's module, or in notebooks. The
// variables are what the frameworks' own documentation, and Kubeflow Trainer's, promise for these numbers of nodes and
// resources.
var upstreamExamples = map[string]upstreamExample{
	"yaml/01-multi-node.yaml":          nodes("multi-node-example", 3, torchEnv("multi-node-example", "3", "1")),
	"yaml/02-runtime-patches.yaml":     nodes("runtime-patches-example", 2, torchEnv("runtime-patches-example", "2", "2", "CUSTOM_VAR", "custom-value", "PYTHONUNBUFFERED", "1")),
	"yaml/03-kueue-integration.yaml":   nodes("kueue-example", 3, torchEnv("kueue-example", "3", "2")),
	"yaml/04-volcano-integration.yaml": nodes("volcano-example", 4, torchEnv("volcano-example", "4", "1")),
	"yaml/05-multi-step.yaml": {
		job: "multi-step-example", pods: map[string]int{dataset: 1, "node": 2},
		env: map[string]variables{
			dataset: {"STORAGE_URI": "hf://tatsu-lab/alpaca"},
			"node":  torchEnv("multi-step-example", "2", "2"),
		},
	},

	"flux/flux-interactive.yaml":  nodes("lammps-flux-interactive", 4, variables{}),
	"flux/lammps-train-job.yaml":  nodes("lammps-flux", 2, variables{"FLUX_VIEW_IMAGE": fluxView}),
	"flux/lammps-train-gpus.yaml": nodes("lammps-flux", 2, variables{"FLUX_VIEW_IMAGE": fluxView, "OMPI_MCA_btl": "tcp,self"}),

	"mlx-language-modeling.yaml":        mpiNodes("mlx-llama", 4, "1"),
	"mlx-image-classification.yaml":     mpiNodes("mlx-mnist", 3, "1"),
	"deepspeed-text-summarization.yaml": mpiNodes("deepspeed-t5", 2, "4"),
	"xgboost-distributed-training.yaml": nodes("xgboost", 3, variables{
		"DMLC_TRACKER_URI": "xgboost-node-0-0.xgboost", "DMLC_TRACKER_PORT": "29500", "DMLC_TASK_ID": completionIndex, "DMLC_NUM_WORKER": "3",
	}),
	"jax-image-classification.yaml": nodes("jax-mnist", 3, jaxEnv("jax-mnist", "3")),
	"jax-tpu-smoke-test.yaml":       nodes("jax-tpu", 1, jaxEnv("jax-tpu", "1", "JAX_PLATFORMS", "tpu,cpu", "ENABLE_PJRT_COMPATIBILITY", "true")),

	"megatron-tensor-parallelism.yaml":  nodes("megatron-tp", 2, torchEnv("megatron-tp", "2", "auto", "TP_SIZE", "2")),
	"pytorch-image-classification.yaml": nodes("torch-mnist", 3, torchEnv("torch-mnist", "3", "3")),
	"pytorch-question-answering.yaml":   nodes("distilbert", 1, torchEnv("distilbert", "1", "2")),
	"pytorch-speech-recognition.yaml":   nodes("speech", 1, torchEnv("speech", "1", "2")),
	"pytorch-audio-classification.yaml": nodes("audio", 1, torchEnv("audio", "1", "1")),
	"local-container-mnist.yaml":        nodes("container-mnist", 2, torchEnv("container-mnist", "2", "1")),
	"local-training-mnist.yaml":         nodes("local-mnist", 1, torchEnv("local-mnist", "1", "1")),
	"pytorch-data-cache.yaml": {
		job: "data-cache", pods: map[string]int{dataset: 1, "node": 8},
		env: map[string]variables{
			dataset: {
				"CACHE_IMAGE": "ghcr.io/kubeflow/trainer/data-cache:v2.3.0", "TRAIN_JOB_NAME": jobSetName, "STORAGE_URI": "cache://schema/table",
				"CLUSTER_SIZE": "5", "METADATA_LOC": "s3://bucket/metadata.json", "IAM_ROLE": "arn:aws:iam::123456789012:role/cache",
			},
			"node": torchEnv("data-cache", "8", "auto", "TRAIN_JOB_NAME", jobSetName),
		},
	},
	"torchtune-llama3_2.yaml": tunes("tune-llama", "hf://meta-llama/Llama-3.2-1B-Instruct", "ACCESS_TOKEN", "hf_token"),
	"torchtune-qwen2_5.yaml":  tunes("tune-qwen", "hf://Qwen/Qwen2.5-1.5B-Instruct"),
}

const fluxView = "ghcr.io/converged-computing/flux-view-ubuntu:tag-jammy"

// nodes is an example of nothing but training nodes.
func nodes(job string, count int, env variables) upstreamExample {
	return upstreamExample{job: job, pods: map[string]int{"node": count}, env: map[string]variables{"node": env}}
}

// mpiNodes is an example of MPI, whose launcher is the first of the nodes.
func mpiNodes(job string, count int, slots string) upstreamExample {
	return upstreamExample{
		job: job, pods: map[string]int{"launcher": 1, "node": count - 1},
		env: map[string]variables{"launcher": openMPIEnv(slots), "node": {}},
	}
}

// tunes is an example of TorchTune. Its nodes learn from their command where they meet.
func tunes(job, storageURI string, modelEnv ...string) upstreamExample {
	return upstreamExample{
		job: job, pods: map[string]int{dataset: 1, model: 1, "node": 1},
		env: map[string]variables{
			dataset: {"STORAGE_URI": "hf://tatsu-lab/alpaca/data"},
			model:   with(variables{"STORAGE_URI": storageURI}, modelEnv),
			"node":  {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "auto", "PET_NODE_RANK": completionIndex},
		},
	}
}

func torchEnv(job, nodes, processes string, more ...string) variables {
	return with(variables{
		"PET_NNODES": nodes, "PET_NPROC_PER_NODE": processes, "PET_NODE_RANK": completionIndex,
		"PET_MASTER_ADDR": job + "-node-0-0." + job, "PET_MASTER_PORT": "29500",
	}, more)
}

func jaxEnv(job, nodes string, more ...string) variables {
	return with(variables{
		"JAX_NUM_PROCESSES": nodes, "JAX_PROCESS_ID": completionIndex, "JAX_COORDINATOR_ADDRESS": job + "-node-0-0." + job + ":29500",
	}, more)
}

func openMPIEnv(slots string) variables {
	return variables{
		"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile", "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
		"OMPI_MCA_orte_set_default_slots": slots, "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
		"PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile", "PRTE_MCA_prte_keep_fqdn_hostnames": "false",
		"PRTE_MCA_prte_set_default_slots": slots, "PRTE_MCA_plm_ssh_args": "-o ConnectionAttempts=10",
	}
}

// with adds pairs of names and values.
func with(env variables, pairs []string) variables {
	for i := 0; i+1 < len(pairs); i += 2 {
		env[pairs[i]] = pairs[i+1]
	}
	return env
}

// Kubeflow Trainer's examples, as they are released, run to their end: with the runtimes that Muster ships, and with
// Kubeflow Trainer's own.
func TestUpstreamExamplesComplete(t *testing.T) {
	upstream := kubeflowTrainer(t)
	examples := filepath.Join(upstream, "examples")
	files := map[string]string{}
	for _, file := range filesBelow(t, examples, ".yaml") {
		if file != fluxRuntime {
			files[file] = filepath.Join(examples, file)
		}
	}
	for _, file := range filesBelow(t, notebooks, ".yaml") {
		files[file] = filepath.Join(notebooks, file)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(upstreamExamples)), slices.Sorted(maps.Keys(files))); diff != "" {
		t.Fatalf("not every example is tested (-tested +there)\n%s", diff)
	}

	asDefaultScheduler(t)
	for _, runtimes := range []struct {
		of    string
		apply func(*scene) []*unstructured.Unstructured
	}{
		{"Muster", func(s *scene) []*unstructured.Unstructured { return s.ownRuntimes() }},
		{"Kubeflow Trainer", func(s *scene) []*unstructured.Unstructured { return s.upstreamRuntimes(upstream) }},
	} {
		t.Run(runtimes.of, func(t *testing.T) {
			s := newScene(t)
			s.exampleCluster()
			s.replaceRuntimes(runtimes.apply, filepath.Join(upstream, "manifests/base/runtimes/data-cache/torch_distributed_with_cache.yaml"), filepath.Join(examples, fluxRuntime))
			s.complete(s.runExamples(files))
		})
	}
}

// fluxRuntime is the one file of the examples that has no TrainJob.
const fluxRuntime = "flux/flux-runtime.yaml"

// Every notebook among the examples has its TrainJob here.
func TestUpstreamNotebooksAreConverted(t *testing.T) {
	converted := ""
	for _, file := range filesBelow(t, notebooks, ".yaml") {
		content, err := os.ReadFile(filepath.Join(notebooks, file))
		if err != nil {
			t.Fatal(err)
		}
		converted += string(content)
	}
	found := filesBelow(t, filepath.Join(kubeflowTrainer(t), "examples"), ".ipynb")
	for _, file := range found {
		if !strings.Contains(converted, "# What examples/"+file+" of") {
			t.Errorf("no TrainJob of %s", file)
		}
	}
	if len(found) == 0 {
		t.Error("no notebooks found")
	}
}

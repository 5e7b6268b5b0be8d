package torch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
)

var (
	loraArgs  = []string{"model.lora_attn_modules=[q_proj,v_proj]", "epochs=3"}
	qloraArgs = []string{"model.lora_attn_modules=[q_proj,v_proj]", "model.quantize_base=True"}
	doraArgs  = []string{"model.lora_attn_modules=[q_proj,v_proj]", "model.quantize_base=True", "model.use_dora=true"}
)

// tuneRuntime has a command of its own, with settings for its volumes, on two GPUs.
func tuneRuntime(numNodes int32) *v1alpha1.TrainingRuntimeSpec {
	return torchRuntime(func(s *v1alpha1.TrainingRuntimeSpec) {
		s.MLPolicy.NumNodes = &numNodes
		node := &s.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0]
		node.Command = []string{"tune", "run", "--rdzv_endpoint=localhost:29500", "full_finetune_distributed", "--config", "llama3_2/1B_full",
			"dataset.source=parquet", "output_dir=/workspace/output", "tokenizer.path=/workspace/model/vocab.json"}
		node.Args = []string{"tokenizer.merges_file=/workspace/model/merges.txt", "epochs=1", "checkpointer.checkpoint_dir=/workspace/model"}
		node.Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}
	})
}

func gpus(n int64) *corev1.ResourceRequirements {
	return &corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(n, resource.DecimalSI)}}
}

func tuneJob(runtimeName string, trainer v1alpha1.Trainer) *v1alpha1.TrainJob {
	trainer.Command = []string{"tune", "run"}
	job := trainJob(&trainer)
	job.Spec.RuntimeRef.Name = runtimeName
	return job
}

func TestTuneCommand(t *testing.T) {
	const endpoint = "--rdzv_endpoint=llm-node-0-0.llm:29500"
	cases := map[string]struct {
		runtime string
		nodes   int32
		trainer v1alpha1.Trainer
		want    []string
	}{
		"full, two devices":        {"torchtune-llama3.2-1b", 1, v1alpha1.Trainer{}, []string{endpoint, "full_finetune_distributed", "--config", "llama3_2/1B_full"}},
		"of a gang's runtime":      {"torchtune-llama3.2-1b-gang", 1, v1alpha1.Trainer{}, []string{endpoint, "full_finetune_distributed", "--config", "llama3_2/1B_full"}},
		"full, one device":         {"torchtune-llama3.2-3b", 1, v1alpha1.Trainer{ResourcesPerNode: gpus(1)}, []string{"full_finetune_single_device", "--config", "llama3_2/3B_full_single_device"}},
		"full, one process of two": {"torchtune-llama3.2-3b", 1, v1alpha1.Trainer{NumProcPerNode: ptr.To[int32](1)}, []string{"full_finetune_single_device", "--config", "llama3_2/3B_full_single_device"}},
		"full, more nodes":         {"torchtune-llama3.3-70b", 4, v1alpha1.Trainer{}, []string{endpoint, "full_finetune_distributed", "--config", "llama3_3/70B_full_multinode"}},
		"nodes of the TrainJob":    {"torchtune-llama3.3-70b", 1, v1alpha1.Trainer{NumNodes: ptr.To[int32](2)}, []string{endpoint, "full_finetune_distributed", "--config", "llama3_3/70B_full_multinode"}},
		"LoRA, two devices":        {"torchtune-qwen2.5-1.5b", 1, v1alpha1.Trainer{Args: loraArgs}, []string{endpoint, "lora_finetune_distributed", "--config", "qwen2_5/1.5B_lora"}},
		"LoRA, one device":         {"torchtune-qwen2.5-1.5b", 1, v1alpha1.Trainer{Args: loraArgs, ResourcesPerNode: gpus(1)}, []string{"lora_finetune_single_device", "--config", "qwen2_5/1.5B_lora_single_device"}},
		"QLoRA, one device":        {"torchtune-llama3.2-1b", 1, v1alpha1.Trainer{Args: qloraArgs, NumProcPerNode: ptr.To[int32](1)}, []string{"lora_finetune_single_device", "--config", "llama3_2/1B_qlora_single_device"}},
		"QLoRA, two devices":       {"torchtune-llama3.3-70b", 1, v1alpha1.Trainer{Args: qloraArgs}, []string{endpoint, "lora_finetune_distributed", "--config", "llama3_3/70B_qlora"}},
		"DoRA is LoRA":             {"torchtune-llama3.2-1b", 1, v1alpha1.Trainer{Args: doraArgs}, []string{endpoint, "lora_finetune_distributed", "--config", "llama3_2/1B_lora"}},
		"several processes":        {"torchtune-llama3.2-1b", 1, v1alpha1.Trainer{NumProcPerNode: ptr.To[int32](8)}, []string{endpoint, "full_finetune_distributed", "--config", "llama3_2/1B_full"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := tuneJob(tc.runtime, tc.trainer)
			before := job.DeepCopy()
			info := enforce(t, job, tuneRuntime(tc.nodes))
			node := info.Trainer().Container("node")
			want := append([]string{"tune", "run"}, tc.want...)
			want = append(want, "output_dir=/workspace/output", "tokenizer.path=/workspace/model/vocab.json",
				"tokenizer.merges_file=/workspace/model/merges.txt", "checkpointer.checkpoint_dir=/workspace/model")
			if diff := cmp.Diff(want, node.Command); diff != "" {
				t.Errorf("command (-want +got)\n%s", diff)
			}
			if tc.trainer.Args != nil {
				if diff := cmp.Diff(tc.trainer.Args, node.Args); diff != "" {
					t.Errorf("args (-want +got)\n%s", diff)
				}
			}
			var names []string
			for _, env := range node.Env {
				names = append(names, env.Name)
			}
			if diff := cmp.Diff([]string{"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK"}, names); diff != "" {
				t.Errorf("env (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(before, job); diff != "" {
				t.Errorf("the TrainJob changed (-before +after)\n%s", diff)
			}
		})
	}
	t.Run("the runtime's own command stays", func(t *testing.T) {
		info := enforce(t, trainJob(&v1alpha1.Trainer{Args: []string{"epochs=2"}}), tuneRuntime(1))
		node := info.Trainer().Container("node")
		if node.Command[2] != "--rdzv_endpoint=localhost:29500" || len(node.Env) != 5 {
			t.Errorf("container = %+v", node)
		}
	})
	t.Run("injected containers have only the environment", func(t *testing.T) {
		spec := tuneRuntime(1)
		spec.MLPolicy.Torch.EnvInjection = &v1alpha1.EnvInjection{Targets: []v1alpha1.EnvInjectionTarget{{JobName: "node", ContainerNames: []string{"preflight"}}}}
		info := enforce(t, tuneJob("torchtune-llama3.2-1b", v1alpha1.Trainer{}), spec)
		if diff := cmp.Diff(petEnv("1", "auto"), info.Trainer().ContainerOrInit("preflight").Env); diff != "" {
			t.Errorf("env (-want +got)\n%s", diff)
		}
	})
}

func TestModelOf(t *testing.T) {
	for name, want := range map[string]string{
		"torchtune-llama3.2-1b": "llama3_2/1B", "torchtune-qwen2.5-1.5b": "qwen2_5/1.5B", "torchtune-qwen2.5-1.5b-gang": "qwen2_5/1.5B",
		"torchtune": "", "": "", "a-b": "", "torchtune-llama3.2-1b-of-mine": "", "-gang": "",
	} {
		if got := modelOf(name); got != want {
			t.Errorf("modelOf(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestMethodOf(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want method
	}{
		{nil, full},
		{[]string{"epochs=1"}, full},
		{loraArgs, lora},
		{qloraArgs, qlora},
		{doraArgs, lora},
		{[]string{"model.quantize_base=False", loraArgs[0]}, lora},
		{[]string{"model.quantize_base= TRUE "}, qlora},
		{[]string{"model.quantize_base"}, full},
		{append([]string{"model.use_dora=False"}, qloraArgs...), qlora},
		{[]string{"model.use_dora=true", "model.quantize_base=true"}, full},
	} {
		if got := methodOf(tc.args); got != tc.want {
			t.Errorf("methodOf(%q) = %s, want %s", tc.args, got, tc.want)
		}
	}
}

func TestValidateTune(t *testing.T) {
	cases := map[string]struct {
		runtime string
		nodes   int32
		trainer v1alpha1.Trainer
		want    []string
	}{
		"fine":                               {"torchtune-llama3.2-1b", 1, v1alpha1.Trainer{}, nil},
		"fine in a gang":                     {"torchtune-llama3.2-1b-gang", 1, v1alpha1.Trainer{}, nil},
		"an unknown model":                   {"torchtune-llama4-400b", 1, v1alpha1.Trainer{}, []string{"spec.runtimeRef.name"}},
		"no model":                           {"torch-distributed", 1, v1alpha1.Trainer{}, []string{"spec.runtimeRef.name"}},
		"more nodes":                         {"torchtune-llama3.2-1b", 1, v1alpha1.Trainer{NumNodes: ptr.To[int32](2)}, []string{"spec.trainer.numNodes"}},
		"more nodes of the runtime":          {"torchtune-llama3.2-1b", 2, v1alpha1.Trainer{}, []string{"runtime.spec.mlPolicy.numNodes"}},
		"more nodes, and a recipe":           {"torchtune-llama3.3-70b", 4, v1alpha1.Trainer{}, nil},
		"LoRA on more nodes":                 {"torchtune-llama3.3-70b", 4, v1alpha1.Trainer{Args: loraArgs, NumNodes: ptr.To[int32](4)}, []string{"spec.trainer.numNodes"}},
		"QLoRA on more nodes":                {"torchtune-llama3.3-70b", 4, v1alpha1.Trainer{Args: qloraArgs, NumNodes: ptr.To[int32](4)}, []string{"spec.trainer.numNodes"}},
		"LoRA":                               {"torchtune-llama3.2-3b", 1, v1alpha1.Trainer{Args: loraArgs}, nil},
		"QLoRA of Qwen":                      {"torchtune-qwen2.5-1.5b", 1, v1alpha1.Trainer{Args: qloraArgs}, []string{"spec.runtimeRef.name"}},
		"QLoRA of Qwen on one device":        {"torchtune-qwen2.5-1.5b", 1, v1alpha1.Trainer{Args: qloraArgs, ResourcesPerNode: gpus(1)}, []string{"spec.runtimeRef.name"}},
		"QLoRA on one device":                {"torchtune-llama3.2-1b", 1, v1alpha1.Trainer{Args: qloraArgs, ResourcesPerNode: gpus(1)}, nil},
		"QLoRA on two devices of a runtime":  {"torchtune-llama3.2-1b", 1, v1alpha1.Trainer{Args: qloraArgs}, []string{"spec.trainer.resourcesPerNode"}},
		"QLoRA in two processes":             {"torchtune-llama3.2-3b", 1, v1alpha1.Trainer{Args: qloraArgs, NumProcPerNode: ptr.To[int32](2)}, []string{"spec.trainer.numProcPerNode"}},
		"the runtime's settings":             {"torchtune-llama3.2-1b", 1, v1alpha1.Trainer{Args: []string{"epochs=1", "output_dir=/tmp", "tokenizer.path"}}, []string{"spec.trainer.args[1]", "spec.trainer.args[2]"}},
		"a setting that only looks like one": {"torchtune-llama3.2-1b", 1, v1alpha1.Trainer{Args: []string{"my_output_dir=/tmp"}}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := tuneJob(tc.runtime, tc.trainer)
			info, err := runtime.New(job, tuneRuntime(tc.nodes))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, err := range New().Validate(info, job) {
				got = append(got, err.Field)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("fields (-want +got)\n%s", diff)
			}
		})
	}
	t.Run("no trainer in the runtime", func(t *testing.T) {
		spec := tuneRuntime(1)
		spec.Template.Spec.ReplicatedJobs[0].Template.Labels = nil
		job := tuneJob("torchtune-llama3.2-1b", v1alpha1.Trainer{})
		info, err := runtime.New(job, spec)
		if err != nil {
			t.Fatal(err)
		}
		if errs := New().Validate(info, job); len(errs) != 0 {
			t.Errorf("errors = %v", errs)
		}
	})
}

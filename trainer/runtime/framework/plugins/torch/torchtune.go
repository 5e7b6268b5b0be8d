package torch

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
)

// tuneEntrypoint is the command by which a TrainJob asks for TorchTune: the recipe and its configuration are
// then chosen for it.
var tuneEntrypoint = []string{"tune", "run"}

// Models that TorchTune has recipes for, by the names of their configurations.
const (
	modelLlama32x1B  = "llama3_2/1B"
	modelLlama32x3B  = "llama3_2/3B"
	modelLlama33x70B = "llama3_3/70B"
	modelQwen25x15B  = "qwen2_5/1.5B"
)

var models = []string{modelLlama32x1B, modelLlama32x3B, modelLlama33x70B, modelQwen25x15B}

// runtimeOwned are the settings that go with the runtime's volumes; a TrainJob must not change them.
var runtimeOwned = []string{"output_dir", "tokenizer.path", "tokenizer.merges_file", "checkpointer.checkpoint_dir"}

// Settings, among a TrainJob's arguments, that choose the recipe.
const (
	settingLoRA     = "model.lora_attn_modules"
	settingQuantize = "model.quantize_base"
	settingDoRA     = "model.use_dora"
)

// method is a way of fine-tuning.
type method string

const (
	full  method = "full"
	lora  method = "lora"
	qlora method = "qlora"
)

func tunes(trainer *v1alpha1.Trainer) bool {
	return trainer != nil && slices.Equal(trainer.Command, tuneEntrypoint)
}

// modelOf returns the model that a runtime's name speaks of, as in torchtune-llama3.2-1b; empty if it speaks
// of none. A gang's runtime is named after the plain one.
func modelOf(runtimeName string) string {
	parts := strings.Split(strings.TrimSuffix(runtimeName, "-gang"), "-")
	if len(parts) != 3 {
		return ""
	}
	return strings.ReplaceAll(parts[1], ".", "_") + "/" + strings.ToUpper(parts[2])
}

// methodOf returns the method that arguments ask for.
func methodOf(args []string) method {
	isTrue := func(setting string) bool {
		return slices.ContainsFunc(args, func(arg string) bool {
			name, value, _ := strings.Cut(arg, "=")
			return strings.Contains(name, setting) && strings.EqualFold(strings.TrimSpace(value), "true")
		})
	}
	switch {
	case isTrue(settingQuantize) && !isTrue(settingDoRA):
		return qlora
	case slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, settingLoRA) }):
		return lora
	default:
		return full
	}
}

// recipe is a choice among TorchTune's recipes and configurations.
type recipe struct {
	model        string
	method       method
	nodes        int32
	singleDevice bool
}

func recipeOf(info *runtime.Info, trainJob *v1alpha1.TrainJob, node *corev1.Container) recipe {
	trainer := trainJob.Spec.Trainer
	nodes := info.Trainer().Count
	return recipe{
		model:        modelOf(trainJob.Spec.RuntimeRef.Name),
		method:       methodOf(trainer.Args),
		nodes:        nodes,
		singleDevice: nodes == 1 && (processes(trainer, node) == 1 || runtime.AcceleratorsOf(&node.Resources).Count == 1),
	}
}

// name returns the recipe's name. The one of LoRA quantizes too, if its configuration says so.
func (r recipe) name() string {
	family := r.method
	if family == qlora {
		family = lora
	}
	if r.singleDevice {
		return string(family) + "_finetune_single_device"
	}
	return string(family) + "_finetune_distributed"
}

func (r recipe) config() string {
	config := r.model + "_" + string(r.method)
	switch {
	case r.singleDevice:
		return config + "_single_device"
	case r.nodes > 1:
		return config + "_multinode"
	default:
		return config
	}
}

// validateTune checks that TorchTune has a recipe for what the TrainJob asks.
func validateTune(info *runtime.Info, trainJob *v1alpha1.TrainJob) field.ErrorList {
	if info.Trainer() == nil || info.Trainer().Container(v1alpha1.NodeContainer) == nil {
		// Another plugin says so.
		return nil
	}
	var errs field.ErrorList
	trainer := trainJob.Spec.Trainer
	path := field.NewPath("spec", "trainer")
	runtimeName := field.NewPath("spec", "runtimeRef", "name")
	choice := recipeOf(info, trainJob, info.Trainer().Container(v1alpha1.NodeContainer))

	if !slices.Contains(models, choice.model) {
		errs = append(errs, field.Invalid(runtimeName, trainJob.Spec.RuntimeRef.Name,
			"names no model that TorchTune can be run for, as torchtune-llama3.2-1b does; the models are "+strings.Join(models, ", ")))
	}
	numNodes := path.Child("numNodes")
	if trainer.NumNodes == nil {
		numNodes = field.NewPath("runtime", "spec", "mlPolicy", "numNodes")
	}
	if choice.nodes > 1 && choice.model != modelLlama33x70B {
		errs = append(errs, field.Invalid(numNodes, choice.nodes, "must be 1: TorchTune has a recipe for more nodes only for "+modelLlama33x70B))
	}
	if choice.nodes > 1 && choice.method != full {
		errs = append(errs, field.Invalid(numNodes, choice.nodes, "must be 1: TorchTune has no recipe for LoRA on more nodes"))
	}
	if choice.method == qlora {
		errs = append(errs, validateQLoRA(trainJob, choice)...)
	}
	for i, arg := range trainer.Args {
		if setting, _, _ := strings.Cut(arg, "="); slices.Contains(runtimeOwned, setting) {
			errs = append(errs, field.Invalid(path.Child("args").Index(i), arg, "the runtime sets "+setting+", for its volumes"))
		}
	}
	return errs
}

func validateQLoRA(trainJob *v1alpha1.TrainJob, choice recipe) field.ErrorList {
	path := field.NewPath("spec", "trainer")
	switch choice.model {
	case modelQwen25x15B:
		return field.ErrorList{field.Invalid(field.NewPath("spec", "runtimeRef", "name"), trainJob.Spec.RuntimeRef.Name,
			"TorchTune has no recipe for QLoRA of "+choice.model)}
	case modelLlama32x1B, modelLlama32x3B:
		if choice.singleDevice || choice.nodes > 1 {
			return nil
		}
		why := fmt.Sprintf("TorchTune has a recipe for QLoRA of %s on one device only: set numProcPerNode to 1, or request one accelerator", choice.model)
		if processes := trainJob.Spec.Trainer.NumProcPerNode; processes != nil {
			return field.ErrorList{field.Invalid(path.Child("numProcPerNode"), *processes, why)}
		}
		return field.ErrorList{field.Forbidden(path.Child("resourcesPerNode"), why)}
	default:
		return nil
	}
}

// tuneCommand returns the command of a node: TorchTune's entrypoint, the address where several processes meet,
// the recipe, and the settings that the runtime's own command has for its volumes.
func tuneCommand(info *runtime.Info, trainJob *v1alpha1.TrainJob, node *corev1.Container) []string {
	choice := recipeOf(info, trainJob, node)
	command := slices.Clone(tuneEntrypoint)
	if choice.nodes > 1 || processes(trainJob.Spec.Trainer, node) > 1 {
		command = append(command, fmt.Sprintf("--rdzv_endpoint=%s:%d", info.Endpoint(trainJob, info.Trainer(), 0, 0), runtime.RendezvousPort))
	}
	command = append(command, choice.name(), "--config", choice.config())
	return append(command, runtimeSettings(info)...)
}

// runtimeSettings returns the runtime's own settings from the command, and the arguments, of its template.
func runtimeSettings(info *runtime.Info) []string {
	var settings []string
	for i := range info.Template.ReplicatedJobs {
		job := &info.Template.ReplicatedJobs[i]
		if job.Template.Labels[v1alpha1.AncestorLabel] != v1alpha1.AncestorTrainer {
			continue
		}
		for _, container := range job.Template.Spec.Template.Spec.Containers {
			if container.Name != v1alpha1.NodeContainer {
				continue
			}
			for _, word := range slices.Concat(container.Command, container.Args) {
				if setting, _, _ := strings.Cut(word, "="); slices.Contains(runtimeOwned, setting) {
					settings = append(settings, word)
				}
			}
		}
	}
	return settings
}

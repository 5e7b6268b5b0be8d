// Package torch tells torchrun about its nodes.
package torch

import (
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/framework"
)

// Name of the plugin.
const Name = "Torch"

// Environment variables that torchrun reads in place of its flags.
const (
	envNumNodes       = "PET_NNODES"
	envNumProcPerNode = "PET_NPROC_PER_NODE"
	envNodeRank       = "PET_NODE_RANK"
	envMasterAddr     = "PET_MASTER_ADDR"
	envMasterPort     = "PET_MASTER_PORT"
)

// masterPort is the port of the rendezvous, on the first node.
const masterPort int32 = 29500

var (
	reservedEnv = []string{envNumNodes, envNumProcPerNode, envNodeRank, envMasterAddr, envMasterPort}

	torchtuneCommand = []string{"tune", "run"}
)

// Torch sets the number of nodes, and the environment of torchrun.
type Torch struct{}

var (
	_ framework.ValidationPlugin = (*Torch)(nil)
	_ framework.MLPolicyPlugin   = (*Torch)(nil)
)

// New makes the plugin.
func New() *Torch {
	return &Torch{}
}

// Name implements framework.Plugin.
func (*Torch) Name() string {
	return Name
}

// Validate implements framework.ValidationPlugin.
func (*Torch) Validate(info *runtime.Info, trainJob *v1alpha1.TrainJob) field.ErrorList {
	policy := policyOf(info)
	if policy == nil {
		return nil
	}
	var errs field.ErrorList
	if policy.EnvInjection != nil {
		targets := field.NewPath("runtime", "spec", "mlPolicy", "torch", "envInjection", "targets")
		for i, target := range policy.EnvInjection.Targets {
			podSet := info.ByName(target.JobName)
			if podSet == nil {
				errs = append(errs, field.Invalid(targets.Index(i).Child("jobName"), target.JobName,
					"the runtime has no replicated job of this name"))
				continue
			}
			for c, name := range target.ContainerNames {
				if podSet.ContainerOrInit(name) == nil {
					errs = append(errs, field.Invalid(targets.Index(i).Child("containerNames").Index(c), name,
						"the replicated job has no container of this name"))
				}
			}
		}
	}
	trainer := trainJob.Spec.Trainer
	if trainer == nil {
		return errs
	}
	path := field.NewPath("spec", "trainer")
	for i, env := range trainer.Env {
		if slices.Contains(reservedEnv, env.Name) {
			errs = append(errs, field.Invalid(path.Child("env").Index(i).Child("name"), env.Name,
				"is reserved: the trainer sets it for torchrun"))
		}
	}
	if slices.Equal(trainer.Command, torchtuneCommand) {
		errs = append(errs, field.Forbidden(path.Child("command"), "TorchTune is not supported"))
	}
	return errs
}

// EnforceMLPolicy implements framework.MLPolicyPlugin. The environment is set whether or not the TrainJob
// has a spec.trainer: a runtime that is complete in itself has to rendezvous too.
func (*Torch) EnforceMLPolicy(info *runtime.Info, trainJob *v1alpha1.TrainJob) error {
	policy := policyOf(info)
	trainer := info.Trainer()
	if policy == nil || trainer == nil {
		return nil
	}
	node := trainer.Container(v1alpha1.NodeContainer)
	if node == nil {
		return nil
	}
	if spec := trainJob.Spec.Trainer; spec != nil {
		if spec.NumNodes != nil {
			trainer.Count = *spec.NumNodes
		}
		// Before torchrun's variables: their order is part of what others compare.
		runtime.SetEnv(node, spec.Env...)
	}
	env := []corev1.EnvVar{
		{Name: envNumNodes, Value: strconv.Itoa(int(trainer.Count))},
		{Name: envNumProcPerNode, Value: numProcPerNode(trainJob.Spec.Trainer, node)},
		{Name: envNodeRank, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
			FieldPath: "metadata.annotations['" + batchv1.JobCompletionIndexAnnotation + "']",
		}}},
		{Name: envMasterAddr, Value: info.Endpoint(trainJob, trainer, 0, 0)},
		{Name: envMasterPort, Value: strconv.Itoa(int(masterPort))},
	}
	runtime.SetEnv(node, env...)
	runtime.AddPort(node, masterPort)

	if policy.EnvInjection == nil {
		return nil
	}
	for _, target := range policy.EnvInjection.Targets {
		podSet := info.ByName(target.JobName)
		for _, name := range target.ContainerNames {
			runtime.SetEnv(podSet.ContainerOrInit(name), env...)
		}
	}
	return nil
}

func policyOf(info *runtime.Info) *v1alpha1.TorchMLPolicySource {
	if info.MLPolicy == nil {
		return nil
	}
	return info.MLPolicy.Torch
}

// numProcPerNode returns torchrun's --nproc-per-node: the TrainJob's number if it has one; "auto", which
// counts the devices that torch sees, where there are GPUs; else one process for each CPU, because "auto"
// would count the CPUs of the whole machine.
func numProcPerNode(trainer *v1alpha1.Trainer, node *corev1.Container) string {
	if trainer != nil && trainer.NumProcPerNode != nil {
		return strconv.Itoa(int(*trainer.NumProcPerNode))
	}
	if hasGPU(node.Resources.Requests) || hasGPU(node.Resources.Limits) {
		return "auto"
	}
	cpu := node.Resources.Requests.Cpu()
	if cpu.IsZero() {
		cpu = node.Resources.Limits.Cpu()
	}
	return strconv.FormatInt(max(cpu.Value(), 1), 10)
}

// hasGPU tells whether resources include GPUs, whole or as MIG slices. Names such as nvidia.com/gpumem and
// nvidia.com/gpucores, under which device plugins that share a GPU count its parts, are not GPUs.
func hasGPU(resources corev1.ResourceList) bool {
	for resource, quantity := range resources {
		name := strings.ToLower(string(resource))
		part := strings.Contains(name, "gpumem") || strings.Contains(name, "gpucore")
		device := strings.Contains(name, "gpu") && !part || strings.Contains(name, "/mig-")
		if device && !quantity.IsZero() {
			return true
		}
	}
	return false
}

// Package torch tells torchrun about its nodes.
package torch

import (
	"slices"
	"strconv"

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

var reservedEnv = []string{envNumNodes, envNumProcPerNode, envNodeRank, envMasterAddr, envMasterPort}

// Torch sets the environment of torchrun, and completes the command of TorchTune.
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
	errs = append(errs, runtime.ReservedEnv(trainer, "torchrun", reservedEnv...)...)
	if tunes(trainer) {
		errs = append(errs, validateTune(info, trainJob)...)
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
		// Before torchrun's variables: their order is part of what others compare.
		runtime.SetEnv(node, spec.Env...)
	}
	nodeEnv := []corev1.EnvVar{
		{Name: envNumNodes, Value: strconv.Itoa(int(trainer.Count))},
		{Name: envNumProcPerNode, Value: numProcPerNode(trainJob.Spec.Trainer, node)},
		runtime.IndexEnv(envNodeRank),
	}
	masterEnv := []corev1.EnvVar{
		{Name: envMasterAddr, Value: info.Endpoint(trainJob, trainer, 0, 0)},
		{Name: envMasterPort, Value: strconv.Itoa(int(runtime.RendezvousPort))},
	}
	runtime.SetEnv(node, nodeEnv...)
	if tunes(trainJob.Spec.Trainer) {
		node.Command = tuneCommand(info, trainJob, node)
	} else {
		runtime.SetEnv(node, masterEnv...)
	}
	runtime.AddPort(node, runtime.RendezvousPort)

	if policy.EnvInjection == nil {
		return nil
	}
	for _, target := range policy.EnvInjection.Targets {
		podSet := info.ByName(target.JobName)
		for _, name := range target.ContainerNames {
			// All of it, even where TorchTune's node gets the address by its command: these have only this.
			runtime.SetEnv(podSet.ContainerOrInit(name), slices.Concat(nodeEnv, masterEnv)...)
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

// numProcPerNode returns torchrun's --nproc-per-node: the TrainJob's number if it has one; "auto" where
// torchrun counts the accelerators by itself; their number where it would not see them; else one process for
// each CPU, because "auto" would count the CPUs of the whole machine.
func numProcPerNode(trainer *v1alpha1.Trainer, node *corev1.Container) string {
	explicit := trainer != nil && trainer.NumProcPerNode != nil
	if !explicit && runtime.AcceleratorsOf(&node.Resources).SeenByTorch {
		return "auto"
	}
	return strconv.FormatInt(processes(trainer, node), 10)
}

// processes returns how many processes there will be on each node, counting what torchrun will count.
func processes(trainer *v1alpha1.Trainer, node *corev1.Container) int64 {
	if trainer != nil && trainer.NumProcPerNode != nil {
		return int64(*trainer.NumProcPerNode)
	}
	if devices := runtime.AcceleratorsOf(&node.Resources).Count; devices > 0 {
		return int64(devices)
	}
	cpu := node.Resources.Requests.Cpu()
	if cpu.IsZero() {
		cpu = node.Resources.Limits.Cpu()
	}
	return max(cpu.Value(), 1)
}

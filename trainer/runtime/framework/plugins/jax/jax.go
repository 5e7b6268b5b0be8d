// Package jax tells JAX about its nodes.
package jax

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/framework"
)

// Name of the plugin.
const Name = "JAX"

// Environment variables for jax.distributed.initialize.
const (
	envNumProcesses       = "JAX_NUM_PROCESSES"
	envProcessID          = "JAX_PROCESS_ID"
	envCoordinatorAddress = "JAX_COORDINATOR_ADDRESS"
)

// JAX sets the environment of JAX, which runs one process on each node.
type JAX struct{}

var (
	_ framework.ValidationPlugin = (*JAX)(nil)
	_ framework.MLPolicyPlugin   = (*JAX)(nil)
)

// New makes the plugin.
func New() *JAX {
	return &JAX{}
}

// Name implements framework.Plugin.
func (*JAX) Name() string {
	return Name
}

// Validate implements framework.ValidationPlugin.
func (*JAX) Validate(info *runtime.Info, trainJob *v1alpha1.TrainJob) field.ErrorList {
	if !enabled(info) {
		return nil
	}
	return runtime.ReservedEnv(trainJob.Spec.Trainer, Name, envNumProcesses, envProcessID, envCoordinatorAddress)
}

// EnforceMLPolicy implements framework.MLPolicyPlugin. The environment is set whether or not the TrainJob has a
// spec.trainer.
func (*JAX) EnforceMLPolicy(info *runtime.Info, trainJob *v1alpha1.TrainJob) error {
	trainer := info.Trainer()
	if !enabled(info) || trainer == nil {
		return nil
	}
	node := trainer.Container(v1alpha1.NodeContainer)
	if node == nil {
		return nil
	}
	runtime.SetEnv(node,
		corev1.EnvVar{Name: envNumProcesses, Value: strconv.Itoa(int(trainer.Count))},
		runtime.IndexEnv(envProcessID),
		corev1.EnvVar{Name: envCoordinatorAddress, Value: fmt.Sprintf("%s:%d", info.Endpoint(trainJob, trainer, 0, 0), runtime.RendezvousPort)},
	)
	runtime.AddPort(node, runtime.RendezvousPort)
	return nil
}

func enabled(info *runtime.Info) bool {
	return info.MLPolicy != nil && info.MLPolicy.JAX != nil
}

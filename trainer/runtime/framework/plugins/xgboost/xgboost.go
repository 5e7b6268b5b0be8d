// Package xgboost tells XGBoost about its tracker and workers.
package xgboost

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/framework"
)

// Name of the plugin.
const Name = "XGBoost"

// Environment variables of XGBoost's collective communication.
const (
	envTrackerURI  = "DMLC_TRACKER_URI"
	envTrackerPort = "DMLC_TRACKER_PORT"
	envTaskID      = "DMLC_TASK_ID"
	envNumWorker   = "DMLC_NUM_WORKER"
)

// XGBoost sets the environment of XGBoost, whose tracker runs on the first node.
type XGBoost struct{}

var (
	_ framework.ValidationPlugin = (*XGBoost)(nil)
	_ framework.MLPolicyPlugin   = (*XGBoost)(nil)
)

// New makes the plugin.
func New() *XGBoost {
	return &XGBoost{}
}

// Name implements framework.Plugin.
func (*XGBoost) Name() string {
	return Name
}

// Validate implements framework.ValidationPlugin.
func (*XGBoost) Validate(info *runtime.Info, trainJob *v1alpha1.TrainJob) field.ErrorList {
	if !enabled(info) {
		return nil
	}
	return runtime.ReservedEnv(trainJob.Spec.Trainer, Name, envTrackerURI, envTrackerPort, envTaskID, envNumWorker)
}

// EnforceMLPolicy implements framework.MLPolicyPlugin. The environment is set whether or not the TrainJob has a
// spec.trainer. There is one worker for each accelerator, or for each node without any.
func (*XGBoost) EnforceMLPolicy(info *runtime.Info, trainJob *v1alpha1.TrainJob) error {
	trainer := info.Trainer()
	if !enabled(info) || trainer == nil {
		return nil
	}
	node := trainer.Container(v1alpha1.NodeContainer)
	if node == nil {
		return nil
	}
	workersPerNode := max(runtime.AcceleratorsOf(&node.Resources).Count, 1)
	runtime.SetEnv(node,
		corev1.EnvVar{Name: envTrackerURI, Value: info.Endpoint(trainJob, trainer, 0, 0)},
		corev1.EnvVar{Name: envTrackerPort, Value: strconv.Itoa(int(runtime.RendezvousPort))},
		runtime.IndexEnv(envTaskID),
		corev1.EnvVar{Name: envNumWorker, Value: strconv.FormatInt(int64(trainer.Count)*int64(workersPerNode), 10)},
	)
	runtime.AddPort(node, runtime.RendezvousPort)
	return nil
}

func enabled(info *runtime.Info) bool {
	return info.MLPolicy != nil && info.MLPolicy.XGBoost != nil
}

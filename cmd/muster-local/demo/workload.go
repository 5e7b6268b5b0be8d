package demo

import (
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// The cluster that the demo needs. The jobs below are sized for it.
const (
	Nodes       = 16
	GPUsPerNode = 8
	Topology    = "rack=4"
)

// releaseGate holds the pods of all jobs until all are there, so that both schedulers see them arrive in the
// same order: one pod of each job in turn. That is what many jobs at a busy API server look like, and
// unlike there, it does not depend on the speed of the machine.
const releaseGate = "muster.dev/release"

// runtimeName is the training runtime that all jobs use.
const runtimeName = "torch-distributed"

// workload is one training job: so many nodes with all their GPUs, for so long.
type workload struct {
	name     string
	nodes    int
	training time.Duration
}

// workloads are the jobs of the demo, in the order in which they are submitted. Any two of them fit
// the cluster together only if one of them is birch.
var workloads = []workload{
	{name: "atlas", nodes: 12, training: 8 * time.Second},
	{name: "birch", nodes: 4, training: 13 * time.Second},
	{name: "cedar", nodes: 12, training: 8 * time.Second},
}

// names returns the names of all workloads in their order.
func names() []string {
	var names []string
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return names
}

// letter stands for the job on the map.
func (w workload) letter() rune { return rune(strings.ToUpper(w.name)[0]) }

// trainJob returns the TrainJob of a workload.
func (w workload) trainJob(namespace string) *trainer.TrainJob {
	gpus := corev1.ResourceList{controlplane.GPUResource: *resource.NewQuantity(GPUsPerNode, resource.DecimalSI)}
	return &trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Name: w.name, Namespace: namespace},
		Spec: trainer.TrainJobSpec{
			RuntimeRef: trainer.RuntimeRef{
				Name:     runtimeName,
				APIGroup: ptr.To(trainer.GroupVersion.Group),
				Kind:     ptr.To(trainer.ClusterTrainingRuntimeKind),
			},
			Trainer: &trainer.Trainer{
				Image:            ptr.To("trainer"),
				Command:          []string{"torchrun", "train.py"},
				NumNodes:         ptr.To(int32(w.nodes)),
				ResourcesPerNode: &corev1.ResourceRequirements{Limits: gpus},
			},
		},
	}
}

// trainingRuntime returns a PyTorch runtime whose jobs are gangs.
func trainingRuntime() *trainer.ClusterTrainingRuntime {
	return &trainer.ClusterTrainingRuntime{
		ObjectMeta: metav1.ObjectMeta{Name: runtimeName},
		Spec: trainer.TrainingRuntimeSpec{
			MLPolicy: &trainer.MLPolicy{
				NumNodes:       ptr.To[int32](1),
				MLPolicySource: trainer.MLPolicySource{Torch: &trainer.TorchMLPolicySource{}},
			},
			PodGroupPolicy: &trainer.PodGroupPolicy{
				PodGroupPolicySource: trainer.PodGroupPolicySource{Coscheduling: &trainer.CoschedulingPodGroupPolicySource{
					ScheduleTimeoutSeconds: ptr.To[int32](60),
				}},
			},
			Template: trainer.JobSetTemplateSpec{
				Spec: jobsetapi.JobSetSpec{ReplicatedJobs: []jobsetapi.ReplicatedJob{{
					Name:     trainer.NodeContainer,
					Replicas: 1,
					Template: batchv1.JobTemplateSpec{
						ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{trainer.AncestorLabel: trainer.AncestorTrainer}},
						Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
							RestartPolicy:   corev1.RestartPolicyNever,
							SchedulingGates: []corev1.PodSchedulingGate{{Name: releaseGate}},
							Containers:      []corev1.Container{{Name: trainer.NodeContainer, Image: "trainer"}},
						}}},
					},
				}}},
			},
		},
	}
}

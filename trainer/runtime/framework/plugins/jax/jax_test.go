package jax

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
)

func newInfo(t *testing.T, trainer *v1alpha1.Trainer, change func(*v1alpha1.TrainingRuntimeSpec)) (*runtime.Info, *v1alpha1.TrainJob) {
	t.Helper()
	node := jobsetv1alpha2.ReplicatedJob{Name: "node"}
	node.Template.Labels = map[string]string{v1alpha1.AncestorLabel: v1alpha1.AncestorTrainer}
	node.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "node", Env: []corev1.EnvVar{{Name: "XLA_FLAGS"}}}, {Name: "sidecar"}}
	spec := &v1alpha1.TrainingRuntimeSpec{
		MLPolicy: &v1alpha1.MLPolicy{NumNodes: ptr.To[int32](2), MLPolicySource: v1alpha1.MLPolicySource{JAX: &v1alpha1.JAXMLPolicySource{}}},
		Template: v1alpha1.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{node}}},
	}
	if change != nil {
		change(spec)
	}
	job := &v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: "llm"}, Spec: v1alpha1.TrainJobSpec{Trainer: trainer}}
	info, err := runtime.New(job, spec)
	if err != nil {
		t.Fatal(err)
	}
	return info, job
}

func jaxEnv(processes, address string) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "XLA_FLAGS"},
		{Name: "JAX_NUM_PROCESSES", Value: processes},
		{Name: "JAX_PROCESS_ID", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
			FieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']",
		}}},
		{Name: "JAX_COORDINATOR_ADDRESS", Value: address},
	}
}

func TestEnforceMLPolicy(t *testing.T) {
	cases := map[string]struct {
		trainer            *v1alpha1.Trainer
		change             func(*v1alpha1.TrainingRuntimeSpec)
		processes, address string
	}{
		"the TrainJob's nodes": {trainer: &v1alpha1.Trainer{NumNodes: ptr.To[int32](8)}, processes: "8", address: "llm-node-0-0.llm:29500"},
		"no trainer":           {processes: "2", address: "llm-node-0-0.llm:29500"},
		"one process a node, whatever the devices": {
			trainer: &v1alpha1.Trainer{NumProcPerNode: ptr.To[int32](4)}, processes: "2", address: "llm-node-0-0.llm:29500",
		},
		"the address follows job and subdomain": {
			change: func(s *v1alpha1.TrainingRuntimeSpec) {
				s.Template.Spec.ReplicatedJobs[0].Name = "host"
				s.Template.Spec.Network = &jobsetv1alpha2.Network{Subdomain: "mesh"}
			},
			processes: "2", address: "llm-host-0-0.mesh:29500",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			info, job := newInfo(t, tc.trainer, tc.change)
			if err := New().EnforceMLPolicy(info, job); err != nil {
				t.Fatal(err)
			}
			node := info.Trainer().Container("node")
			if diff := cmp.Diff(jaxEnv(tc.processes, tc.address), node.Env); diff != "" {
				t.Errorf("env (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff([]corev1.ContainerPort{{ContainerPort: 29500}}, node.Ports); diff != "" {
				t.Errorf("ports (-want +got)\n%s", diff)
			}
			if sidecar := info.Trainer().Container("sidecar"); len(sidecar.Env) != 0 || len(sidecar.Ports) != 0 {
				t.Errorf("sidecar = %+v", sidecar)
			}
		})
	}
	for name, change := range map[string]func(*v1alpha1.TrainingRuntimeSpec){
		"another policy": func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.JAX = nil },
		"no policy":      func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy = nil },
		"no trainer":     func(s *v1alpha1.TrainingRuntimeSpec) { s.Template.Spec.ReplicatedJobs[0].Template.Labels = nil },
		"no node": func(s *v1alpha1.TrainingRuntimeSpec) {
			s.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Name = "main"
		},
	} {
		t.Run(name+" is left alone", func(t *testing.T) {
			info, job := newInfo(t, nil, change)
			if err := New().EnforceMLPolicy(info, job); err != nil {
				t.Fatal(err)
			}
			if env := info.PodSets[0].PodSpec().Containers[0].Env; len(env) != 1 {
				t.Errorf("env = %v", env)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	trainer := &v1alpha1.Trainer{Env: []corev1.EnvVar{{Name: "JAX_PLATFORMS"}, {Name: "JAX_PROCESS_ID"}, {Name: "JAX_COORDINATOR_ADDRESS"}, {Name: "JAX_NUM_PROCESSES"}}}
	info, job := newInfo(t, trainer, nil)
	var fields []string
	for _, err := range New().Validate(info, job) {
		fields = append(fields, err.Field)
	}
	if diff := cmp.Diff([]string{"spec.trainer.env[1].name", "spec.trainer.env[2].name", "spec.trainer.env[3].name"}, fields); diff != "" {
		t.Errorf("fields (-want +got)\n%s", diff)
	}
	info, job = newInfo(t, trainer, func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.JAX = nil })
	if errs := New().Validate(info, job); len(errs) != 0 {
		t.Errorf("another policy: %v", errs)
	}
}

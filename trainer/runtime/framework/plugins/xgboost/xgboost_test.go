package xgboost

import (
	gocmp "cmp"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
	node.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "node", Env: []corev1.EnvVar{{Name: "OMP_NUM_THREADS"}}}, {Name: "sidecar"}}
	spec := &v1alpha1.TrainingRuntimeSpec{
		MLPolicy: &v1alpha1.MLPolicy{NumNodes: ptr.To[int32](2), MLPolicySource: v1alpha1.MLPolicySource{XGBoost: &v1alpha1.XGBoostMLPolicySource{}}},
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

func trackerEnv(workers, address string) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "OMP_NUM_THREADS"},
		{Name: "DMLC_TRACKER_URI", Value: address},
		{Name: "DMLC_TRACKER_PORT", Value: "29500"},
		{Name: "DMLC_TASK_ID", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
			FieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']",
		}}},
		{Name: "DMLC_NUM_WORKER", Value: workers},
	}
}

func resources(name corev1.ResourceName, amount string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{name: resource.MustParse(amount)}}
}

func TestEnforceMLPolicy(t *testing.T) {
	runtimeHas := func(name corev1.ResourceName, amount string) func(*v1alpha1.TrainingRuntimeSpec) {
		return func(s *v1alpha1.TrainingRuntimeSpec) {
			s.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Resources = resources(name, amount)
		}
	}
	jobHas := func(name corev1.ResourceName, amount string) *v1alpha1.Trainer {
		return &v1alpha1.Trainer{ResourcesPerNode: ptr.To(resources(name, amount))}
	}
	cases := map[string]struct {
		trainer          *v1alpha1.Trainer
		change           func(*v1alpha1.TrainingRuntimeSpec)
		workers, address string
	}{
		"the TrainJob's nodes":                {trainer: &v1alpha1.Trainer{NumNodes: ptr.To[int32](8)}, workers: "8"},
		"no trainer":                          {workers: "2"},
		"a worker for each GPU":               {trainer: jobHas("nvidia.com/gpu", "4"), workers: "8"},
		"GPUs of the runtime":                 {change: runtimeHas("nvidia.com/gpu", "3"), workers: "6"},
		"GPUs of the runtime, CPUs besides":   {trainer: jobHas("cpu", "4"), change: runtimeHas("nvidia.com/gpu", "3"), workers: "6"},
		"the TrainJob's before the runtime's": {trainer: jobHas("nvidia.com/gpu", "1"), change: runtimeHas("nvidia.com/gpu", "3"), workers: "2"},
		"CPUs are no workers":                 {trainer: jobHas("cpu", "16"), workers: "2"},
		"memory of a GPU is no worker":        {trainer: jobHas("nvidia.com/gpumem", "4000"), workers: "2"},
		"more than 32 bits": {
			trainer: &v1alpha1.Trainer{NumNodes: ptr.To[int32](1000000), ResourcesPerNode: ptr.To(resources("nvidia.com/gpu", "1000000"))}, workers: "1000000000000",
		},
		"the address follows job and subdomain": {
			change: func(s *v1alpha1.TrainingRuntimeSpec) {
				s.Template.Spec.ReplicatedJobs[0].Name = "host"
				s.Template.Spec.Network = &jobsetv1alpha2.Network{Subdomain: "mesh"}
			},
			workers: "2", address: "llm-host-0-0.mesh",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			info, job := newInfo(t, tc.trainer, tc.change)
			if err := New().EnforceMLPolicy(info, job); err != nil {
				t.Fatal(err)
			}
			node := info.Trainer().Container("node")
			if diff := cmp.Diff(trackerEnv(tc.workers, gocmp.Or(tc.address, "llm-node-0-0.llm")), node.Env); diff != "" {
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
		"another policy": func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.XGBoost = nil },
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
	trainer := &v1alpha1.Trainer{Env: []corev1.EnvVar{{Name: "DMLC_TRACKER_URI"}, {Name: "A"}, {Name: "DMLC_TRACKER_PORT"}, {Name: "DMLC_TASK_ID"}, {Name: "DMLC_NUM_WORKER"}}}
	info, job := newInfo(t, trainer, nil)
	var fields []string
	for _, err := range New().Validate(info, job) {
		fields = append(fields, err.Field)
	}
	if diff := cmp.Diff([]string{"spec.trainer.env[0].name", "spec.trainer.env[2].name", "spec.trainer.env[3].name", "spec.trainer.env[4].name"}, fields); diff != "" {
		t.Errorf("fields (-want +got)\n%s", diff)
	}
	info, job = newInfo(t, trainer, func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.XGBoost = nil })
	if errs := New().Validate(info, job); len(errs) != 0 {
		t.Errorf("another policy: %v", errs)
	}
}

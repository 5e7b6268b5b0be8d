package torch

import (
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

func trainJob(trainer *v1alpha1.Trainer) *v1alpha1.TrainJob {
	return &v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: "llm"}, Spec: v1alpha1.TrainJobSpec{Trainer: trainer}}
}

// torchRuntime has a trainer with a sidecar and an init container, on two nodes.
func torchRuntime(change func(*v1alpha1.TrainingRuntimeSpec)) *v1alpha1.TrainingRuntimeSpec {
	job := jobsetv1alpha2.ReplicatedJob{Name: "node"}
	job.Template.Labels = map[string]string{v1alpha1.AncestorLabel: v1alpha1.AncestorTrainer}
	job.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "node"}, {Name: "sidecar"}}
	job.Template.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "preflight"}}
	spec := &v1alpha1.TrainingRuntimeSpec{
		MLPolicy: &v1alpha1.MLPolicy{NumNodes: ptr.To[int32](2), MLPolicySource: v1alpha1.MLPolicySource{Torch: &v1alpha1.TorchMLPolicySource{}}},
		Template: v1alpha1.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{job}}},
	}
	if change != nil {
		change(spec)
	}
	return spec
}

func enforce(t *testing.T, job *v1alpha1.TrainJob, spec *v1alpha1.TrainingRuntimeSpec) *runtime.Info {
	t.Helper()
	info, err := runtime.New(job, spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := New().EnforceMLPolicy(info, job); err != nil {
		t.Fatal(err)
	}
	return info
}

// petEnv is torchrun's environment for some nodes and processes.
func petEnv(nodes, processes string) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "PET_NNODES", Value: nodes},
		{Name: "PET_NPROC_PER_NODE", Value: processes},
		{Name: "PET_NODE_RANK", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
			FieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']",
		}}},
		{Name: "PET_MASTER_ADDR", Value: "llm-node-0-0.llm"},
		{Name: "PET_MASTER_PORT", Value: "29500"},
	}
}

func TestEnforceMLPolicy(t *testing.T) {
	t.Run("without a trainer", func(t *testing.T) {
		info := enforce(t, trainJob(nil), torchRuntime(nil))
		node := info.Trainer().Container("node")
		if diff := cmp.Diff(petEnv("2", "1"), node.Env); diff != "" {
			t.Errorf("env (-want +got)\n%s", diff)
		}
		if diff := cmp.Diff([]corev1.ContainerPort{{ContainerPort: 29500}}, node.Ports); diff != "" {
			t.Errorf("ports (-want +got)\n%s", diff)
		}
		if env := info.Trainer().Container("sidecar").Env; len(env) != 0 {
			t.Errorf("env of the sidecar = %v", env)
		}
	})
	t.Run("the user's variables stand before torchrun's", func(t *testing.T) {
		info := enforce(t, trainJob(&v1alpha1.Trainer{NumNodes: ptr.To[int32](3), Env: []corev1.EnvVar{{Name: "Z", Value: "1"}}}), torchRuntime(nil))
		want := append([]corev1.EnvVar{{Name: "Z", Value: "1"}}, petEnv("3", "1")...)
		if diff := cmp.Diff(want, info.Trainer().Container("node").Env); diff != "" {
			t.Errorf("env (-want +got)\n%s", diff)
		}
		if info.Trainer().Count != 3 {
			t.Errorf("count = %d", info.Trainer().Count)
		}
	})
	t.Run("a runtime's own variable is overruled in its place", func(t *testing.T) {
		info := enforce(t, trainJob(nil), torchRuntime(func(s *v1alpha1.TrainingRuntimeSpec) {
			s.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PET_NNODES", Value: "99"}, {Name: "X", Value: "1"}}
		}))
		pet := petEnv("2", "1")
		want := append([]corev1.EnvVar{pet[0], {Name: "X", Value: "1"}}, pet[1:]...)
		if diff := cmp.Diff(want, info.Trainer().Container("node").Env); diff != "" {
			t.Errorf("env (-want +got)\n%s", diff)
		}
	})
	t.Run("the address follows job and subdomain", func(t *testing.T) {
		info := enforce(t, trainJob(nil), torchRuntime(func(s *v1alpha1.TrainingRuntimeSpec) {
			s.Template.Spec.ReplicatedJobs[0].Name = "worker"
			s.Template.Spec.Network = &jobsetv1alpha2.Network{Subdomain: "mesh"}
		}))
		if got := info.Trainer().Container("node").Env[3].Value; got != "llm-worker-0-0.mesh" {
			t.Errorf("address = %s", got)
		}
	})
	t.Run("injection", func(t *testing.T) {
		info := enforce(t, trainJob(nil), torchRuntime(func(s *v1alpha1.TrainingRuntimeSpec) {
			s.MLPolicy.Torch.EnvInjection = &v1alpha1.EnvInjection{Targets: []v1alpha1.EnvInjectionTarget{{JobName: "node", ContainerNames: []string{"preflight", "sidecar"}}}}
		}))
		for _, name := range []string{"preflight", "sidecar"} {
			container := info.Trainer().ContainerOrInit(name)
			if diff := cmp.Diff(petEnv("2", "1"), container.Env); diff != "" {
				t.Errorf("env of %s (-want +got)\n%s", name, diff)
			}
			if len(container.Ports) != 0 {
				t.Errorf("ports of %s = %v", name, container.Ports)
			}
		}
	})
	t.Run("another policy", func(t *testing.T) {
		for name, policy := range map[string]*v1alpha1.MLPolicy{"none": nil, "plain": {}} {
			info := enforce(t, trainJob(&v1alpha1.Trainer{NumNodes: ptr.To[int32](3)}), torchRuntime(func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy = policy }))
			if len(info.Trainer().Container("node").Env) != 0 {
				t.Errorf("%s: %+v", name, info.Trainer())
			}
		}
	})
	t.Run("no trainer in the runtime", func(t *testing.T) {
		enforce(t, trainJob(nil), torchRuntime(func(s *v1alpha1.TrainingRuntimeSpec) { s.Template.Spec.ReplicatedJobs[0].Template.Labels = nil }))
		enforce(t, trainJob(nil), torchRuntime(func(s *v1alpha1.TrainingRuntimeSpec) {
			s.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Name = "other"
		}))
	})
}

func TestNumProcPerNode(t *testing.T) {
	list := func(pairs ...string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return l
	}
	cases := map[string]struct {
		explicit         *int32
		requests, limits corev1.ResourceList
		want             string
	}{
		"nothing":                     {nil, nil, nil, "1"},
		"explicit":                    {ptr.To[int32](3), list("nvidia.com/gpu", "8"), nil, "3"},
		"GPUs":                        {nil, list("cpu", "4", "nvidia.com/gpu", "8"), nil, "auto"},
		"GPUs as limits only":         {nil, list("cpu", "4"), list("nvidia.com/gpu", "8"), "auto"},
		"no GPUs, in so many words":   {nil, list("cpu", "4", "nvidia.com/gpu", "0"), nil, "4"},
		"AMD":                         {nil, list("amd.com/gpu", "1"), nil, "auto"},
		"MIG":                         {nil, nil, list("nvidia.com/mig-1g.5gb", "2"), "auto"},
		"memory of a GPU is no GPU":   {nil, list("cpu", "2", "nvidia.com/gpumem", "4000"), nil, "2"},
		"torch does not see Gaudi":    {nil, list("cpu", "4"), list("habana.ai/gaudi", "8"), "8"},
		"torch does not see Neuron":   {nil, list("cpu", "4"), list("aws.amazon.com/neuroncore", "32"), "32"},
		"explicit on Gaudi":           {ptr.To[int32](1), nil, list("habana.ai/gaudi", "8"), "1"},
		"fractions round up":          {nil, list("cpu", "3500m"), nil, "4"},
		"requests before limits":      {nil, list("cpu", "2"), list("cpu", "6"), "2"},
		"limits without requests":     {nil, nil, list("cpu", "6"), "6"},
		"less than one CPU":           {nil, list("cpu", "100m"), nil, "1"},
		"memory says nothing of CPUs": {nil, list("memory", "64Gi"), nil, "1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Container{Resources: corev1.ResourceRequirements{Requests: tc.requests, Limits: tc.limits}}
			if got := numProcPerNode(&v1alpha1.Trainer{NumProcPerNode: tc.explicit}, node); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if tc.explicit == nil {
				if got := numProcPerNode(nil, node); got != tc.want {
					t.Errorf("without a trainer: got %s, want %s", got, tc.want)
				}
			}
		})
	}
}

func TestValidate(t *testing.T) {
	inject := func(target v1alpha1.EnvInjectionTarget) func(*v1alpha1.TrainingRuntimeSpec) {
		return func(s *v1alpha1.TrainingRuntimeSpec) {
			s.MLPolicy.Torch.EnvInjection = &v1alpha1.EnvInjection{Targets: []v1alpha1.EnvInjectionTarget{target}}
		}
	}
	targets := "runtime.spec.mlPolicy.torch.envInjection.targets[0]"
	cases := map[string]struct {
		trainer *v1alpha1.Trainer
		runtime func(*v1alpha1.TrainingRuntimeSpec)
		want    []string
	}{
		"fine":            {trainer: &v1alpha1.Trainer{Env: []corev1.EnvVar{{Name: "PET_STANDALONE"}}, Command: []string{"torchrun"}}},
		"no trainer":      {},
		"reserved":        {trainer: &v1alpha1.Trainer{Env: []corev1.EnvVar{{Name: "PET_NODE_RANK"}, {Name: "A"}, {Name: "PET_MASTER_ADDR"}}}, want: []string{"spec.trainer.env[0].name", "spec.trainer.env[2].name"}},
		"injected":        {runtime: inject(v1alpha1.EnvInjectionTarget{JobName: "node", ContainerNames: []string{"preflight"}})},
		"unknown job":     {runtime: inject(v1alpha1.EnvInjectionTarget{JobName: "nodes", ContainerNames: []string{"sidecar"}}), want: []string{targets + ".jobName"}},
		"unknown sidecar": {runtime: inject(v1alpha1.EnvInjectionTarget{JobName: "node", ContainerNames: []string{"sidecar", "x"}}), want: []string{targets + ".containerNames[1]"}},
		"another policy": {
			trainer: &v1alpha1.Trainer{Env: []corev1.EnvVar{{Name: "PET_NODE_RANK"}}, Command: []string{"tune", "run"}},
			runtime: func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.Torch = nil },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := trainJob(tc.trainer)
			info, err := runtime.New(job, torchRuntime(tc.runtime))
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
}

package flux

import (
	"context"
	"strings"
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

func fluxRuntime(change func(*v1alpha1.TrainingRuntimeSpec)) *v1alpha1.TrainingRuntimeSpec {
	node := jobsetv1alpha2.ReplicatedJob{Name: "node"}
	node.Template.Labels = map[string]string{v1alpha1.AncestorLabel: v1alpha1.AncestorTrainer}
	node.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "node", Command: []string{"lmp"}, Args: []string{"-in", "in file"}}, {Name: "sidecar"}}
	spec := &v1alpha1.TrainingRuntimeSpec{
		MLPolicy: &v1alpha1.MLPolicy{NumNodes: ptr.To[int32](1), MLPolicySource: v1alpha1.MLPolicySource{Flux: &v1alpha1.FluxMLPolicySource{NumProcPerNode: ptr.To[int32](1)}}},
		Template: v1alpha1.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{node}}},
	}
	if change != nil {
		change(spec)
	}
	return spec
}

func trainJob(trainer *v1alpha1.Trainer) *v1alpha1.TrainJob {
	return &v1alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm", UID: "u-llm"}, Spec: v1alpha1.TrainJobSpec{Trainer: trainer},
	}
}

func enforce(t *testing.T, job *v1alpha1.TrainJob, spec *v1alpha1.TrainingRuntimeSpec) *runtime.Info {
	t.Helper()
	info, err := runtime.New(job, spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := New(nil, nil).EnforceMLPolicy(info, job); err != nil {
		t.Fatal(err)
	}
	return info
}

// files returns the ConfigMap's data.
func files(t *testing.T, job *v1alpha1.TrainJob, spec *v1alpha1.TrainingRuntimeSpec) map[string]string {
	t.Helper()
	objects, err := New(nil, nil).Build(context.Background(), enforce(t, job, spec), job)
	if err != nil || len(objects) != 2 {
		t.Fatalf("%d objects, error %v", len(objects), err)
	}
	return objects[1].(*corev1.ConfigMap).Data
}

func TestEnforceMLPolicy(t *testing.T) {
	job := trainJob(&v1alpha1.Trainer{
		NumNodes: ptr.To[int32](2), Command: []string{"lmp", "-in", "in.file"}, Args: []string{"-v", "x 1"},
		Env: []corev1.EnvVar{{Name: "FLUX_VIEW_IMAGE", Value: "flux-view-rocky:9"}},
	})
	before := job.DeepCopy()
	info := enforce(t, job, fluxRuntime(nil))
	empty := func(medium corev1.StorageMedium) corev1.VolumeSource {
		return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}
	}
	want := corev1.PodSpec{
		Volumes: []corev1.Volume{
			{Name: "spack-install", VolumeSource: empty("")},
			{Name: "flux-install", VolumeSource: empty("")},
			{Name: "flux-entrypoint", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "llm-flux-entrypoint"}, DefaultMode: ptr.To[int32](0o755),
			}}},
			{Name: "shared-memory", VolumeSource: empty("Memory")},
			{Name: "flux-curve", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "llm-flux-curve", DefaultMode: ptr.To[int32](0o400)}}},
		},
		InitContainers: []corev1.Container{{
			Name: "flux-installer", Image: "flux-view-rocky:9", Command: []string{"/bin/bash", "/etc/flux-config/init.sh"},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "flux-install", MountPath: "/mnt/flux"},
				{Name: "flux-entrypoint", MountPath: "/etc/flux-config", ReadOnly: true},
			},
		}},
		Containers: []corev1.Container{{
			Name: "node", Command: []string{"/bin/bash", "/etc/flux-config/entrypoint.sh", "lmp", "-in", "in.file", "-v", "x 1"},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "flux-install", MountPath: "/mnt/flux"},
				{Name: "spack-install", MountPath: "/opt/software"},
				{Name: "flux-entrypoint", MountPath: "/etc/flux-config", ReadOnly: true},
				{Name: "flux-curve", MountPath: "/curve", ReadOnly: true},
				{Name: "shared-memory", MountPath: "/dev/shm"},
			},
		}, {Name: "sidecar"}},
	}
	if diff := cmp.Diff(want, *info.Trainer().PodSpec()); diff != "" {
		t.Errorf("pods (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(before, job); diff != "" {
		t.Errorf("the TrainJob changed (-before +after)\n%s", diff)
	}
	t.Run("the runtime's command", func(t *testing.T) {
		info := enforce(t, trainJob(nil), fluxRuntime(nil))
		node := info.Trainer().Container("node")
		if diff := cmp.Diff([]string{"/bin/bash", "/etc/flux-config/entrypoint.sh", "lmp", "-in", "in file"}, node.Command); diff != "" || node.Args != nil {
			t.Errorf("args %v, command (-want +got)\n%s", node.Args, diff)
		}
	})
	for name, change := range map[string]func(*v1alpha1.TrainingRuntimeSpec){
		"another policy": func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.Flux = nil },
		"no policy":      func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy = nil },
		"no trainer":     func(s *v1alpha1.TrainingRuntimeSpec) { s.Template.Spec.ReplicatedJobs[0].Template.Labels = nil },
		"no node": func(s *v1alpha1.TrainingRuntimeSpec) {
			s.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Name = "main"
		},
	} {
		t.Run(name+" is left alone", func(t *testing.T) {
			info := enforce(t, trainJob(nil), fluxRuntime(change))
			if pod := info.PodSets[0].PodSpec(); len(pod.Volumes)+len(pod.InitContainers) != 0 {
				t.Errorf("pods = %+v", pod)
			}
			if objects, err := New(nil, nil).Build(context.Background(), info, trainJob(nil)); err != nil || len(objects) != 0 {
				t.Errorf("%d objects, error %v", len(objects), err)
			}
		})
	}
}

func TestJobFile(t *testing.T) {
	resources := func(name corev1.ResourceName, amount string) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Limits: corev1.ResourceList{name: resource.MustParse(amount)}}
	}
	cases := map[string]struct {
		trainer *v1alpha1.Trainer
		want    string
	}{
		"no trainer":        {nil, "lead='llm-node-0-0' hosts='llm-node-0-[0]' cores='0' gpus='' run_flags='-N 1 -n 1'"},
		"nodes and tasks":   {&v1alpha1.Trainer{NumNodes: ptr.To[int32](4), NumProcPerNode: ptr.To[int32](3)}, "lead='llm-node-0-0' hosts='llm-node-0-[0-3]' cores='0-2' gpus='' run_flags='-N 4 -n 12'"},
		"a task for all":    {&v1alpha1.Trainer{ResourcesPerNode: resources("nvidia.com/gpu", "8")}, "lead='llm-node-0-0' hosts='llm-node-0-[0]' cores='0' gpus='0-7' run_flags='-N 1 -n 1 -g 8'"},
		"a GPU for each":    {&v1alpha1.Trainer{NumProcPerNode: ptr.To[int32](8), ResourcesPerNode: resources("nvidia.com/gpu", "8")}, "lead='llm-node-0-0' hosts='llm-node-0-[0]' cores='0-7' gpus='0-7' run_flags='-N 1 -n 8 -g 1'"},
		"GPUs left over":    {&v1alpha1.Trainer{NumProcPerNode: ptr.To[int32](3), ResourcesPerNode: resources("nvidia.com/gpu", "8")}, "lead='llm-node-0-0' hosts='llm-node-0-[0]' cores='0-2' gpus='0-7' run_flags='-N 1 -n 3 -g 2'"},
		"more tasks":        {&v1alpha1.Trainer{NumProcPerNode: ptr.To[int32](16), ResourcesPerNode: resources("nvidia.com/gpu", "8")}, "lead='llm-node-0-0' hosts='llm-node-0-[0]' cores='0-15' gpus='0-7' run_flags='-N 1 -n 16'"},
		"more than 32 bits": {&v1alpha1.Trainer{NumNodes: ptr.To[int32](1 << 30), NumProcPerNode: ptr.To[int32](8)}, "lead='llm-node-0-0' hosts='llm-node-0-[0-1073741823]' cores='0-7' gpus='' run_flags='-N 1073741824 -n 8589934592'"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := files(t, trainJob(tc.trainer), fluxRuntime(nil))["job.sh"]
			if diff := cmp.Diff(tc.want, strings.ReplaceAll(strings.TrimSuffix(got, "\n"), "\n", " ")); diff != "" {
				t.Errorf("job.sh (-want +got)\n%s", diff)
			}
		})
	}
	t.Run("the runtime's tasks", func(t *testing.T) {
		got := files(t, trainJob(nil), fluxRuntime(func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.Flux.NumProcPerNode = ptr.To[int32](4) }))
		if !strings.Contains(got["job.sh"], "-n 4") {
			t.Errorf("job.sh = %s", got["job.sh"])
		}
	})
	t.Run("no default", func(t *testing.T) {
		files(t, trainJob(nil), fluxRuntime(func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.Flux.NumProcPerNode = nil }))
	})
}

func TestBrokerConfiguration(t *testing.T) {
	job := trainJob(&v1alpha1.Trainer{NumNodes: ptr.To[int32](4), Env: []corev1.EnvVar{{Name: "FLUX_QUEUE_POLICY", Value: "easy"}}})
	got := files(t, job, fluxRuntime(func(s *v1alpha1.TrainingRuntimeSpec) {
		s.Template.Spec.Network = &jobsetv1alpha2.Network{Subdomain: "mesh"}
		s.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{
			{Name: "FLUX_NETWORK_DEVICE", Value: "ib0"}, {Name: "FLUX_QUEUE_POLICY", Value: "hybrid"}}
	}))["broker.toml"]
	for _, line := range []string{
		`default_bind = "tcp://ib0:%p"`,
		`default_connect = "tcp://%h.mesh:%p"`,
		`hosts = [{ host = "llm-node-0-[0-3]" }]`,
		`curve_cert = "/mnt/flux/config/etc/curve/curve.cert"`,
		`queue-policy = "easy"`,
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line %s in\n%s", line, got)
		}
	}
	defaults := files(t, trainJob(nil), fluxRuntime(nil))["broker.toml"]
	if !strings.Contains(defaults, `"tcp://eth0:%p"`) || !strings.Contains(defaults, `"fcfs"`) {
		t.Errorf("defaults:\n%s", defaults)
	}
}

func TestValidate(t *testing.T) {
	env := func(name, value string) []corev1.EnvVar {
		return []corev1.EnvVar{{Name: "A"}, {Name: name, Value: value}}
	}
	pods := "runtime.spec.template.spec.replicatedJobs[node].template.spec.template.spec."
	cases := map[string]struct {
		trainer *v1alpha1.Trainer
		change  func(*v1alpha1.TrainingRuntimeSpec)
		want    []string
	}{
		"fine":         {&v1alpha1.Trainer{NumProcPerNode: ptr.To[int32](4), Env: env("FLUX_NETWORK_DEVICE", "ens3.100")}, nil, nil},
		"no trainer":   {nil, nil, nil},
		"no processes": {nil, func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.Flux.NumProcPerNode = ptr.To[int32](0) }, []string{"runtime.spec.mlPolicy.flux.numProcPerNode"}},
		"the installer's name is taken": {nil, func(s *v1alpha1.TrainingRuntimeSpec) {
			s.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "a"}, {Name: "flux-installer"}}
		}, []string{pods + "initContainers[1].name"}},
		"a device that breaks the file": {&v1alpha1.Trainer{Env: env("FLUX_NETWORK_DEVICE", "eth0\"\n")}, nil, []string{"spec.trainer.env[1].value"}},
		"a queue of the runtime": {nil, func(s *v1alpha1.TrainingRuntimeSpec) {
			s.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Env = env("FLUX_QUEUE_POLICY", "a b")
		}, []string{pods + "containers[node].env[FLUX_QUEUE_POLICY]"}},
		"no image": {&v1alpha1.Trainer{Env: env("FLUX_VIEW_IMAGE", "")}, nil, []string{"spec.trainer.env[1].value"}},
		"a runtime without trainer": {&v1alpha1.Trainer{Env: env("FLUX_QUEUE_POLICY", "?")}, func(s *v1alpha1.TrainingRuntimeSpec) {
			s.Template.Spec.ReplicatedJobs[0].Template.Labels = nil
		}, []string{"spec.trainer.env[1].value"}},
		"another policy": {&v1alpha1.Trainer{Env: env("FLUX_QUEUE_POLICY", "?")}, func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.Flux = nil }, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := trainJob(tc.trainer)
			info, err := runtime.New(job, fluxRuntime(tc.change))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, err := range New(nil, nil).Validate(info, job) {
				got = append(got, err.Field)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("fields (-want +got)\n%s", diff)
			}
		})
	}
}

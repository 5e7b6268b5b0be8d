package jobset

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
)

func replicated(name, ancestor string, containers ...string) jobsetv1alpha2.ReplicatedJob {
	job := jobsetv1alpha2.ReplicatedJob{Name: name, Replicas: 1}
	if ancestor != "" {
		job.Template.Labels = map[string]string{v1alpha1.AncestorLabel: ancestor}
	}
	for _, container := range containers {
		job.Template.Spec.Template.Spec.Containers = append(job.Template.Spec.Template.Spec.Containers, corev1.Container{Name: container})
	}
	return job
}

func fullRuntime() []jobsetv1alpha2.ReplicatedJob {
	node := replicated("node", "trainer", "node", "sidecar")
	node.Template.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "setup"}}
	return []jobsetv1alpha2.ReplicatedJob{
		replicated("dataset-initializer", "dataset-initializer", "dataset-initializer"),
		replicated("model-initializer", "model-initializer", "model-initializer"),
		node,
	}
}

// unlabelledRuntime has jobs that are known by their names only.
func unlabelledRuntime() []jobsetv1alpha2.ReplicatedJob {
	jobs := fullRuntime()
	for i := range jobs {
		jobs[i].Template.Labels = nil
	}
	return jobs
}

func patch(job string, pod *v1alpha1.PodSpecPatch) v1alpha1.RuntimePatch {
	return v1alpha1.RuntimePatch{Manager: "example.com/m", TrainingRuntimeSpec: &v1alpha1.TrainingRuntimeSpecPatch{
		Template: &v1alpha1.JobSetTemplatePatch{Spec: &v1alpha1.JobSetSpecPatch{ReplicatedJobs: []v1alpha1.ReplicatedJobPatch{{
			Name:     job,
			Template: &v1alpha1.JobTemplatePatch{Spec: &v1alpha1.JobSpecPatch{Template: &v1alpha1.PodTemplatePatch{Spec: pod}}},
		}}}},
	}}
}

func TestValidate(t *testing.T) {
	const jobsPath = "runtime.spec.template.spec.replicatedJobs"
	const patchPath = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0]"
	env := []corev1.EnvVar{{Name: "A"}}
	everything := v1alpha1.TrainJobSpec{
		Trainer:     &v1alpha1.Trainer{},
		Initializer: &v1alpha1.Initializer{Dataset: &v1alpha1.DatasetInitializer{}, Model: &v1alpha1.ModelInitializer{}},
		RuntimePatches: []v1alpha1.RuntimePatch{
			patch("node", &v1alpha1.PodSpecPatch{
				InitContainers: []v1alpha1.ContainerPatch{{Name: "setup", Env: env}},
				Containers:     []v1alpha1.ContainerPatch{{Name: "sidecar", Env: env}, {Name: "node"}},
			}),
			{Manager: "example.com/nothing"},
		},
	}
	patches := func(p ...v1alpha1.RuntimePatch) v1alpha1.TrainJobSpec {
		return v1alpha1.TrainJobSpec{RuntimePatches: p}
	}
	with := func(p v1alpha1.RuntimePatch, change func(*v1alpha1.RuntimePatch)) v1alpha1.RuntimePatch {
		change(&p)
		return p
	}
	cases := map[string]struct {
		spec v1alpha1.TrainJobSpec
		jobs []jobsetv1alpha2.ReplicatedJob
		want []string
	}{
		"everything in its place": {spec: everything, jobs: fullRuntime()},
		"no jobs":                 {want: []string{jobsPath}},
		"no place for anything": {
			spec: v1alpha1.TrainJobSpec{Trainer: everything.Trainer, Initializer: everything.Initializer},
			jobs: []jobsetv1alpha2.ReplicatedJob{replicated("server", "", "node")},
			want: []string{"spec.trainer", "spec.initializer.dataset", "spec.initializer.model"},
		},
		"everything in its place, by name": {
			spec: v1alpha1.TrainJobSpec{
				Trainer:     &v1alpha1.Trainer{Image: ptr.To("mine"), Command: []string{"a"}, Args: []string{"b"}, Env: env},
				Initializer: everything.Initializer,
			},
			jobs: unlabelledRuntime(),
		},
		"a job of the right name without the container": {
			spec: v1alpha1.TrainJobSpec{Trainer: everything.Trainer, Initializer: everything.Initializer},
			jobs: []jobsetv1alpha2.ReplicatedJob{
				replicated("node", "", "main"), replicated("dataset-initializer", "", "main"), replicated("model-initializer", "", "main"),
			},
			want: []string{"spec.trainer", "spec.initializer.dataset", "spec.initializer.model"},
		},
		"a job of the right name that is something else": {
			spec: v1alpha1.TrainJobSpec{Trainer: everything.Trainer},
			jobs: []jobsetv1alpha2.ReplicatedJob{replicated("node", "launcher", "node")},
			want: []string{"spec.trainer"},
		},
		"what a name is not enough for": {
			spec: v1alpha1.TrainJobSpec{Trainer: &v1alpha1.Trainer{
				NumNodes: ptr.To[int32](2), NumProcPerNode: ptr.To[int32](2), ResourcesPerNode: &corev1.ResourceRequirements{},
			}},
			jobs: unlabelledRuntime(),
			want: []string{"spec.trainer.numNodes", "spec.trainer.numProcPerNode", "spec.trainer.resourcesPerNode"},
		},
		"other ancestors are nothing": {jobs: []jobsetv1alpha2.ReplicatedJob{replicated("launcher", "launcher", "main")}},
		"wrong containers": {
			spec: v1alpha1.TrainJobSpec{Initializer: everything.Initializer},
			jobs: []jobsetv1alpha2.ReplicatedJob{
				replicated("a", "trainer", "trainer"), replicated("b", "dataset-initializer", "node"), replicated("c", "model-initializer", "node"),
			},
			want: []string{
				jobsPath + "[0].template.spec.template.spec.containers",
				jobsPath + "[1].template.spec.template.spec.containers",
				jobsPath + "[2].template.spec.template.spec.containers",
			},
		},
		"two trainers": {
			jobs: []jobsetv1alpha2.ReplicatedJob{replicated("a", "trainer", "node"), replicated("b", "trainer", "node")},
			want: []string{jobsPath + "[1].template.metadata.labels[trainer.kubeflow.org/trainjob-ancestor-step]"},
		},
		"a trainer of many Jobs": {
			jobs: func() []jobsetv1alpha2.ReplicatedJob {
				job := replicated("a", "trainer", "node")
				job.Replicas = 2
				return []jobsetv1alpha2.ReplicatedJob{job}
			}(),
			want: []string{jobsPath + "[0].replicas"},
		},
		"more jobs than a status has room for": {
			jobs: func() []jobsetv1alpha2.ReplicatedJob {
				var jobs []jobsetv1alpha2.ReplicatedJob
				for i := range 101 {
					jobs = append(jobs, replicated(fmt.Sprintf("server-%d", i), "", "server"))
				}
				return jobs
			}(),
			want: []string{jobsPath},
		},
		"a manager without a domain": {
			spec: patches(with(patch("node", nil), func(p *v1alpha1.RuntimePatch) { p.Manager = "me" })),
			jobs: fullRuntime(), want: []string{"spec.runtimePatches[0].manager"},
		},
		"a patch of an unknown job": {
			spec: patches(patch("nodes", nil)), jobs: fullRuntime(), want: []string{patchPath + ".name"},
		},
		"patches of unknown containers": {
			spec: patches(patch("node", &v1alpha1.PodSpecPatch{
				InitContainers: []v1alpha1.ContainerPatch{{Name: "sidecar"}},
				Containers:     []v1alpha1.ContainerPatch{{Name: "node"}, {Name: "setup"}},
			})),
			jobs: fullRuntime(),
			want: []string{
				patchPath + ".template.spec.template.spec.initContainers[0].name",
				patchPath + ".template.spec.template.spec.containers[1].name",
			},
		},
		"patches of the environment that the TrainJob sets": {
			spec: patches(
				patch("node", &v1alpha1.PodSpecPatch{Containers: []v1alpha1.ContainerPatch{{Name: "node", Env: env}}}),
				patch("dataset-initializer", &v1alpha1.PodSpecPatch{Containers: []v1alpha1.ContainerPatch{{Name: "dataset-initializer", Env: env}}}),
			),
			jobs: fullRuntime(),
			want: []string{
				patchPath + ".template.spec.template.spec.containers[0].env",
				strings.Replace(patchPath, "runtimePatches[0]", "runtimePatches[1]", 1) + ".template.spec.template.spec.containers[0].env",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: "llm"}, Spec: tc.spec}
			info, err := runtime.New(job, &v1alpha1.TrainingRuntimeSpec{
				Template: v1alpha1.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: tc.jobs}},
			})
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

func TestValidateName(t *testing.T) {
	// A pod of job node is called NAME-node-0-INDEX-xxxxx.
	overhead := len("-node-0-0-xxxxx")
	cases := map[string]struct {
		length   int
		numNodes *int32
		jobs     []jobsetv1alpha2.ReplicatedJob
		want     bool
	}{
		"short":                  {length: 3},
		"just fits":              {length: 63 - overhead},
		"one too long":           {length: 64 - overhead, want: true},
		"ten nodes fit":          {length: 63 - overhead, numNodes: ptr.To[int32](10)},
		"eleven nodes do not":    {length: 63 - overhead, numNodes: ptr.To[int32](11), want: true},
		"a longer job among all": {length: 50 - overhead, jobs: []jobsetv1alpha2.ReplicatedJob{replicated("parameter-servers-1", "", "a")}, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.TrainJob{
				ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a", tc.length)},
				Spec:       v1alpha1.TrainJobSpec{Trainer: &v1alpha1.Trainer{NumNodes: tc.numNodes}},
			}
			info, err := runtime.New(job, &v1alpha1.TrainingRuntimeSpec{
				Template: v1alpha1.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: append(tc.jobs, replicated("node", "trainer", "node"))}},
			})
			if err != nil {
				t.Fatal(err)
			}
			errs := New(nil, nil).Validate(info, job)
			if (len(errs) > 0) != tc.want || tc.want && errs[0].Field != "metadata.name" {
				t.Errorf("errors = %v, want one: %v", errs, tc.want)
			}
		})
	}
}

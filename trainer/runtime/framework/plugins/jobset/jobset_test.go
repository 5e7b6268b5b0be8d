package jobset

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
)

func newInfo(t *testing.T, job *v1alpha1.TrainJob, jobs ...jobsetv1alpha2.ReplicatedJob) *runtime.Info {
	t.Helper()
	info, err := runtime.New(job, &v1alpha1.TrainingRuntimeSpec{
		Template: v1alpha1.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: jobs}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func build(t *testing.T, job *v1alpha1.TrainJob, info *runtime.Info) *jobsetv1alpha2.JobSet {
	t.Helper()
	objects, err := New(nil, nil).Build(context.Background(), info, job)
	if err != nil || len(objects) != 1 {
		t.Fatalf("built %v, error %v", objects, err)
	}
	return objects[0].(*jobsetv1alpha2.JobSet)
}

func TestBuildTrainer(t *testing.T) {
	node := replicated("node", "trainer", "node", "sidecar")
	node.Template.Spec.Template.Spec.Containers[0] = corev1.Container{
		Name: "node", Image: "runtime", Command: []string{"runtime"}, Args: []string{"runtime"}, Env: []corev1.EnvVar{{Name: "A", Value: "runtime"}},
	}
	cases := map[string]struct {
		trainer *v1alpha1.Trainer
		want    corev1.Container
	}{
		"nothing": {nil, node.Template.Spec.Template.Spec.Containers[0]},
		"empty":   {&v1alpha1.Trainer{}, node.Template.Spec.Template.Spec.Containers[0]},
		"all": {
			&v1alpha1.Trainer{Image: ptr.To("job"), Command: []string{"job"}, Args: []string{"a", "b"}, Env: []corev1.EnvVar{{Name: "B", Value: "job"}, {Name: "A", Value: "job"}}},
			corev1.Container{Name: "node", Image: "job", Command: []string{"job"}, Args: []string{"a", "b"}, Env: []corev1.EnvVar{{Name: "A", Value: "job"}, {Name: "B", Value: "job"}}},
		},
		"a command without arguments keeps the runtime's": {
			&v1alpha1.Trainer{Command: []string{"job"}},
			corev1.Container{Name: "node", Image: "runtime", Command: []string{"job"}, Args: []string{"runtime"}, Env: []corev1.EnvVar{{Name: "A", Value: "runtime"}}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{Trainer: tc.trainer}}
			jobSet := build(t, job, newInfo(t, job, *node.DeepCopy()))
			containers := jobSet.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers
			if diff := cmp.Diff(tc.want, containers[0]); diff != "" {
				t.Errorf("container (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(node.Template.Spec.Template.Spec.Containers[1], containers[1]); diff != "" {
				t.Errorf("sidecar (-want +got)\n%s", diff)
			}
		})
	}
}

func TestBuildInitializers(t *testing.T) {
	jobs := fullRuntime()
	jobs[0].Template.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "STORAGE_URI", Value: "runtime"}}
	job := &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{Initializer: &v1alpha1.Initializer{
		Dataset: &v1alpha1.DatasetInitializer{
			StorageURI: ptr.To("hf://data"), Env: []corev1.EnvVar{{Name: "A", Value: "1"}}, SecretRef: &corev1.LocalObjectReference{Name: "hub"},
		},
		Model: &v1alpha1.ModelInitializer{StorageURI: ptr.To("hf://model"), Env: []corev1.EnvVar{{Name: "STORAGE_URI", Value: "mine"}}},
	}}}
	jobSet := build(t, job, newInfo(t, job, jobs...))
	dataset := jobSet.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0]
	if diff := cmp.Diff([]corev1.EnvVar{{Name: "STORAGE_URI", Value: "hf://data"}, {Name: "A", Value: "1"}}, dataset.Env); diff != "" {
		t.Errorf("env of the dataset (-want +got)\n%s", diff)
	}
	if len(dataset.EnvFrom) != 1 || dataset.EnvFrom[0].SecretRef.Name != "hub" {
		t.Errorf("envFrom of the dataset = %v", dataset.EnvFrom)
	}
	model := jobSet.Spec.ReplicatedJobs[1].Template.Spec.Template.Spec.Containers[0]
	if diff := cmp.Diff([]corev1.EnvVar{{Name: "STORAGE_URI", Value: "mine"}}, model.Env); diff != "" {
		t.Errorf("env of the model (-want +got)\n%s", diff)
	}
	if len(model.EnvFrom) != 0 {
		t.Errorf("envFrom of the model = %v", model.EnvFrom)
	}
}

func TestBuildCountsAndSuspend(t *testing.T) {
	for _, suspend := range []*bool{nil, ptr.To(false), ptr.To(true)} {
		job := &v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llm"}, Spec: v1alpha1.TrainJobSpec{Suspend: suspend}}
		info := newInfo(t, job, fullRuntime()...)
		info.Trainer().Count = 7
		jobSet := build(t, job, info)
		if diff := cmp.Diff(suspend, jobSet.Spec.Suspend); diff != "" {
			t.Errorf("suspend (-want +got)\n%s", diff)
		}
		for i, want := range []int32{1, 1, 7} {
			spec := jobSet.Spec.ReplicatedJobs[i].Template.Spec
			if *spec.Parallelism != want || *spec.Completions != want {
				t.Errorf("job %d: parallelism %d, completions %d, want %d", i, *spec.Parallelism, *spec.Completions, want)
			}
		}
		if jobSet.Name != "llm" || jobSet.Namespace != "ns" || !metav1.IsControlledBy(jobSet, job) {
			t.Errorf("metadata = %+v", jobSet.ObjectMeta)
		}
	}
}

func TestIdentifyPodNetwork(t *testing.T) {
	job := &v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: "llm"}}
	server := replicated("server", "", "a")
	server.Replicas = 2
	info := newInfo(t, job, server, replicated("node", "trainer", "node"))
	info.PodSets[0].Count, info.PodSets[1].Count = 2, 3
	if err := New(nil, nil).IdentifyPodNetwork(info, job); err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"llm-server-0-0.llm", "llm-server-0-1.llm", "llm-server-1-0.llm", "llm-server-1-1.llm"},
		{"llm-node-0-0.llm", "llm-node-0-1.llm", "llm-node-0-2.llm"},
	}
	if diff := cmp.Diff(want, [][]string{slices.Collect(info.PodSets[0].Endpoints), slices.Collect(info.PodSets[1].Endpoints)}); diff != "" {
		t.Errorf("endpoints (-want +got)\n%s", diff)
	}
}

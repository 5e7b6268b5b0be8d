package runtime

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// One process beside several accelerators is a mistake more often than not: it works, and wastes them.
func TestWarnings(t *testing.T) {
	torch := &v1alpha1.MLPolicy{MLPolicySource: v1alpha1.MLPolicySource{Torch: &v1alpha1.TorchMLPolicySource{}}}
	mpi := &v1alpha1.MLPolicy{MLPolicySource: v1alpha1.MLPolicySource{MPI: &v1alpha1.MPIMLPolicySource{}}}
	jax := &v1alpha1.MLPolicy{MLPolicySource: v1alpha1.MLPolicySource{JAX: &v1alpha1.JAXMLPolicySource{}}}
	limits := func(name corev1.ResourceName, amount string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{name: resource.MustParse(amount)}}
	}
	claims := corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpus"}}}
	for name, tc := range map[string]struct {
		policy    *v1alpha1.MLPolicy
		processes *int32
		resources corev1.ResourceRequirements
		want      string
	}{
		"one process, 8 GPUs":             {torch, ptr.To[int32](1), limits("nvidia.com/gpu", "8"), "8 nvidia.com/gpu"},
		"one process of MPI, 4 TPUs":      {mpi, ptr.To[int32](1), limits("google.com/tpu", "4"), "4 google.com/tpu"},
		"one process, one GPU":            {torch, ptr.To[int32](1), limits("nvidia.com/gpu", "1"), ""},
		"8 processes, 8 GPUs":             {torch, ptr.To[int32](8), limits("nvidia.com/gpu", "8"), ""},
		"as many as there are":            {torch, nil, limits("nvidia.com/gpu", "8"), ""},
		"JAX drives all with one process": {jax, ptr.To[int32](1), limits("nvidia.com/gpu", "8"), ""},
		"devices of claims":               {torch, nil, claims, "resource claims"},
		"so many for claims":              {torch, ptr.To[int32](8), claims, ""},
		"CPUs":                            {torch, nil, limits("cpu", "8"), ""},
		"no policy":                       {nil, ptr.To[int32](1), limits("nvidia.com/gpu", "8"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			job := jobsetv1alpha2.ReplicatedJob{Name: "node", Replicas: 1}
			job.Template.Labels = map[string]string{v1alpha1.AncestorLabel: v1alpha1.AncestorTrainer}
			job.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "node", Resources: tc.resources}}
			trainJob := &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{Trainer: &v1alpha1.Trainer{NumProcPerNode: tc.processes}}}
			info, err := New(trainJob, &v1alpha1.TrainingRuntimeSpec{MLPolicy: tc.policy, Template: v1alpha1.JobSetTemplateSpec{
				Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{job}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			got := texts(info.Warnings(trainJob), ReasonAcceleratorsIdle)
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) || tc.want != "" && !strings.HasPrefix(got, "spec.trainer.numProcPerNode: ") {
				t.Errorf("warnings = %q, want %q", got, tc.want)
			}
			trainJob.Spec.Trainer = nil
			if got := info.Warnings(trainJob); tc.processes != nil && tc.want != "" && got != nil {
				t.Errorf("without spec.trainer: %q", got)
			}
		})
	}
}

// texts joins the texts of warnings of one reason.
func texts(warnings []Warning, reason string) string {
	var list []string
	for _, warning := range warnings {
		if warning.Reason == reason {
			list = append(list, warning.Text)
		}
	}
	return strings.Join(list, "; ")
}

// What an initializer fetches into its own pod is lost, but for a cache, which serves it over the network.
func TestInitializersWithoutVolume(t *testing.T) {
	initializer := func(name string, mounts ...string) jobsetv1alpha2.ReplicatedJob {
		job := jobsetv1alpha2.ReplicatedJob{Name: name, Replicas: 1}
		job.Template.Labels = map[string]string{v1alpha1.AncestorLabel: name}
		container := corev1.Container{Name: name}
		for _, mount := range mounts {
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: mount})
		}
		job.Template.Spec.Template.Spec.Containers = []corev1.Container{container}
		return job
	}
	dataset := func(uri string) *v1alpha1.Initializer {
		return &v1alpha1.Initializer{Dataset: &v1alpha1.DatasetInitializer{StorageURI: &uri}}
	}
	both := dataset("hf://tatsu-lab/alpaca")
	both.Model = &v1alpha1.ModelInitializer{}
	const datasetLost, modelLost = "spec.initializer.dataset: ", "spec.initializer.model: "
	for name, tc := range map[string]struct {
		initializer *v1alpha1.Initializer
		jobs        []jobsetv1alpha2.ReplicatedJob
		want        []string
	}{
		"no initializer":        {nil, []jobsetv1alpha2.ReplicatedJob{initializer("dataset-initializer")}, nil},
		"with its volume":       {both, []jobsetv1alpha2.ReplicatedJob{initializer("dataset-initializer", "initializer"), initializer("model-initializer", "a", "initializer")}, nil},
		"without a volume":      {both, []jobsetv1alpha2.ReplicatedJob{initializer("dataset-initializer"), initializer("model-initializer")}, []string{datasetLost, modelLost}},
		"with another volume":   {both, []jobsetv1alpha2.ReplicatedJob{initializer("dataset-initializer", "initializer"), initializer("model-initializer", "model")}, []string{modelLost}},
		"a URI of the runtime":  {&v1alpha1.Initializer{Dataset: &v1alpha1.DatasetInitializer{}}, []jobsetv1alpha2.ReplicatedJob{initializer("dataset-initializer")}, []string{datasetLost}},
		"a cache":               {dataset("cache://schema/table"), []jobsetv1alpha2.ReplicatedJob{initializer("dataset-initializer")}, nil},
		"a job that is missing": {both, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			trainJob := &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{Initializer: tc.initializer}}
			info, err := New(trainJob, &v1alpha1.TrainingRuntimeSpec{Template: v1alpha1.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: tc.jobs}}})
			if err != nil {
				t.Fatal(err)
			}
			got := info.Warnings(trainJob)
			if !slices.EqualFunc(got, tc.want, func(w Warning, prefix string) bool {
				return w.Reason == ReasonInitializerHasNoVolume && strings.HasPrefix(w.Text, prefix)
			}) {
				t.Errorf("warnings = %+v, want %q", got, tc.want)
			}
		})
	}
}

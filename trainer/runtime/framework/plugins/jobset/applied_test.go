package jobset

import (
	"context"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/apply"
)

// ownedByTrainer is the managed fields entry that an API server writes for an apply of wantedJobSet.
const ownedByTrainer = `{
	"f:metadata":{"f:labels":{"f:team":{}},"f:ownerReferences":{"k:{\"uid\":\"u\"}":{}}},
	"f:spec":{"f:replicatedJobs":{"k:{\"name\":\"node\"}":{
		".":{},"f:name":{},
		"f:template":{
			"f:metadata":{"f:labels":{"f:trainer.kubeflow.org/trainjob-ancestor-step":{}}},
			"f:spec":{"f:completions":{},"f:parallelism":{},"f:template":{"f:spec":{
				"f:containers":{"k:{\"name\":\"node\"}":{
					".":{},"f:name":{},"f:image":{},"f:command":{},
					"f:env":{"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}}},
					"f:ports":{"k:{\"containerPort\":29500,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}},
					"f:resources":{"f:limits":{"f:nvidia.com/gpu":{}}}
				}},
				"f:nodeSelector":{"f:pool":{}},
				"f:tolerations":{}
			}}}
		}
	}},"f:suspend":{}}
}`

// wantedJobSet builds the JobSet of a small TrainJob.
func wantedJobSet(t *testing.T, change func(*jobsetv1alpha2.JobSet)) *jobsetv1alpha2.JobSet {
	t.Helper()
	job := jobsetv1alpha2.ReplicatedJob{Name: "node"}
	job.Template.Labels = map[string]string{v1alpha1.AncestorLabel: v1alpha1.AncestorTrainer}
	job.Template.Spec.Template.Spec = corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: "node", Image: "train:1", Command: []string{"torchrun", "train.py"},
			Env:       []corev1.EnvVar{{Name: "A", Value: "1"}},
			Ports:     []corev1.ContainerPort{{ContainerPort: 29500}},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}},
		}},
		NodeSelector: map[string]string{"pool": "a100"},
		Tolerations:  []corev1.Toleration{{Key: "gpu", Value: "yes"}},
	}
	trainJob := &v1alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm", UID: "u"},
		Spec:       v1alpha1.TrainJobSpec{Suspend: ptr.To(true)},
	}
	spec := &v1alpha1.TrainingRuntimeSpec{Template: v1alpha1.JobSetTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "vision"}},
		Spec:       jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{job}},
	}}
	info, err := runtime.New(trainJob, spec)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := New(nil, nil).Build(context.Background(), info, trainJob)
	if err != nil {
		t.Fatal(err)
	}
	jobSet := objects[0].(*jobsetv1alpha2.JobSet)
	// Strings of quantities and the like come from the API server in their canonical form.
	if change != nil {
		change(jobSet)
	}
	return jobSet
}

// liveJobSet is wantedJobSet as the API server and JobSet's webhook return it.
func liveJobSet(t *testing.T) *jobsetv1alpha2.JobSet {
	t.Helper()
	live := wantedJobSet(t, nil)
	live.UID, live.ResourceVersion, live.Generation = "j", "7", 1
	live.CreationTimestamp = metav1.Now()
	live.Status.Restarts = 1
	live.Spec.Network = &jobsetv1alpha2.Network{EnableDNSHostnames: ptr.To(true)}
	live.Spec.SuccessPolicy = &jobsetv1alpha2.SuccessPolicy{Operator: jobsetv1alpha2.OperatorAll}
	job := &live.Spec.ReplicatedJobs[0]
	job.GroupName = "default"
	job.Template.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	job.Template.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	job.Template.Spec.Template.Spec.Containers[0].Ports[0].Protocol = corev1.ProtocolTCP
	live.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kueue", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:managedBy":{}}}`)},
		{Manager: apply.FieldOwner, Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:suspend":{}}}`)},
		{Manager: apply.FieldOwner, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(ownedByTrainer)},
	}
	return live
}

func TestApplied(t *testing.T) {
	container := func(j *jobsetv1alpha2.JobSet) *corev1.Container {
		return &j.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0]
	}
	pod := func(j *jobsetv1alpha2.JobSet) *corev1.PodSpec {
		return &j.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
	}
	cases := map[string]struct {
		live, wanted func(*jobsetv1alpha2.JobSet)
		want         bool
	}{
		"as applied": {want: true},
		"others own another label": {
			live: func(j *jobsetv1alpha2.JobSet) { j.Labels["other"] = "yes" }, want: true,
		},
		"others set another field": {
			live: func(j *jobsetv1alpha2.JobSet) { j.Spec.ManagedBy = ptr.To("example.com/x") }, want: true,
		},
		"resumed":            {wanted: func(j *jobsetv1alpha2.JobSet) { j.Spec.Suspend = ptr.To(false) }},
		"another image":      {wanted: func(j *jobsetv1alpha2.JobSet) { container(j).Image = "train:2" }},
		"another count":      {wanted: func(j *jobsetv1alpha2.JobSet) { j.Spec.ReplicatedJobs[0].Template.Spec.Parallelism = ptr.To[int32](9) }},
		"a new label":        {wanted: func(j *jobsetv1alpha2.JobSet) { j.Labels["new"] = "yes" }},
		"a label less":       {wanted: func(j *jobsetv1alpha2.JobSet) { j.Labels = nil }},
		"a new variable":     {wanted: func(j *jobsetv1alpha2.JobSet) { container(j).Env = append(container(j).Env, corev1.EnvVar{Name: "B"}) }},
		"a variable less":    {wanted: func(j *jobsetv1alpha2.JobSet) { container(j).Env = nil }},
		"a command less":     {wanted: func(j *jobsetv1alpha2.JobSet) { container(j).Command = nil }},
		"a shorter command":  {wanted: func(j *jobsetv1alpha2.JobSet) { container(j).Command = []string{"torchrun"} }},
		"a port less":        {wanted: func(j *jobsetv1alpha2.JobSet) { container(j).Ports = nil }},
		"a limit less":       {wanted: func(j *jobsetv1alpha2.JobSet) { container(j).Resources.Limits = nil }},
		"a selector less":    {wanted: func(j *jobsetv1alpha2.JobSet) { pod(j).NodeSelector = nil }},
		"a toleration less":  {wanted: func(j *jobsetv1alpha2.JobSet) { pod(j).Tolerations = nil }},
		"a wider toleration": {wanted: func(j *jobsetv1alpha2.JobSet) { pod(j).Tolerations[0].Value = "" }},
		"a job less":         {wanted: func(j *jobsetv1alpha2.JobSet) { j.Spec.ReplicatedJobs = nil }},
		"drift": {
			live: func(j *jobsetv1alpha2.JobSet) { container(j).Image = "hijacked" },
		},
		"never applied": {
			live: func(j *jobsetv1alpha2.JobSet) { j.ManagedFields = j.ManagedFields[:2] },
		},
		"without managed fields": {
			live: func(j *jobsetv1alpha2.JobSet) { j.ManagedFields = nil },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			live := liveJobSet(t)
			if tc.live != nil {
				tc.live(live)
			}
			wanted, err := apply.Configuration(wantedJobSet(t, tc.wanted))
			if err != nil {
				t.Fatal(err)
			}
			got, err := apply.Same(live, wanted)
			if err != nil || got != tc.want {
				t.Errorf("applied = %v, %v; want %v", got, err, tc.want)
			}
		})
	}
	t.Run("unreadable managed fields", func(t *testing.T) {
		live := liveJobSet(t)
		live.ManagedFields[2].FieldsV1 = metav1.NewFieldsV1(`{"f:spec":7}`)
		wanted, err := apply.Configuration(wantedJobSet(t, nil))
		if err != nil {
			t.Fatal(err)
		}
		if same, err := apply.Same(live, wanted); same || err == nil {
			t.Errorf("applied = %v, %v; want an error", same, err)
		}
	})
}

func TestToApplyHasNoServerFields(t *testing.T) {
	wanted, err := apply.Configuration(wantedJobSet(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	metadata := wanted.Object["metadata"].(map[string]any)
	for _, field := range []string{"creationTimestamp", "uid", "resourceVersion", "generation", "managedFields"} {
		if _, ok := metadata[field]; ok {
			t.Errorf("metadata.%s is sent", field)
		}
	}
	if _, ok := wanted.Object["status"]; ok {
		t.Error("status is sent")
	}
}

package plainml

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
)

func newInfo(t *testing.T, job *v1alpha1.TrainJob, policy *v1alpha1.MLPolicy, ancestor string) *runtime.Info {
	t.Helper()
	replicated := jobsetv1alpha2.ReplicatedJob{Name: "node"}
	replicated.Template.Labels = map[string]string{v1alpha1.AncestorLabel: ancestor}
	info, err := runtime.New(job, &v1alpha1.TrainingRuntimeSpec{
		MLPolicy: policy,
		Template: v1alpha1.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{replicated}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestEnforceMLPolicy(t *testing.T) {
	five := &v1alpha1.Trainer{NumNodes: ptr.To[int32](5)}
	cases := map[string]struct {
		trainer  *v1alpha1.Trainer
		policy   *v1alpha1.MLPolicy
		ancestor string
		want     int32
	}{
		"the TrainJob's number":   {five, &v1alpha1.MLPolicy{NumNodes: ptr.To[int32](2)}, "trainer", 5},
		"the runtime's number":    {&v1alpha1.Trainer{}, &v1alpha1.MLPolicy{NumNodes: ptr.To[int32](2)}, "trainer", 2},
		"no trainer":              {nil, &v1alpha1.MLPolicy{NumNodes: ptr.To[int32](2)}, "trainer", 2},
		"no policy":               {five, nil, "trainer", 5},
		"no trainer in a runtime": {five, nil, "other", 1},
		"a framework's policy":    {five, &v1alpha1.MLPolicy{MLPolicySource: v1alpha1.MLPolicySource{Torch: &v1alpha1.TorchMLPolicySource{}}}, "trainer", 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{Trainer: tc.trainer}}
			info := newInfo(t, job, tc.policy, tc.ancestor)
			if err := New().EnforceMLPolicy(info, job); err != nil {
				t.Fatal(err)
			}
			if got := info.PodSets[0].Count; got != tc.want {
				t.Errorf("count = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		trainer *v1alpha1.Trainer
		policy  *v1alpha1.MLPolicy
		want    []string
	}{
		"nothing":  {},
		"one each": {&v1alpha1.Trainer{NumNodes: ptr.To[int32](1), NumProcPerNode: ptr.To[int32](1)}, &v1alpha1.MLPolicy{NumNodes: ptr.To[int32](1)}, nil},
		"none": {
			&v1alpha1.Trainer{NumNodes: ptr.To[int32](0), NumProcPerNode: ptr.To[int32](-1)}, &v1alpha1.MLPolicy{NumNodes: ptr.To[int32](0)},
			[]string{"runtime.spec.mlPolicy.numNodes", "spec.trainer.numNodes", "spec.trainer.numProcPerNode"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{Trainer: tc.trainer}}
			var got []string
			for _, err := range New().Validate(newInfo(t, job, tc.policy, "trainer"), job) {
				got = append(got, err.Field)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("fields (-want +got)\n%s", diff)
			}
		})
	}
}

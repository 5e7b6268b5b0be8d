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

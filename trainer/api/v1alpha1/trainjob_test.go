package v1alpha1

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

func TestFinished(t *testing.T) {
	cases := map[string]struct {
		conditions []metav1.Condition
		want       bool
	}{
		"new":           {nil, false},
		"suspended":     {[]metav1.Condition{{Type: TrainJobSuspended, Status: metav1.ConditionTrue}}, false},
		"complete":      {[]metav1.Condition{{Type: TrainJobComplete, Status: metav1.ConditionTrue}}, true},
		"failed":        {[]metav1.Condition{{Type: TrainJobSuspended, Status: metav1.ConditionFalse}, {Type: TrainJobFailed, Status: metav1.ConditionTrue}}, true},
		"not failed":    {[]metav1.Condition{{Type: TrainJobFailed, Status: metav1.ConditionFalse}}, false},
		"not even sure": {[]metav1.Condition{{Type: TrainJobComplete, Status: metav1.ConditionUnknown}}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := &TrainJob{Status: TrainJobStatus{Conditions: tc.conditions}}
			if got := job.Finished(); got != tc.want {
				t.Errorf("Finished() = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestManagedByTrainer(t *testing.T) {
	cases := map[string]struct {
		managedBy *string
		want      bool
	}{
		"unset":        {nil, true},
		"the trainer":  {ptr.To("trainer.kubeflow.org/trainjob-controller"), true},
		"Kueue":        {ptr.To("kueue.x-k8s.io/multikueue"), false},
		"empty string": {ptr.To(""), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := &TrainJob{Spec: TrainJobSpec{ManagedBy: tc.managedBy}}
			if got := job.ManagedByTrainer(); got != tc.want {
				t.Errorf("ManagedByTrainer() = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAddToScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"TrainJob", "TrainJobList", "TrainingRuntime", "TrainingRuntimeList", "ClusterTrainingRuntime", "ClusterTrainingRuntimeList"} {
		if !scheme.Recognizes(GroupVersion.WithKind(kind)) {
			t.Errorf("%s is not registered", kind)
		}
	}
}

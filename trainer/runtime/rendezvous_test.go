package runtime

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

func TestReservedEnv(t *testing.T) {
	trainer := &v1alpha1.Trainer{Env: []corev1.EnvVar{{Name: "A"}, {Name: "B"}, {Name: "a"}, {Name: "C"}}}
	var fields []string
	for _, err := range ReservedEnv(trainer, "tests", "C", "A", "X") {
		fields = append(fields, err.Field)
	}
	if diff := cmp.Diff([]string{"spec.trainer.env[0].name", "spec.trainer.env[3].name"}, fields); diff != "" {
		t.Errorf("fields (-want +got)\n%s", diff)
	}
	if errs := ReservedEnv(nil, "tests", "A"); len(errs) != 0 {
		t.Errorf("without a trainer: %v", errs)
	}
}

package trainer

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/gang"
)

// A TrainJob of which nothing has changed costs the API server no write, however often it is looked at.
func TestReconcileWritesNothingWhenNothingChanged(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.TrainingRuntimeSpec){
		"no gang":      func(s *v1alpha1.TrainingRuntimeSpec) { s.PodGroupPolicy = nil },
		"coscheduling": func(*v1alpha1.TrainingRuntimeSpec) {},
		"Volcano": func(s *v1alpha1.TrainingRuntimeSpec) {
			s.PodGroupPolicy = &v1alpha1.PodGroupPolicy{PodGroupPolicySource: v1alpha1.PodGroupPolicySource{Volcano: &v1alpha1.VolcanoPodGroupPolicySource{}}}
		},
		"native": func(s *v1alpha1.TrainingRuntimeSpec) {
			s.PodGroupPolicy = nil
			metav1.SetMetaDataAnnotation(&s.Template.ObjectMeta, gang.APIAnnotation, string(gang.Native))
		},
	} {
		for state, job := range map[string]*v1alpha1.TrainJob{"running": trainJob(), "suspended": trainJob(suspended)} {
			t.Run(name+", "+state, func(t *testing.T) {
				runtime := gangRuntime(t)
				change(&runtime.Spec)
				c := newCluster(t, job, runtime)
				c.settle()
				if c.jobSet() == nil {
					t.Fatalf("no JobSet: %+v", c.job().Status)
				}
				for range 5 {
					c.mustReconcile()
				}
				if len(c.writes) != 0 {
					t.Errorf("writes: %v", c.writes)
				}
			})
		}
	}
}

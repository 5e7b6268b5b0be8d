package webhooks

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins"
)

func runtimeValidatorOf(kind string) *runtimeValidator[*v1alpha1.TrainingRuntime] {
	return &runtimeValidator[*v1alpha1.TrainingRuntime]{
		kind: kind, framework: framework.New(plugins.All(nil, nil, "")...),
		spec: func(r *v1alpha1.TrainingRuntime) *v1alpha1.TrainingRuntimeSpec { return &r.Spec },
	}
}

var wrongRuntimes = map[string]struct {
	change func(*v1alpha1.TrainingRuntimeSpec)
	want   string
}{
	"no replicated jobs": {func(s *v1alpha1.TrainingRuntimeSpec) { s.Template.Spec.ReplicatedJobs = nil }, "spec.template.spec.replicatedJobs: Required"},
	"two trainers": {func(s *v1alpha1.TrainingRuntimeSpec) {
		s.Template.Spec.ReplicatedJobs = append(s.Template.Spec.ReplicatedJobs, s.Template.Spec.ReplicatedJobs[0])
	}, "spec.template.spec.replicatedJobs[1].template.metadata.labels[trainer.kubeflow.org/trainjob-ancestor-step]"},
	"a trainer of two Jobs": {func(s *v1alpha1.TrainingRuntimeSpec) { s.Template.Spec.ReplicatedJobs[0].Replicas = 2 }, "spec.template.spec.replicatedJobs[0].replicas"},
	"a trainer without its container": {func(s *v1alpha1.TrainingRuntimeSpec) {
		s.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Name = "main"
	}, "spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers: Required"},
	"no nodes": {func(s *v1alpha1.TrainingRuntimeSpec) { s.MLPolicy.NumNodes = ptr.To[int32](0) }, "spec.mlPolicy.numNodes"},
	"variables for nobody": {func(s *v1alpha1.TrainingRuntimeSpec) {
		s.MLPolicy.Torch.EnvInjection = &v1alpha1.EnvInjection{Targets: []v1alpha1.EnvInjectionTarget{{JobName: "nobody"}}}
	}, "spec.mlPolicy.torch.envInjection.targets[0].jobName"},
	"a negative timeout": {func(s *v1alpha1.TrainingRuntimeSpec) {
		s.PodGroupPolicy = &v1alpha1.PodGroupPolicy{PodGroupPolicySource: v1alpha1.PodGroupPolicySource{
			Coscheduling: &v1alpha1.CoschedulingPodGroupPolicySource{ScheduleTimeoutSeconds: ptr.To[int32](-1)},
		}}
	}, "spec.podGroupPolicy.coscheduling.scheduleTimeoutSeconds"},
}

func TestRuntimes(t *testing.T) {
	v := runtimeValidatorOf(v1alpha1.TrainingRuntimeKind)
	good := &v1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}, Spec: runtimeSpec()}
	_, err := v.ValidateCreate(context.Background(), good)
	want(t, err)
	for name, tc := range wrongRuntimes {
		t.Run(name, func(t *testing.T) {
			wrong := good.DeepCopy()
			tc.change(&wrong.Spec)
			_, err := v.ValidateCreate(context.Background(), wrong)
			want(t, err, tc.want)
			_, err = v.ValidateUpdate(context.Background(), good, wrong)
			want(t, err, tc.want)

			// One that was stored before the checks must let its finalizers go, and be deleted.
			labelled := wrong.DeepCopy()
			labelled.Labels = map[string]string{"a": "b"}
			_, err = v.ValidateUpdate(context.Background(), wrong, labelled)
			want(t, err)
			going := wrong.DeepCopy()
			going.DeletionTimestamp = &metav1.Time{}
			_, err = v.ValidateUpdate(context.Background(), good, going)
			want(t, err)
			_, err = v.ValidateDelete(context.Background(), wrong)
			want(t, err)
		})
	}
}

// A replicated job that no TrainJob configures may have any number of Jobs, and any containers.
func TestOtherJobsAreFree(t *testing.T) {
	runtime := &v1alpha1.TrainingRuntime{Spec: runtimeSpec()}
	runtime.Spec.Template.Spec.ReplicatedJobs = append(runtime.Spec.Template.Spec.ReplicatedJobs, jobsetv1alpha2.ReplicatedJob{Name: "server", Replicas: 3})
	_, err := runtimeValidatorOf(v1alpha1.TrainingRuntimeKind).ValidateCreate(context.Background(), runtime)
	want(t, err)
}

func TestDeprecatedRuntimesAreWarnedOf(t *testing.T) {
	for _, kind := range []string{v1alpha1.TrainingRuntimeKind, v1alpha1.ClusterTrainingRuntimeKind} {
		v := runtimeValidatorOf(kind)
		runtime := &v1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}, Spec: runtimeSpec()}
		for label, want := range map[string]admission.Warnings{
			"":           nil,
			"supported":  nil,
			"deprecated": {kind + ` "torch" is deprecated and will be removed: it has the label trainer.kubeflow.org/support=deprecated`},
		} {
			runtime.Labels = map[string]string{v1alpha1.SupportLabel: label}
			warnings, err := v.ValidateCreate(context.Background(), runtime)
			if diff := cmp.Diff(want, warnings); diff != "" || err != nil {
				t.Errorf("label %q: error %v, warnings (-want +got)\n%s", label, err, diff)
			}
		}
	}
}

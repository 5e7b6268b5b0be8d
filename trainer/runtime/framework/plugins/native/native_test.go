package native

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/gang"
)

func TestNative(t *testing.T) {
	trainJob := &v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm", UID: "u"}}
	job := jobsetv1alpha2.ReplicatedJob{Name: "node", Replicas: 2}
	job.Template.Spec.Parallelism = ptr.To[int32](3)
	job.Template.Spec.Template.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "node"}}, PriorityClassName: "high"}
	own := *job.DeepCopy()
	own.Name, own.Template.Spec.Template.Spec.SchedulerName = "own", "mine"
	spec := &v1alpha1.TrainingRuntimeSpec{Template: v1alpha1.JobSetTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{gang.APIAnnotation: "scheduling.k8s.io/v1beta1"}},
		Spec:       jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{job, own}},
	}}
	info, err := runtime.New(trainJob, spec)
	if err != nil {
		t.Fatal(err)
	}
	n := New(nil, "muster")
	if errs := n.Validate(info, trainJob); errs != nil {
		t.Fatal(errs)
	}
	if err := n.EnforcePodGroupPolicy(info, trainJob); err != nil {
		t.Fatal(err)
	}
	for i, scheduler := range []string{"muster", "mine"} {
		pod := info.PodSets[i].PodSpec()
		if pod.SchedulingGroup == nil || *pod.SchedulingGroup.PodGroupName != "llm" || pod.SchedulerName != scheduler {
			t.Errorf("job %d: group %v, scheduler %q", i, pod.SchedulingGroup, pod.SchedulerName)
		}
	}
	objects, err := n.Build(t.Context(), info, trainJob)
	if err != nil || len(objects) != 1 {
		t.Fatalf("built %v, error %v", objects, err)
	}
	want := schedulingv1beta1.PodGroupSpec{
		SchedulingPolicy:  schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 12}},
		DisruptionMode:    &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}},
		PriorityClassName: "high",
	}
	if diff := cmp.Diff(want, objects[0].(*schedulingv1beta1.PodGroup).Spec); diff != "" {
		t.Errorf("spec (-want +got)\n%s", diff)
	}

	delete(spec.Template.Annotations, gang.APIAnnotation)
	if info, err = runtime.New(trainJob, spec); err != nil {
		t.Fatal(err)
	}
	if err := n.EnforcePodGroupPolicy(info, trainJob); err != nil || info.PodSets[0].PodSpec().SchedulingGroup != nil {
		t.Errorf("without the annotation: %v, error %v", info.PodSets[0].PodSpec().SchedulingGroup, err)
	}
}

package native

import (
	"maps"
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
	n := New(nil, nil, "muster")
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

// The one level that all pods must share is a field of the group; what the API has no field for stays an
// annotation, as does what is wrong.
func TestNativeTopology(t *testing.T) {
	for name, tc := range map[string]struct {
		asked map[string]string
		want  string
	}{
		"none":                   {nil, ""},
		"required":               {map[string]string{"muster.dev/required-topology": "example.com/rack"}, "example.com/rack"},
		"required, in Kueue's":   {map[string]string{"kueue.x-k8s.io/podset-required-topology": "example.com/rack"}, "example.com/rack"},
		"required and preferred": {map[string]string{"muster.dev/required-topology": "example.com/block", "muster.dev/preferred-topology": "example.com/rack"}, "example.com/block"},
		"preferred":              {map[string]string{"muster.dev/preferred-topology": "example.com/rack"}, ""},
		"no label":               {map[string]string{"muster.dev/required-topology": "no label"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			trainJob := &v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm", UID: "u"}}
			annotations := map[string]string{gang.APIAnnotation: "scheduling.k8s.io/v1beta1"}
			maps.Copy(annotations, tc.asked)
			info, err := runtime.New(trainJob, &v1alpha1.TrainingRuntimeSpec{Template: v1alpha1.JobSetTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
				Spec:       jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{{Name: "node", Replicas: 1}}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			objects, err := New(nil, nil, "").Build(t.Context(), info, trainJob)
			if err != nil || len(objects) != 1 {
				t.Fatalf("built %v, error %v", objects, err)
			}
			group := objects[0].(*schedulingv1beta1.PodGroup)
			got := ""
			if group.Spec.SchedulingConstraints != nil {
				got = group.Spec.SchedulingConstraints.Topology[0].Key
			}
			if got != tc.want || len(group.Annotations) != len(tc.asked) {
				t.Errorf("constraint %q, annotations %v", got, group.Annotations)
			}
		})
	}
}

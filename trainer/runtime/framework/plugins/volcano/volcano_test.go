package volcano

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
)

func trainJob() *v1alpha1.TrainJob {
	return &v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm", UID: "u"}}
}

// newInfo has two replicated jobs, of which change may change everything.
func newInfo(t *testing.T, change func(*v1alpha1.TrainingRuntimeSpec)) *runtime.Info {
	t.Helper()
	job := func(name string, pods int32) jobsetv1alpha2.ReplicatedJob {
		j := jobsetv1alpha2.ReplicatedJob{Name: name}
		j.Template.Spec.Parallelism = &pods
		j.Template.Spec.Template.Spec.Containers = []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}},
		}}
		return j
	}
	spec := &v1alpha1.TrainingRuntimeSpec{
		PodGroupPolicy: &v1alpha1.PodGroupPolicy{PodGroupPolicySource: v1alpha1.PodGroupPolicySource{Volcano: &v1alpha1.VolcanoPodGroupPolicySource{}}},
		Template:       v1alpha1.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{job("a", 1), job("b", 3)}}},
	}
	change(spec)
	info, err := runtime.New(trainJob(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func priority(spec *v1alpha1.TrainingRuntimeSpec, job int, class string) {
	spec.Template.Spec.ReplicatedJobs[job].Template.Spec.Template.Spec.PriorityClassName = class
}

func TestSpec(t *testing.T) {
	base := func(more map[string]any) map[string]any {
		spec := map[string]any{"minMember": int64(4), "minResources": map[string]any{"nvidia.com/gpu": "32"}}
		for key, value := range more {
			spec[key] = value
		}
		return spec
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.TrainingRuntimeSpec)
		want   map[string]any
	}{
		"nothing asked": {func(*v1alpha1.TrainingRuntimeSpec) {}, base(nil)},
		"queue": {func(s *v1alpha1.TrainingRuntimeSpec) {
			s.Template.Annotations = map[string]string{"scheduling.volcano.sh/queue-name": "q1"}
		}, base(map[string]any{"queue": "q1"})},
		"priority": {func(s *v1alpha1.TrainingRuntimeSpec) { priority(s, 0, "high") }, base(map[string]any{"priorityClassName": "high"})},
		"the last priority counts": {func(s *v1alpha1.TrainingRuntimeSpec) { priority(s, 0, "low"); priority(s, 1, "high") },
			base(map[string]any{"priorityClassName": "high"})},
		"topology": {func(s *v1alpha1.TrainingRuntimeSpec) {
			s.PodGroupPolicy.Volcano.NetworkTopology = &v1alpha1.VolcanoNetworkTopology{Mode: "soft", HighestTierAllowed: ptr.To(2)}
		}, base(map[string]any{"networkTopology": map[string]any{"mode": "soft", "highestTierAllowed": int64(2)}})},
		"topology, stored without defaults": {func(s *v1alpha1.TrainingRuntimeSpec) {
			s.PodGroupPolicy.Volcano.NetworkTopology = &v1alpha1.VolcanoNetworkTopology{}
		}, base(map[string]any{"networkTopology": map[string]any{"mode": "hard", "highestTierAllowed": int64(1)}})},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := New(nil, nil).Build(t.Context(), newInfo(t, tc.change), trainJob())
			if err != nil || len(objects) != 1 {
				t.Fatalf("built %v, error %v", objects, err)
			}
			content, err := apiruntime.DefaultUnstructuredConverter.ToUnstructured(objects[0])
			if err != nil {
				t.Fatal(err)
			}
			group := &unstructured.Unstructured{Object: content}
			if diff := cmp.Diff(tc.want, group.Object["spec"]); diff != "" {
				t.Errorf("spec (-want +got)\n%s", diff)
			}
			if group.GetAPIVersion() != "scheduling.volcano.sh/v1beta1" || group.GetKind() != "PodGroup" || group.GetName() != "llm" || !metav1.IsControlledBy(group, trainJob()) {
				t.Errorf("object = %v", group.Object)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	info := newInfo(t, func(s *v1alpha1.TrainingRuntimeSpec) {
		s.Template.Annotations = map[string]string{"scheduling.volcano.sh/queue-name": ""}
	})
	errs := New(nil, nil).Validate(info, trainJob())
	if len(errs) != 1 || errs[0].Field != "runtime.spec.template.metadata.annotations[scheduling.volcano.sh/queue-name]" {
		t.Errorf("errors = %v", errs)
	}
	if errs := New(nil, nil).Validate(newInfo(t, func(*v1alpha1.TrainingRuntimeSpec) {}), trainJob()); errs != nil {
		t.Errorf("errors = %v", errs)
	}
	other := newInfo(t, func(s *v1alpha1.TrainingRuntimeSpec) { s.PodGroupPolicy = nil })
	if objects, err := New(nil, nil).Build(t.Context(), other, trainJob()); objects != nil || err != nil {
		t.Errorf("without the policy: %v, %v", objects, err)
	}
}

// Every replicated job is looked at, also after one with a class that every cluster has.
func TestPriorityClassMustExist(t *testing.T) {
	scheme := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{corev1.AddToScheme, nodev1.AddToScheme, schedulingv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "system-node-critical"}},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}},
	).Build()
	for class, want := range map[string]string{"high": "", "": "", "hihg": `replicated job b: PriorityClass "hihg" does not exist`} {
		info := newInfo(t, func(s *v1alpha1.TrainingRuntimeSpec) { priority(s, 0, "system-node-critical"); priority(s, 1, class) })
		_, err := New(c, c).Build(t.Context(), info, trainJob())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("class %q: error = %v, want %q", class, err, want)
		}
	}
}

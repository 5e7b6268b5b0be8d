package framework

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
)

// picky finds given errors in whatever it is asked about.
type picky struct{ errs field.ErrorList }

func (picky) Name() string { return "picky" }

func (p picky) Validate(*runtime.Info, *v1alpha1.TrainJob) field.ErrorList { return p.errs }

var refused = field.ErrorList{
	field.Required(field.NewPath("spec", "trainer"), "one"),
	field.Required(field.NewPath("runtime", "spec", "template"), "two"),
}

func TestCheck(t *testing.T) {
	job := &v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{RuntimeRef: v1alpha1.RuntimeRef{Name: "torch"}}}
	spec := &v1alpha1.TrainingRuntimeSpec{Template: v1alpha1.JobSetTemplateSpec{
		Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{{Name: "node"}}},
	}}
	info, refusal := New(picky{}).Check(job, spec)
	if refusal != nil || info == nil || len(info.PodSets) != 1 {
		t.Errorf("what nobody refuses: %v, %v", info, refusal)
	}
	info, refusal = New(picky{refused}).Check(job, spec)
	if refusal == nil || info != nil || refusal.Reason != "Invalid" {
		t.Fatalf("what a plugin refuses: %v, %v", info, refusal)
	}
	want := "spec.trainer: Required value: one; ClusterTrainingRuntime torch: spec.template: Required value: two"
	for range 2 {
		if diff := cmp.Diff(want, refusal.Message()); diff != "" {
			t.Errorf("message (-want +got)\n%s", diff)
		}
	}
}

func TestCheckRuntime(t *testing.T) {
	errs := New(picky{refused}).CheckRuntime(&v1alpha1.TrainingRuntimeSpec{})
	if diff := cmp.Diff("spec.template: Required value: two", Summary(errs)); diff != "" {
		t.Errorf("only what is wrong with every TrainJob (-want +got)\n%s", diff)
	}
	if errs := New(picky{}).CheckRuntime(&v1alpha1.TrainingRuntimeSpec{}); errs != nil {
		t.Errorf("errors = %v", errs)
	}
}

func TestCheckRuntimeRef(t *testing.T) {
	for name, tc := range map[string]struct {
		ref  v1alpha1.RuntimeRef
		want string
	}{
		"as stored by default": {v1alpha1.RuntimeRef{APIGroup: ptr.To("trainer.kubeflow.org"), Kind: ptr.To("ClusterTrainingRuntime")}, ""},
		"without defaults":     {v1alpha1.RuntimeRef{}, ""},
		"namespaced":           {v1alpha1.RuntimeRef{Kind: ptr.To("TrainingRuntime")}, ""},
		"another kind":         {v1alpha1.RuntimeRef{Kind: ptr.To("Recipe")}, "unsupported runtime: Recipe.trainer.kubeflow.org"},
		"another group":        {v1alpha1.RuntimeRef{APIGroup: ptr.To("example.com")}, "unsupported runtime: ClusterTrainingRuntime.example.com"},
		"the core group":       {v1alpha1.RuntimeRef{APIGroup: ptr.To("")}, "unsupported runtime: ClusterTrainingRuntime"},
	} {
		refusal := CheckRuntimeRef(&v1alpha1.TrainJob{Spec: v1alpha1.TrainJobSpec{RuntimeRef: tc.ref}})
		switch {
		case tc.want == "" && refusal != nil:
			t.Errorf("%s: %s", name, refusal.Message())
		case tc.want != "" && (refusal == nil || refusal.Reason != "TrainingRuntimeNotSupported" || !strings.Contains(refusal.Message(), "spec.runtimeRef: ") || !strings.HasSuffix(refusal.Message(), tc.want)):
			t.Errorf("%s: %+v, want %q", name, refusal, tc.want)
		}
	}
}

func TestSummaryIsShort(t *testing.T) {
	var errs field.ErrorList
	for i := range 20 {
		errs = append(errs, field.Required(field.NewPath("spec").Index(i), ""))
	}
	if got := Summary(errs); !strings.HasSuffix(got, "; and 12 more") || strings.Count(got, ";") != 8 {
		t.Errorf("summary = %s", got)
	}
}

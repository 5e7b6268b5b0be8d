package v1alpha1

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/utils/ptr"
)

// definition reads a generated CustomResourceDefinition as the API server does.
func definition(t *testing.T, plural string) *apiextensions.CustomResourceDefinition {
	t.Helper()
	content, err := json.Marshal(load(t, filepath.Join(generatedDir, "trainer.kubeflow.org_"+plural+".yaml")))
	if err != nil {
		t.Fatal(err)
	}
	external := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal(content, external); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(external)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&external.Spec)
	crd := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(external, crd, nil); err != nil {
		t.Fatal(err)
	}
	return crd
}

// Every rule compiles, and none may cost more than the API server allows.
func TestDefinitionsAreValid(t *testing.T) {
	for _, plural := range []string{"trainjobs", "trainingruntimes", "clustertrainingruntimes"} {
		t.Run(plural, func(t *testing.T) {
			crd := definition(t, plural)
			crd.Status.StoredVersions = []string{GroupVersion.Version}
			if errs := validation.ValidateCustomResourceDefinition(context.Background(), crd); len(errs) > 0 {
				t.Error(errs.ToAggregate())
			}
		})
	}
}

// rules returns a function that asks the rules of a definition about an object, or about a change of it.
func rules(t *testing.T, plural string) func(before, after any) string {
	t.Helper()
	crd := definition(t, plural)
	versionSchema, err := apiextensions.GetSchemaForVersion(crd, GroupVersion.Version)
	if err != nil {
		t.Fatal(err)
	}
	structural, err := schema.NewStructural(versionSchema.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	validator := schemacel.NewValidator(structural, true, celconfig.PerCallLimit)
	generic := func(object any) any {
		content, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var value any
		// Numbers as the API server has them: integers where they are.
		if err := utiljson.Unmarshal(content, &value); err != nil {
			t.Fatal(err)
		}
		return value
	}
	return func(before, after any) string {
		var old any
		if before != nil {
			old = generic(before)
		}
		errs, _ := validator.Validate(context.Background(), nil, structural, generic(after), old, celconfig.RuntimeCELCostBudget)
		if len(errs) == 0 {
			return ""
		}
		return errs.ToAggregate().Error()
	}
}

// A field that is immutable can neither be changed nor set later nor unset.
func TestImmutableFields(t *testing.T) {
	check := rules(t, "trainjobs")
	none := func(*TrainJobSpec) {}
	patch := func(pod *PodSpecPatch) func(*TrainJobSpec) {
		return func(s *TrainJobSpec) {
			s.Suspend = ptr.To(true)
			s.RuntimePatches = []RuntimePatch{{Manager: "example.com/m", TrainingRuntimeSpec: &TrainingRuntimeSpecPatch{
				Template: &JobSetTemplatePatch{Spec: &JobSetSpecPatch{ReplicatedJobs: []ReplicatedJobPatch{{
					Name:     "node",
					Template: &JobTemplatePatch{Spec: &JobSpecPatch{Template: &PodTemplatePatch{Spec: pod}}},
				}}}},
			}}}
		}
	}
	pod := func() *PodSpecPatch { return &PodSpecPatch{NodeSelector: map[string]string{"a": "b"}} }
	with := func(change func(*PodSpecPatch)) func(*TrainJobSpec) {
		p := pod()
		change(p)
		return patch(p)
	}
	for name, tc := range map[string]struct {
		unset, one, two func(*TrainJobSpec)
		mutable         bool
	}{
		"spec.runtimeRef": {
			one: func(s *TrainJobSpec) { s.RuntimeRef.Name = "one" }, two: func(s *TrainJobSpec) { s.RuntimeRef.Name = "two" },
		},
		"spec.initializer": {
			unset: none,
			one:   func(s *TrainJobSpec) { s.Initializer = &Initializer{} },
			two:   func(s *TrainJobSpec) { s.Initializer = &Initializer{Model: &ModelInitializer{}} },
		},
		"spec.trainer": {
			unset: none,
			one:   func(s *TrainJobSpec) { s.Trainer = &Trainer{} },
			two:   func(s *TrainJobSpec) { s.Trainer = &Trainer{NumNodes: ptr.To[int32](2)} },
		},
		"spec.activeDeadlineSeconds": {
			unset: none,
			one:   func(s *TrainJobSpec) { s.ActiveDeadlineSeconds = 1 }, two: func(s *TrainJobSpec) { s.ActiveDeadlineSeconds = 2 },
		},
		"spec.managedBy": {
			one: func(s *TrainJobSpec) { s.ManagedBy = ptr.To(ControllerName) },
			two: func(s *TrainJobSpec) { s.ManagedBy = ptr.To("kueue.x-k8s.io/multikueue") },
		},
		"spec.suspend": {
			unset: none, mutable: true,
			one: func(s *TrainJobSpec) { s.Suspend = ptr.To(true) }, two: func(s *TrainJobSpec) { s.Suspend = ptr.To(false) },
		},
		"serviceAccountName": {
			unset: patch(pod()),
			one:   with(func(p *PodSpecPatch) { p.ServiceAccountName = ptr.To("one") }),
			two:   with(func(p *PodSpecPatch) { p.ServiceAccountName = ptr.To("two") }),
		},
		"volumes": {
			unset: patch(pod()),
			one:   with(func(p *PodSpecPatch) { p.Volumes = []corev1.Volume{{Name: "one"}} }),
			two:   with(func(p *PodSpecPatch) { p.Volumes = []corev1.Volume{{Name: "two"}} }),
		},
		"initContainers": {
			unset: patch(pod()),
			one:   with(func(p *PodSpecPatch) { p.InitContainers = []ContainerPatch{{Name: "one"}} }),
			two:   with(func(p *PodSpecPatch) { p.InitContainers = []ContainerPatch{{Name: "two"}} }),
		},
		"containers": {
			unset: patch(pod()),
			one:   with(func(p *PodSpecPatch) { p.Containers = []ContainerPatch{{Name: "one"}} }),
			two:   with(func(p *PodSpecPatch) { p.Containers = []ContainerPatch{{Name: "two"}} }),
		},
		"imagePullSecrets": {
			unset: patch(pod()),
			one:   with(func(p *PodSpecPatch) { p.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "one"}} }),
			two:   with(func(p *PodSpecPatch) { p.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "two"}} }),
		},
		"securityContext": {
			unset: patch(pod()),
			one:   with(func(p *PodSpecPatch) { p.SecurityContext = &corev1.PodSecurityContext{} }),
			two:   with(func(p *PodSpecPatch) { p.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true)} }),
		},
		"terminationGracePeriodSeconds": {
			unset: patch(pod()),
			one:   with(func(p *PodSpecPatch) { p.TerminationGracePeriodSeconds = ptr.To[int64](1) }),
			two:   with(func(p *PodSpecPatch) { p.TerminationGracePeriodSeconds = ptr.To[int64](2) }),
		},
		"nodeSelector": {
			unset: patch(&PodSpecPatch{}), mutable: true,
			one: patch(pod()), two: with(func(p *PodSpecPatch) { p.NodeSelector["a"] = "c" }),
		},
		"affinity": {
			unset: patch(pod()), mutable: true,
			one: with(func(p *PodSpecPatch) { p.Affinity = &corev1.Affinity{} }),
			two: with(func(p *PodSpecPatch) { p.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}} }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			type change struct{ from, to func(*TrainJobSpec) }
			changes := map[string]change{"changed": {tc.one, tc.two}}
			if tc.unset != nil {
				changes["set later"], changes["unset"] = change{tc.unset, tc.one}, change{tc.one, tc.unset}
			}
			for what, change := range changes {
				from, to := jobOf(change.from), jobOf(change.to)
				got := check(from, to)
				if refused := strings.Contains(got, name+": ") && strings.Contains(got, "field is immutable"); refused == tc.mutable {
					t.Errorf("%s: %q", what, got)
				}
				if got := check(from, from); got != "" {
					t.Errorf("an update that changes nothing: %s", got)
				}
			}
		})
	}
}

func jobOf(set func(*TrainJobSpec)) *TrainJob {
	job := &TrainJob{}
	job.Name = "llm"
	job.Spec.RuntimeRef.Name = "torch"
	set(&job.Spec)
	return job
}

// Patches of a running TrainJob stay as they are, because its pods do.
func TestPatchesChangeOnlyWhileSuspended(t *testing.T) {
	check := rules(t, "trainjobs")
	one := []RuntimePatch{{Manager: "example.com/one"}}
	two := []RuntimePatch{{Manager: "example.com/one"}, {Manager: "example.com/two"}}
	for _, tc := range []struct {
		name          string
		before, after []RuntimePatch
		was, is       bool
		refused       bool
	}{
		{name: "added while running", after: one, refused: true},
		{name: "removed while running", before: one, refused: true},
		{name: "another while running", before: one, after: two, refused: true},
		{name: "the same while running", before: two, after: two},
		{name: "in another order while running", before: two, after: []RuntimePatch{two[1], two[0]}},
		{name: "while suspended", before: one, after: two, was: true, is: true},
		{name: "together with suspending", before: one, after: two, is: true},
		{name: "together with resuming", before: one, after: two, was: true},
		{name: "nothing but suspending", before: one, after: one, is: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			of := func(patches []RuntimePatch, suspend bool) *TrainJob {
				return jobOf(func(s *TrainJobSpec) { s.RuntimePatches, s.Suspend = patches, &suspend })
			}
			got := check(of(tc.before, tc.was), of(tc.after, tc.is))
			if refused := strings.Contains(got, "spec.runtimePatches: Invalid value") && strings.Contains(got, "suspended"); refused != tc.refused {
				t.Errorf("refused = %v, want %v: %q", refused, tc.refused, got)
			}
		})
	}
	if got := check(jobOf(func(*TrainJobSpec) {}), jobOf(func(s *TrainJobSpec) { s.RuntimePatches = one })); got == "" {
		t.Error("without spec.suspend a TrainJob runs")
	}
}

func TestPodGroupPolicyNamesOneBackend(t *testing.T) {
	for _, plural := range []string{"trainingruntimes", "clustertrainingruntimes"} {
		check := rules(t, plural)
		coscheduling, volcano := &CoschedulingPodGroupPolicySource{}, &VolcanoPodGroupPolicySource{}
		for name, tc := range map[string]struct {
			policy *PodGroupPolicy
			want   bool
		}{
			"no policy":    {nil, true},
			"coscheduling": {&PodGroupPolicy{PodGroupPolicySource{Coscheduling: coscheduling}}, true},
			"volcano":      {&PodGroupPolicy{PodGroupPolicySource{Volcano: volcano}}, true},
			"both":         {&PodGroupPolicy{PodGroupPolicySource{coscheduling, volcano}}, false},
			"neither":      {&PodGroupPolicy{}, false},
		} {
			got := check(nil, &TrainingRuntime{Spec: TrainingRuntimeSpec{PodGroupPolicy: tc.policy}})
			if (got == "") != tc.want {
				t.Errorf("%s, %s: %q", plural, name, got)
			}
		}
	}
}

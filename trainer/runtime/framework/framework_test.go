package framework

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
)

// recorder is a plugin of every phase that records its calls, and fails one of them.
type recorder struct {
	name  string
	calls *[]string
	fail  string
}

func (r recorder) Name() string { return r.name }

func (r recorder) call(phase string) error {
	*r.calls = append(*r.calls, r.name+" "+phase)
	if phase == r.fail {
		return errors.New("broken")
	}
	return nil
}

func (r recorder) Validate(*runtime.Info, *v1alpha1.TrainJob) field.ErrorList {
	if err := r.call("validate"); err != nil {
		return field.ErrorList{field.InternalError(field.NewPath(r.name), err)}
	}
	return nil
}

func (r recorder) EnforceMLPolicy(*runtime.Info, *v1alpha1.TrainJob) error { return r.call("ml") }

func (r recorder) EnforcePodGroupPolicy(*runtime.Info, *v1alpha1.TrainJob) error {
	return r.call("podgroup")
}

func (r recorder) IdentifyPodNetwork(*runtime.Info, *v1alpha1.TrainJob) error {
	return r.call("network")
}

func (r recorder) Build(context.Context, *runtime.Info, *v1alpha1.TrainJob) ([]client.Object, error) {
	return []client.Object{&v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: r.name}}}, r.call("build")
}

func (r recorder) Sync(_ context.Context, _ *v1alpha1.TrainJob, objects []client.Object) error {
	return r.call("sync " + objects[0].GetName())
}

func (r recorder) Finish(context.Context, *v1alpha1.TrainJob) error { return r.call("finish") }

func (r recorder) Status(context.Context, *v1alpha1.TrainJob) error { return r.call("status") }

// mlOnly is a plugin of one phase.
type mlOnly struct{ calls *[]string }

func (mlOnly) Name() string { return "one" }

func (m mlOnly) EnforceMLPolicy(*runtime.Info, *v1alpha1.TrainJob) error {
	*m.calls = append(*m.calls, "one ml")
	return nil
}

// run goes through all phases and returns the first error.
func run(f *Framework) error {
	ctx, trainJob := context.Background(), &v1alpha1.TrainJob{}
	if errs := f.Validate(nil, trainJob); len(errs) > 0 {
		return errs.ToAggregate()
	}
	components, err := f.Build(ctx, nil, trainJob)
	if err != nil {
		return err
	}
	if err := f.Sync(ctx, trainJob, components); err != nil {
		return err
	}
	if err := f.Status(ctx, trainJob); err != nil {
		return err
	}
	return f.Finish(ctx, trainJob)
}

var allCalls = []string{
	"a validate", "b validate",
	"a ml", "one ml", "b ml",
	"a podgroup", "b podgroup",
	"a network", "b network",
	"a build", "b build",
	"a sync a", "b sync b",
	"a status", "b status",
	"a finish", "b finish",
}

func TestPhasesAndPluginsRunInOrder(t *testing.T) {
	for range 10 {
		var calls []string
		f := New(recorder{name: "a", calls: &calls}, mlOnly{&calls}, recorder{name: "b", calls: &calls})
		if err := run(f); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(allCalls, calls); diff != "" {
			t.Fatalf("calls (-want +got)\n%s", diff)
		}
	}
}

func TestFirstErrorEndsThePhases(t *testing.T) {
	cases := map[string]struct {
		message string
		last    string
	}{
		"ml":       {"a: enforcing the ML policy: broken", "a ml"},
		"podgroup": {"a: enforcing the pod group policy: broken", "a podgroup"},
		"network":  {"a: identifying the pod network: broken", "a network"},
		"build":    {"a: building components: broken", "a build"},
		"sync a":   {"a: broken", "a sync a"},
		"status":   {"a: reading the status: broken", "a status"},
		// These two ask every plugin.
		"validate": {"a: Internal error: broken", "b validate"},
		"finish":   {"a: finishing: broken", "b finish"},
	}
	for phase, tc := range cases {
		t.Run(phase, func(t *testing.T) {
			var calls []string
			err := run(New(recorder{name: "a", calls: &calls, fail: phase}, recorder{name: "b", calls: &calls}))
			if err == nil || !strings.Contains(err.Error(), tc.message) {
				t.Errorf("error = %v, want %q", err, tc.message)
			}
			if got := calls[len(calls)-1]; got != tc.last {
				t.Errorf("last call = %q, want %q", got, tc.last)
			}
		})
	}
}

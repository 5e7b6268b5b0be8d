package plugins

import (
	stdcmp "cmp"
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/apply"
	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/runtime/gang"
)

// One gang per startup phase, with the pods of all replicas; every pod in the group of its phase.
func TestGroups(t *testing.T) {
	everyBackend(t, func(t *testing.T, b backend) {
		tr := newTrainer(t, nil)
		spec := fineTuning(b.ask)
		spec.Template.Spec.ReplicatedJobs[1].Template.Spec.Template.Annotations = map[string]string{"muster.dev/run-seconds": "5"}
		for key, value := range map[string]string{
			"muster.dev/topology-required":               "rack",
			"kueue.x-k8s.io/podset-required-topology":    "rack",
			"kueue.x-k8s.io/podset-slice-size":           "2",
			"kueue.x-k8s.io/queue-name":                  "q",
			"trainer.muster.dev/something-of-the-jobset": "x",
		} {
			metav1.SetMetaDataAnnotation(&spec.Template.ObjectMeta, key, value)
		}
		jobSet := tr.mustRun(suspendedTrainJob(), spec)
		tr.want(b, "llm-phase-0=1", "llm=10")
		for i, want := range []string{"llm-phase-0", "llm", "llm"} {
			template := &jobSet.Spec.ReplicatedJobs[i].Template.Spec.Template
			if got := b.groupName(template); got != want {
				t.Errorf("replicated job %d is in group %q, want %q", i, got, want)
			}
			for name, other := range backends {
				if got := other.groupName(template); got != "" && name != b.name {
					t.Errorf("replicated job %d is in group %q of %s too", i, got, name)
				}
			}
		}
		if got := jobSet.Spec.ReplicatedJobs[1].Template.Spec.Template.Annotations["muster.dev/run-seconds"]; got != "5" {
			t.Error("an annotation of the pods is gone")
		}
		if b.name == gang.Volcano {
			return
		}
		for name, want := range map[string]map[string]string{
			"llm-phase-0": nil,
			"llm": {
				"muster.dev/topology-required": "rack", "kueue.x-k8s.io/podset-required-topology": "rack", "kueue.x-k8s.io/podset-slice-size": "2",
			},
		} {
			group := b.object()
			if err := tr.Get(t.Context(), client.ObjectKey{Namespace: "research", Name: name}, group); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, group.GetAnnotations()); diff != "" {
				t.Errorf("annotations of %s (-want +got)\n%s", name, diff)
			}
		}
	})
}

func TestGroupsFollowWhileSuspended(t *testing.T) {
	everyBackend(t, func(t *testing.T, b backend) {
		tr := newTrainer(t, nil)
		trainJob, spec := suspendedTrainJob(), fineTuning(b.ask)
		tr.mustRun(trainJob, spec)

		tr.writes = nil
		tr.mustRun(trainJob, spec)
		if len(tr.writes) != 0 {
			t.Errorf("nothing changed, and yet: %v", tr.writes)
		}

		spec.MLPolicy.NumNodes = ptr.To[int32](8)
		tr.mustRun(trainJob, spec)
		tr.want(b, "llm-phase-0=1", "llm=14")

		// The initializer is gone, and with it its phase.
		spec.Template.Spec.ReplicatedJobs = spec.Template.Spec.ReplicatedJobs[1:]
		for i := range spec.Template.Spec.ReplicatedJobs {
			spec.Template.Spec.ReplicatedJobs[i].DependsOn = nil
		}
		tr.mustRun(trainJob, spec)
		tr.want(b, "llm=14")

		// Now it runs. Groups stay, and come back.
		trainJob.Spec.Suspend = ptr.To(false)
		tr.mustRun(trainJob, spec)
		spec.MLPolicy.NumNodes = ptr.To[int32](2)
		tr.mustRun(trainJob, spec)
		tr.want(b, "llm=14")
		group := b.object()
		group.SetNamespace("research")
		group.SetName("llm")
		if err := tr.Delete(t.Context(), group); err != nil {
			t.Fatal(err)
		}
		tr.mustRun(trainJob, spec)
		tr.want(b, "llm=8")

		if err := tr.Finish(t.Context(), trainJob); err != nil {
			t.Fatal(err)
		}
		tr.want(b)
	})
}

// A runtime that changes its backend takes its suspended TrainJobs along.
func TestGroupsOfAnotherBackendGo(t *testing.T) {
	tr := newTrainer(t, nil)
	for _, name := range []gang.Backend{gang.Coscheduling, gang.Volcano, gang.Native, gang.Coscheduling} {
		tr.mustRun(suspendedTrainJob(), fineTuning(backends[name].ask))
		for other, b := range backends {
			if other == name {
				tr.want(b, "llm-phase-0=1", "llm=10")
			} else {
				tr.want(b)
			}
		}
	}
}

func TestGroupsOfOthersAreLeftAlone(t *testing.T) {
	everyBackend(t, func(t *testing.T, b backend) {
		foreign := b.object()
		foreign.SetNamespace("research")
		foreign.SetName("llm")
		tr := newTrainer(t, nil, foreign)
		_, err := tr.run(suspendedTrainJob(), fineTuning(b.ask))
		if err == nil || !strings.Contains(err.Error(), "PodGroup research/llm exists and does not belong to this TrainJob") {
			t.Fatalf("error = %v", err)
		}
		if err := tr.Finish(t.Context(), suspendedTrainJob()); err != nil {
			t.Fatal(err)
		}
		live := b.object()
		if err := tr.Get(t.Context(), client.ObjectKeyFromObject(foreign), live); err != nil || len(live.GetOwnerReferences()) != 0 {
			t.Errorf("the group was taken or deleted: %v, %v", live.GetOwnerReferences(), err)
		}
	})
}

// Between the look into a cache that lags and the write, someone else's group may have come.
func TestGroupsThatTheCacheDoesNotShow(t *testing.T) {
	foreign := &podgroup.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm"}}
	foreign.Spec.MinMember = 3
	tr := newTrainer(t, nil)
	group := foreign.DeepCopy()
	if err := tr.Create(t.Context(), group, client.FieldOwner("someone")); err != nil {
		t.Fatal(err)
	}
	blind := interceptor.NewClient(tr.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if _, ok := object.(*podgroup.PodGroup); ok {
				key.Name += "-not-yet"
			}
			return w.Get(ctx, key, object, opts...)
		},
	})
	tr.Framework = framework.New(All(blind, blind, "")...)
	if _, err := tr.run(suspendedTrainJob(), fineTuning(backends[gang.Coscheduling].ask)); err == nil {
		t.Error("no error")
	}
	tr.want(backends[gang.Coscheduling], "llm-phase-0=1", "llm=3")
}

// A group that the cache does not show, and that has a field which cannot change, is no reason to fail: it may be the
// TrainJob's own.
func TestGroupsRefusedBehindTheCache(t *testing.T) {
	everyBackend(t, func(t *testing.T, b backend) {
		tr := newTrainer(t, nil)
		trainJob, spec := suspendedTrainJob(), fineTuning(b.ask)
		refusal := apierrors.NewInvalid(schema.GroupKind{Kind: "PodGroup"}, "llm", field.ErrorList{field.Invalid(field.NewPath("spec"), "x", "field is immutable")})
		blind := interceptor.NewClient(tr.Client.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				if reflect.TypeOf(object) == reflect.TypeOf(b.object()) {
					key.Name += "-not-yet"
				}
				return w.Get(ctx, key, object, opts...)
			},
			Apply: func(ctx context.Context, w client.WithWatch, object apiruntime.ApplyConfiguration, opts ...client.ApplyOption) error {
				return refusal
			},
		})
		live := tr.Client
		tr.Framework = framework.New(All(blind, live, "")...)
		if _, err := tr.run(trainJob, spec); !apply.Refused(err) {
			t.Errorf("a group that is not there: error = %v, want the refusal", err)
		}
		tr.Framework = framework.New(All(live, live, "")...)
		tr.mustRun(trainJob, spec)
		tr.Framework = framework.New(All(blind, live, "")...)
		_, err := tr.run(trainJob, spec)
		if err == nil || apply.Refused(err) || !strings.Contains(err.Error(), "PodGroup research/llm-phase-0 is newer than what was read of it") {
			t.Errorf("a group that is there: error = %v", err)
		}
	})
}

// A kind that is not served keeps those waiting that ask for it, and nobody else, and goes on when it is.
func TestUnservedBackends(t *testing.T) {
	for _, name := range []gang.Backend{gang.Volcano, gang.Native} {
		t.Run(string(name), func(t *testing.T) {
			tr := newTrainer(t, []gang.Backend{name})
			var groups *gang.Groups
			for _, g := range Groups(tr.steps) {
				served, err := g.Served()
				if err != nil {
					t.Fatal(err)
				}
				if !served {
					groups = g
				}
			}
			if groups == nil || reflect.TypeOf(groups.Object) != reflect.TypeOf(backends[name].object()) {
				t.Fatalf("not served: %+v", groups)
			}
			groups.MarkAbsent(true)
			_, err := tr.run(suspendedTrainJob(), fineTuning(backends[name].ask))
			if err == nil || apply.Refused(err) || !strings.Contains(err.Error(), "the API server does not serve PodGroups of "+string(name)) ||
				!strings.Contains(err.Error(), "runtime.spec.") {
				t.Errorf("error = %v", err)
			}
			// TrainJobs that do not ask for it do not suffer.
			tr.mustRun(suspendedTrainJob(), fineTuning(backends[gang.Coscheduling].ask))
			if err := tr.Finish(t.Context(), suspendedTrainJob()); err != nil {
				t.Error(err)
			}
			groups.MarkAbsent(false)
			tr.mustRun(suspendedTrainJob(), fineTuning(backends[name].ask))
			tr.want(backends[name], "llm-phase-0=1", "llm=10")
		})
	}
}

func TestDoubleOwnership(t *testing.T) {
	node := func(s *v1alpha1.TrainingRuntimeSpec) *corev1.PodTemplateSpec {
		return &s.Template.Spec.ReplicatedJobs[1].Template.Spec.Template
	}
	const pod = "runtime.spec.template.spec.replicatedJobs[1].template.spec.template."
	memberships := map[string]struct {
		set func(*v1alpha1.TrainingRuntimeSpec)
		own gang.Backend
	}{
		pod + "metadata.labels[scheduling.x-k8s.io/pod-group]": {
			func(s *v1alpha1.TrainingRuntimeSpec) {
				node(s).Labels = map[string]string{"scheduling.x-k8s.io/pod-group": "mine"}
			}, gang.Coscheduling,
		},
		pod + "metadata.annotations[scheduling.k8s.io/group-name]": {
			func(s *v1alpha1.TrainingRuntimeSpec) {
				node(s).Annotations = map[string]string{"scheduling.k8s.io/group-name": "mine"}
			}, gang.Volcano,
		},
		pod + "spec.schedulingGroup": {
			func(s *v1alpha1.TrainingRuntimeSpec) {
				node(s).Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("mine")}
			}, gang.None,
		},
	}
	everyBackend(t, func(t *testing.T, b backend) {
		for path, m := range memberships {
			spec := fineTuning(b.ask)
			m.set(spec)
			_, err := newTrainer(t, nil).run(suspendedTrainJob(), spec)
			if refused := err != nil && strings.Contains(err.Error(), path+": Forbidden"); refused != (m.own != b.name) {
				t.Errorf("%s: error = %v", path, err)
			}
		}
	})
	for name, tc := range map[string]struct {
		ask  []gang.Backend
		api  string
		want string
	}{
		"two policies":             {ask: []gang.Backend{gang.Coscheduling, gang.Volcano}, want: "runtime.spec.podGroupPolicy.volcano: Forbidden"},
		"a policy and native":      {ask: []gang.Backend{gang.Coscheduling, gang.Native}, want: "runtime.spec.template.metadata.annotations[trainer.muster.dev/pod-group-api]: Forbidden"},
		"an API that is not known": {api: "scheduling.k8s.io/v1alpha1", want: `runtime.spec.template.metadata.annotations[trainer.muster.dev/pod-group-api]: Unsupported value: "scheduling.k8s.io/v1alpha1"`},
	} {
		t.Run(name, func(t *testing.T) {
			spec := fineTuning(func(s *v1alpha1.TrainingRuntimeSpec) {
				policy := v1alpha1.PodGroupPolicySource{}
				for _, name := range tc.ask {
					backends[name].ask(s)
					if s.PodGroupPolicy != nil {
						policy.Coscheduling = stdcmp.Or(policy.Coscheduling, s.PodGroupPolicy.Coscheduling)
						policy.Volcano = stdcmp.Or(policy.Volcano, s.PodGroupPolicy.Volcano)
						s.PodGroupPolicy = &v1alpha1.PodGroupPolicy{PodGroupPolicySource: policy}
					}
				}
				if tc.api != "" {
					metav1.SetMetaDataAnnotation(&s.Template.ObjectMeta, gang.APIAnnotation, tc.api)
				}
			})
			if _, err := newTrainer(t, nil).run(suspendedTrainJob(), spec); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Count(err.Error(), "runtime.spec") != 1 {
				t.Errorf("error = %v, want once %s", err, tc.want)
			}
		})
	}
}

package plugins

import (
	stdcmp "cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/volcano"
	"github.com/muster-sched/muster/trainer/runtime/gang"
)

// backend is one API of groups, as a runtime asks for it and as its objects look.
type backend struct {
	name      gang.Backend
	ask       func(*v1alpha1.TrainingRuntimeSpec)
	object    func() client.Object
	sizePath  []string
	groupName func(*corev1.PodTemplateSpec) string
}

var backends = map[gang.Backend]backend{
	gang.Coscheduling: {
		name: gang.Coscheduling,
		ask: func(s *v1alpha1.TrainingRuntimeSpec) {
			s.PodGroupPolicy = &v1alpha1.PodGroupPolicy{PodGroupPolicySource: v1alpha1.PodGroupPolicySource{Coscheduling: &v1alpha1.CoschedulingPodGroupPolicySource{}}}
		},
		object:    func() client.Object { return &podgroup.PodGroup{} },
		sizePath:  []string{"spec", "minMember"},
		groupName: func(t *corev1.PodTemplateSpec) string { return t.Labels[podgroup.GroupLabel] },
	},
	gang.Volcano: {
		name: gang.Volcano,
		ask: func(s *v1alpha1.TrainingRuntimeSpec) {
			s.PodGroupPolicy = &v1alpha1.PodGroupPolicy{PodGroupPolicySource: v1alpha1.PodGroupPolicySource{Volcano: &v1alpha1.VolcanoPodGroupPolicySource{}}}
		},
		object:    func() client.Object { return &volcano.PodGroup{} },
		sizePath:  []string{"spec", "minMember"},
		groupName: func(t *corev1.PodTemplateSpec) string { return t.Annotations["scheduling.k8s.io/group-name"] },
	},
	gang.Native: {
		name: gang.Native,
		ask: func(s *v1alpha1.TrainingRuntimeSpec) {
			metav1.SetMetaDataAnnotation(&s.Template.ObjectMeta, "trainer.muster.dev/pod-group-api", "scheduling.k8s.io/v1beta1")
		},
		object:   func() client.Object { return &schedulingv1beta1.PodGroup{} },
		sizePath: []string{"spec", "schedulingPolicy", "gang", "minCount"},
		groupName: func(t *corev1.PodTemplateSpec) string {
			if t.Spec.SchedulingGroup == nil {
				return ""
			}
			return ptr.Deref(t.Spec.SchedulingGroup.PodGroupName, "")
		},
	},
}

// everyBackend runs a test against each of them.
func everyBackend(t *testing.T, test func(t *testing.T, b backend)) {
	for name, b := range backends {
		t.Run(string(name), func(t *testing.T) { test(t, b) })
	}
}

// trainer is the framework with an API in memory.
type trainer struct {
	*testing.T
	client.Client
	*framework.Framework
	writes []string
}

func newTrainer(t *testing.T, without []gang.Backend, objects ...client.Object) *trainer {
	t.Helper()
	scheme := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{
		corev1.AddToScheme, nodev1.AddToScheme, schedulingv1.AddToScheme, schedulingv1beta1.AddToScheme,
		v1alpha1.AddToScheme, podgroup.AddToScheme, volcano.AddToScheme, jobsetv1alpha2.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for backend := range backends {
		if !slices.Contains(without, backend) {
			gv, err := schema.ParseGroupVersion(string(backend))
			if err != nil {
				t.Fatal(err)
			}
			mapper.Add(gv.WithKind("PodGroup"), meta.RESTScopeNamespace)
		}
	}
	mapper.Add(jobsetv1alpha2.GroupVersion.WithKind("JobSet"), meta.RESTScopeNamespace)
	tr := &trainer{T: t}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).WithReturnManagedFields()
	for _, b := range backends {
		builder = builder.WithIndex(b.object(), gang.OwnerIndex, gang.IndexOwner)
	}
	count := func(verb string, object any) { tr.writes = append(tr.writes, fmt.Sprintf("%s %T", verb, object)) }
	tr.Client = builder.WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(ctx context.Context, w client.WithWatch, object apiruntime.ApplyConfiguration, opts ...client.ApplyOption) error {
			count("apply", object)
			return w.Apply(ctx, object, opts...)
		},
		Delete: func(ctx context.Context, w client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
			count("delete", object)
			return w.Delete(ctx, object, opts...)
		},
	}).Build()
	tr.Framework = framework.New(All(tr.Client, tr.Client, "muster")...)
	return tr
}

// run validates, builds and syncs a TrainJob, and returns what was built.
func (tr *trainer) run(trainJob *v1alpha1.TrainJob, spec *v1alpha1.TrainingRuntimeSpec) (*jobsetv1alpha2.JobSet, error) {
	tr.Helper()
	info, err := runtime.New(trainJob, spec)
	if err != nil {
		tr.Fatal(err)
	}
	if errs := tr.Validate(info, trainJob); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	components, err := tr.Build(tr.Context(), info, trainJob)
	if err != nil {
		return nil, err
	}
	var jobSet *jobsetv1alpha2.JobSet
	for _, component := range components {
		for _, object := range component.Objects {
			if j, ok := object.(*jobsetv1alpha2.JobSet); ok {
				jobSet = j
			}
		}
	}
	return jobSet, tr.Sync(tr.Context(), trainJob, components)
}

func (tr *trainer) mustRun(trainJob *v1alpha1.TrainJob, spec *v1alpha1.TrainingRuntimeSpec) *jobsetv1alpha2.JobSet {
	tr.Helper()
	jobSet, err := tr.run(trainJob, spec)
	if err != nil {
		tr.Fatal(err)
	}
	return jobSet
}

// groups returns the groups of all kinds, as NAME=SIZE by name.
func (tr *trainer) groups(b backend) []string {
	tr.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(string(b.name))
	list.SetKind("PodGroupList")
	if err := tr.List(tr.Context(), list); err != nil {
		tr.Fatal(err)
	}
	var groups []string
	for _, item := range list.Items {
		size, _, err := unstructured.NestedFieldNoCopy(item.Object, b.sizePath...)
		if err != nil {
			tr.Fatal(err)
		}
		groups = append(groups, fmt.Sprintf("%s=%v", item.GetName(), size))
	}
	slices.Sort(groups)
	return groups
}

func (tr *trainer) want(b backend, groups ...string) {
	tr.Helper()
	if diff := cmp.Diff(groups, tr.groups(b)); diff != "" {
		tr.Fatalf("groups (-want +got)\n%s", diff)
	}
}

func suspendedTrainJob() *v1alpha1.TrainJob {
	return &v1alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm", UID: "u"},
		Spec:       v1alpha1.TrainJobSpec{Suspend: ptr.To(true)},
	}
}

// fineTuning fetches a dataset, then trains on 4 nodes beside 2 x 3 servers.
func fineTuning(ask func(*v1alpha1.TrainingRuntimeSpec)) *v1alpha1.TrainingRuntimeSpec {
	job := func(name, ancestor, container string, replicas, pods int32) jobsetv1alpha2.ReplicatedJob {
		j := jobsetv1alpha2.ReplicatedJob{Name: name, Replicas: replicas}
		if ancestor != "" {
			j.Template.Labels = map[string]string{v1alpha1.AncestorLabel: ancestor}
		}
		j.Template.Spec.Parallelism = &pods
		j.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: container}}
		return j
	}
	after := []jobsetv1alpha2.DependsOn{{Name: "data", Status: jobsetv1alpha2.DependencyComplete}}
	data := job("data", v1alpha1.AncestorDatasetInitializer, v1alpha1.AncestorDatasetInitializer, 1, 1)
	node := job("node", v1alpha1.AncestorTrainer, v1alpha1.NodeContainer, 1, 1)
	server := job("server", "", "server", 2, 3)
	node.DependsOn, server.DependsOn = after, after
	spec := &v1alpha1.TrainingRuntimeSpec{MLPolicy: &v1alpha1.MLPolicy{NumNodes: ptr.To[int32](4)}}
	spec.Template.Spec.ReplicatedJobs = []jobsetv1alpha2.ReplicatedJob{data, node, server}
	ask(spec)
	return spec
}

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

func TestUnservedBackends(t *testing.T) {
	for _, name := range []gang.Backend{gang.Volcano, gang.Native} {
		t.Run(string(name), func(t *testing.T) {
			tr := newTrainer(t, []gang.Backend{name})
			_, err := tr.run(suspendedTrainJob(), fineTuning(backends[name].ask))
			if err == nil || !strings.Contains(err.Error(), "the API server does not serve PodGroups of "+string(name)) {
				t.Errorf("error = %v", err)
			}
			// TrainJobs that do not ask for it do not suffer.
			tr.mustRun(suspendedTrainJob(), fineTuning(backends[gang.Coscheduling].ask))
			if err := tr.Finish(t.Context(), suspendedTrainJob()); err != nil {
				t.Error(err)
			}
			groups, err := Groups(tr.Client)
			if err != nil || len(groups) != 2 {
				t.Errorf("%d kinds of groups to watch, error %v, want 2", len(groups), err)
			}
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

package plugins

import (
	"context"
	"fmt"
	"slices"
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
	steps  []framework.Plugin
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
	tr.steps = All(tr.Client, tr.Client, "muster")
	tr.Framework = framework.New(tr.steps...)
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

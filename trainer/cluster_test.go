package trainer

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/volcano"
	"github.com/muster-sched/muster/trainer/runtime/gang"
	"github.com/muster-sched/muster/trainer/snapshot"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// cluster is a reconciler with an API in memory.
type cluster struct {
	t *testing.T
	client.Client
	reconciler *reconciler
	clock      *clocktesting.FakePassiveClock
	events     chan string

	// writes are the requests that changed, or could have changed, something.
	writes []string
	// propagation is how the Jobs of the last deleted JobSet are deleted.
	propagation metav1.DeletionPropagation
	// fail, if set, is asked about each write, as "VERB KIND".
	fail func(write string) error
	// stale, if set, is what reads of the TrainJob return, as from a cache that lags behind.
	stale *v1alpha1.TrainJob
	// unseen, if set, is an object that reads do not find, as in such a cache.
	unseen client.Object
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme := apiruntime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, clock: clocktesting.NewFakePassiveClock(start)}
	write := func(verb string, object any) error {
		kind := fmt.Sprintf("%T", object)
		kind = kind[strings.LastIndex(kind, ".")+1:]
		if u, ok := object.(interface{ GetKind() string }); ok {
			kind = u.GetKind()
		}
		c.writes = append(c.writes, verb+" "+kind)
		if c.fail != nil {
			return c.fail(verb + " " + kind)
		}
		return nil
	}
	served := meta.NewDefaultRESTMapper(nil)
	for _, gvk := range []schema.GroupVersionKind{volcano.GroupVersion.WithKind("PodGroup"), schedulingv1beta1.SchemeGroupVersion.WithKind("PodGroup")} {
		served.Add(gvk, meta.RESTScopeNamespace)
	}
	live := fake.NewClientBuilder().
		WithScheme(scheme).
		WithRESTMapper(served).
		WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.TrainJob{}, &jobsetv1alpha2.JobSet{}, &podgroup.PodGroup{}).
		WithIndex(&v1alpha1.TrainJob{}, runtimeIndex, indexRuntime).
		WithIndex(&podgroup.PodGroup{}, gang.OwnerIndex, gang.IndexOwner).
		WithIndex(&volcano.PodGroup{}, gang.OwnerIndex, gang.IndexOwner).
		WithIndex(&schedulingv1beta1.PodGroup{}, gang.OwnerIndex, gang.IndexOwner).
		WithReturnManagedFields().
		Build()
	c.Client = interceptor.NewClient(live, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if job, ok := object.(*v1alpha1.TrainJob); ok && c.stale != nil {
				c.stale.DeepCopyInto(job)
				return nil
			}
			if c.unseen != nil && reflect.TypeOf(object) == reflect.TypeOf(c.unseen) && key == client.ObjectKeyFromObject(c.unseen) {
				return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
			}
			return w.Get(ctx, key, object, opts...)
		},
		Create: func(ctx context.Context, w client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			if err := write("create", object); err != nil {
				return err
			}
			return w.Create(ctx, object, opts...)
		},
		Apply: func(ctx context.Context, w client.WithWatch, object apiruntime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if err := write("apply", object); err != nil {
				return err
			}
			return w.Apply(ctx, object, opts...)
		},
		Patch: func(ctx context.Context, w client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := write("patch", object); err != nil {
				return err
			}
			return w.Patch(ctx, object, patch, opts...)
		},
		Delete: func(ctx context.Context, w client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
			if err := write("delete", object); err != nil {
				return err
			}
			if _, ok := object.(*jobsetv1alpha2.JobSet); ok {
				c.propagation = ptr.Deref((&client.DeleteOptions{}).ApplyOptions(opts).PropagationPolicy, "")
			}
			return w.Delete(ctx, object, opts...)
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, subresource string, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := write("patch "+subresource, object); err != nil {
				return err
			}
			return w.SubResource(subresource).Patch(ctx, object, patch, opts...)
		},
	})
	recorder := events.NewFakeRecorder(100)
	c.events = recorder.Events
	c.reconciler = &reconciler{
		client:    c.Client,
		framework: framework.New(plugins.All(c.Client, live, "muster-scheduler")...),
		snapshots: &snapshot.Store{Runtimes: c.Client, Snapshots: c.Client, Live: c.Client, Writer: c.Client},
		recorder:  recorder,
		clock:     c.clock,
	}
	return c
}

// reconcile reconciles the TrainJob once.
func (c *cluster) reconcile() (ctrl.Result, error) {
	c.t.Helper()
	return c.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(trainJob())})
}

func (c *cluster) mustReconcile() ctrl.Result {
	c.t.Helper()
	result, err := c.reconcile()
	if err != nil {
		c.t.Fatalf("reconciling: %v", err)
	}
	return result
}

// settle reconciles until nothing is written.
func (c *cluster) settle() {
	c.t.Helper()
	for range 10 {
		c.writes = nil
		c.mustReconcile()
		if len(c.writes) == 0 {
			return
		}
	}
	c.t.Fatalf("still writing after 10 reconciles: %v", c.writes)
}

// get reads an object by its name into itself, and tells whether it is there.
func (c *cluster) get(object client.Object) bool {
	c.t.Helper()
	err := c.Get(context.Background(), client.ObjectKeyFromObject(object), object)
	if client.IgnoreNotFound(err) != nil {
		c.t.Fatal(err)
	}
	return err == nil
}

func (c *cluster) job() *v1alpha1.TrainJob {
	c.t.Helper()
	job := trainJob()
	if !c.get(job) {
		c.t.Fatal("the TrainJob is gone")
	}
	return job
}

func (c *cluster) jobSet() *jobsetv1alpha2.JobSet {
	c.t.Helper()
	jobSet := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm"}}
	if !c.get(jobSet) {
		return nil
	}
	return jobSet
}

func (c *cluster) podGroups() []string {
	c.t.Helper()
	groups := &podgroup.PodGroupList{}
	if err := c.List(context.Background(), groups); err != nil {
		c.t.Fatal(err)
	}
	var names []string
	for _, group := range groups.Items {
		names = append(names, fmt.Sprintf("%s:%d", group.Name, group.Spec.MinMember))
	}
	return names
}

func (c *cluster) condition(kind string) *metav1.Condition {
	c.t.Helper()
	return meta.FindStatusCondition(c.job().Status.Conditions, kind)
}

// wantCondition checks status, reason, and that the message has a part.
func (c *cluster) wantCondition(kind string, status metav1.ConditionStatus, reason, part string) {
	c.t.Helper()
	got := c.condition(kind)
	if got == nil || got.Status != status || got.Reason != reason || !strings.Contains(got.Message, part) {
		c.t.Fatalf("condition %s = %+v, want %s %s with %q", kind, got, status, reason, part)
	}
}

func (c *cluster) update(object client.Object, change func()) {
	c.t.Helper()
	change()
	if err := c.Update(context.Background(), object); err != nil {
		c.t.Fatal(err)
	}
}

// setJobSetStatus plays the JobSet controller.
func (c *cluster) setJobSetStatus(status jobsetv1alpha2.JobSetStatus) {
	c.t.Helper()
	jobSet := c.jobSet()
	jobSet.Status = status
	if err := c.Status().Update(context.Background(), jobSet); err != nil {
		c.t.Fatal(err)
	}
}

// snapshot returns the snapshot of the TrainJob's runtime, nil if it has none.
func (c *cluster) snapshot() *corev1.ConfigMap {
	c.t.Helper()
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm-runtime-snapshot"}}
	if !c.get(configMap) {
		return nil
	}
	return configMap
}

func (c *cluster) nextEvent() string {
	select {
	case event := <-c.events:
		return event
	default:
		return ""
	}
}

// wantEvents checks that the events since the last look begin so.
func (c *cluster) wantEvents(prefixes ...string) {
	c.t.Helper()
	var got []string
	for event := c.nextEvent(); event != ""; event = c.nextEvent() {
		got = append(got, event)
	}
	if !slices.EqualFunc(got, prefixes, strings.HasPrefix) {
		c.t.Errorf("events = %q, want %q", got, prefixes)
	}
}

func trainJob(changes ...func(*v1alpha1.TrainJob)) *v1alpha1.TrainJob {
	job := &v1alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm", UID: "u-llm", CreationTimestamp: metav1.NewTime(start)},
		Spec: v1alpha1.TrainJobSpec{
			RuntimeRef: v1alpha1.RuntimeRef{Name: "torch-distributed-gang"},
			Trainer: &v1alpha1.Trainer{
				NumNodes: ptr.To[int32](4),
				ResourcesPerNode: &corev1.ResourceRequirements{
					Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
				},
			},
		},
	}
	for _, change := range changes {
		change(job)
	}
	return job
}

func suspended(job *v1alpha1.TrainJob) { job.Spec.Suspend = ptr.To(true) }

// gangRuntime is the runtime that Muster ships.
func gangRuntime(t *testing.T) *v1alpha1.ClusterTrainingRuntime {
	t.Helper()
	return readRuntime(t, "torch-distributed-gang")
}

func readRuntime(t *testing.T, name string) *v1alpha1.ClusterTrainingRuntime {
	t.Helper()
	content, err := os.ReadFile("../manifests/runtimes/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	runtime := &v1alpha1.ClusterTrainingRuntime{}
	if err := yaml.UnmarshalStrict(content, runtime); err != nil {
		t.Fatal(err)
	}
	return runtime
}

func terminal(kind jobsetv1alpha2.JobSetConditionType) jobsetv1alpha2.JobSetStatus {
	return jobsetv1alpha2.JobSetStatus{
		Conditions: []metav1.Condition{{
			Type: string(kind), Status: metav1.ConditionTrue, Reason: "AllJobs" + string(kind), Message: "jobset ended",
			LastTransitionTime: metav1.NewTime(start.Add(time.Hour)),
		}},
		ReplicatedJobsStatus: []jobsetv1alpha2.ReplicatedJobStatus{{Name: "node", Succeeded: 1}},
	}
}

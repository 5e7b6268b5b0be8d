package trainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
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
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/coscheduling"
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
	// fail, if set, is asked about each write, as "VERB KIND".
	fail func(write string) error
	// stale, if set, is what reads of the TrainJob return, as from a cache that lags behind.
	stale *v1alpha1.TrainJob
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
	c.Client = fake.NewClientBuilder().
		WithScheme(scheme).
		WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.TrainJob{}, &jobsetv1alpha2.JobSet{}, &podgroup.PodGroup{}).
		WithIndex(&v1alpha1.TrainJob{}, runtimeIndex, indexRuntime).
		WithIndex(&podgroup.PodGroup{}, coscheduling.OwnerIndex, coscheduling.IndexOwner).
		WithReturnManagedFields().
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				if job, ok := object.(*v1alpha1.TrainJob); ok && c.stale != nil {
					c.stale.DeepCopyInto(job)
					return nil
				}
				return w.Get(ctx, key, object, opts...)
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
				return w.Delete(ctx, object, opts...)
			},
			SubResourcePatch: func(ctx context.Context, w client.Client, subresource string, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				if err := write("patch "+subresource, object); err != nil {
					return err
				}
				return w.SubResource(subresource).Patch(ctx, object, patch, opts...)
			},
		}).
		Build()
	recorder := events.NewFakeRecorder(100)
	c.events = recorder.Events
	c.reconciler = &reconciler{
		client:    c.Client,
		framework: framework.New(plugins.All(c.Client, "muster-scheduler")...),
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

func (c *cluster) nextEvent() string {
	select {
	case event := <-c.events:
		return event
	default:
		return ""
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

func TestReconcileMakesJobSetAndPodGroup(t *testing.T) {
	c := newCluster(t, trainJob(), gangRuntime(t))
	c.mustReconcile()
	if diff := cmp.Diff([]string{"apply PodGroup", "apply JobSet"}, c.writes); diff != "" {
		t.Errorf("writes (-want +got): the group must be there before its pods\n%s", diff)
	}
	jobSet := c.jobSet()
	if jobSet == nil {
		t.Fatal("no JobSet")
	}
	template := jobSet.Spec.ReplicatedJobs[0].Template.Spec
	if got := ptr.Deref(template.Parallelism, 0); got != 4 {
		t.Errorf("parallelism = %d, want 4", got)
	}
	if got := template.Template.Labels[podgroup.GroupLabel]; got != "llm" {
		t.Errorf("group label = %q, want llm", got)
	}
	if got := template.Template.Spec.SchedulerName; got != "muster-scheduler" {
		t.Errorf("schedulerName = %q", got)
	}
	group := &podgroup.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm"}}
	if !c.get(group) {
		t.Fatal("no PodGroup")
	}
	gpus := group.Spec.MinResources["nvidia.com/gpu"]
	if group.Spec.MinMember != 4 || gpus.Value() != 32 || ptr.Deref(group.Spec.ScheduleTimeoutSeconds, 0) != 60 {
		t.Errorf("PodGroup spec = %+v, want 4 members, 32 GPUs, 60 s", group.Spec)
	}
	for _, child := range []client.Object{jobSet, group} {
		if !metav1.IsControlledBy(child, trainJob()) {
			t.Errorf("%T is not controlled by the TrainJob: %v", child, child.GetOwnerReferences())
		}
	}
	if len(c.job().Status.Conditions) != 0 {
		t.Errorf("conditions of a job that just started: %v", c.job().Status.Conditions)
	}
	c.writes = nil
	c.mustReconcile()
	if len(c.writes) != 0 {
		t.Errorf("a second reconcile wrote: %v", c.writes)
	}
}

func TestReconcileWithoutPolicyMakesNoPodGroup(t *testing.T) {
	c := newCluster(t, trainJob(func(j *v1alpha1.TrainJob) { j.Spec.RuntimeRef.Name = "torch-distributed" }), readRuntime(t, "torch-distributed"))
	c.settle()
	if got := c.podGroups(); got != nil {
		t.Errorf("PodGroups = %v, want none", got)
	}
	template := c.jobSet().Spec.ReplicatedJobs[0].Template.Spec.Template
	if template.Labels[podgroup.GroupLabel] != "" || template.Spec.SchedulerName != "" {
		t.Errorf("pods of a job without a gang: labels %v, schedulerName %q", template.Labels, template.Spec.SchedulerName)
	}
}

func TestReconcileLeavesOthersAlone(t *testing.T) {
	now := metav1.NewTime(start)
	for name, job := range map[string]*v1alpha1.TrainJob{
		"managed by Kueue": trainJob(func(j *v1alpha1.TrainJob) { j.Spec.ManagedBy = ptr.To("kueue.x-k8s.io/multikueue") }),
		"being deleted": trainJob(func(j *v1alpha1.TrainJob) {
			j.DeletionTimestamp, j.Finalizers = &now, []string{"example.com/hold"}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, job, gangRuntime(t))
			c.mustReconcile()
			if len(c.writes) != 0 {
				t.Errorf("writes = %v", c.writes)
			}
		})
	}
	t.Run("managed by name", func(t *testing.T) {
		c := newCluster(t, trainJob(func(j *v1alpha1.TrainJob) { j.Spec.ManagedBy = ptr.To(v1alpha1.ControllerName) }), gangRuntime(t))
		c.mustReconcile()
		if c.jobSet() == nil {
			t.Error("no JobSet")
		}
	})
	t.Run("gone", func(t *testing.T) {
		newCluster(t).mustReconcile()
	})
}

func TestReconcileSuspendAndResume(t *testing.T) {
	c := newCluster(t, trainJob(suspended), gangRuntime(t))
	c.settle()
	c.wantCondition(v1alpha1.TrainJobSuspended, metav1.ConditionTrue, "Suspended", "TrainJob is suspended")
	if !ptr.Deref(c.jobSet().Spec.Suspend, false) {
		t.Fatal("the JobSet is not suspended")
	}

	job := c.job()
	c.update(job, func() { job.Spec.Suspend = ptr.To(false) })
	c.settle()
	c.wantCondition(v1alpha1.TrainJobSuspended, metav1.ConditionFalse, "Resumed", "TrainJob is resumed")
	if ptr.Deref(c.jobSet().Spec.Suspend, true) {
		t.Fatal("the JobSet is still suspended")
	}

	// The runtime changes while the job runs: suspending must touch nothing else, because JobSet would
	// refuse it.
	runtime := gangRuntime(t)
	c.get(runtime)
	c.update(runtime, func() {
		runtime.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image = "new"
	})
	c.settle()
	image := func() string {
		return c.jobSet().Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image
	}
	if image() == "new" {
		t.Fatal("a running JobSet followed its runtime")
	}
	job = c.job()
	c.update(job, func() { job.Spec.Suspend = ptr.To(true) })
	c.writes = nil
	c.mustReconcile()
	if diff := cmp.Diff([]string{"patch JobSet", "patch status TrainJob"}, c.writes); diff != "" {
		t.Errorf("writes (-want +got)\n%s", diff)
	}
	if !ptr.Deref(c.jobSet().Spec.Suspend, false) || image() == "new" {
		t.Errorf("suspending: suspend %v, image %q", c.jobSet().Spec.Suspend, image())
	}
	c.settle()
	if image() != "new" {
		t.Errorf("a suspended JobSet did not follow its runtime: image %q", image())
	}
}

func TestSuspendedJobFollowsPatchesAndDropsThem(t *testing.T) {
	patch := v1alpha1.RuntimePatch{
		Manager: "kueue.x-k8s.io/manager",
		TrainingRuntimeSpec: &v1alpha1.TrainingRuntimeSpecPatch{Template: &v1alpha1.JobSetTemplatePatch{Spec: &v1alpha1.JobSetSpecPatch{
			ReplicatedJobs: []v1alpha1.ReplicatedJobPatch{{Name: "node", Template: &v1alpha1.JobTemplatePatch{Spec: &v1alpha1.JobSpecPatch{
				Template: &v1alpha1.PodTemplatePatch{Spec: &v1alpha1.PodSpecPatch{NodeSelector: map[string]string{"pool": "a100"}}},
			}}}},
		}}},
	}
	c := newCluster(t, trainJob(suspended), gangRuntime(t))
	c.settle()
	selector := func() map[string]string {
		return c.jobSet().Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector
	}
	job := c.job()
	c.update(job, func() { job.Spec.RuntimePatches = []v1alpha1.RuntimePatch{patch} })
	c.settle()
	if diff := cmp.Diff(map[string]string{"pool": "a100"}, selector()); diff != "" {
		t.Fatalf("node selector (-want +got)\n%s", diff)
	}
	job = c.job()
	c.update(job, func() { job.Spec.RuntimePatches = nil })
	c.settle()
	if len(selector()) != 0 {
		t.Errorf("node selector after the patch is gone: %v", selector())
	}
}

func TestSuspendedJobSetIsReplacedWhereItCannotChange(t *testing.T) {
	immutable := func(write string) error {
		if write != "apply JobSet" {
			return nil
		}
		return apierrors.NewInvalid(schema.GroupKind{Group: "jobset.x-k8s.io", Kind: "JobSet"}, "llm", nil)
	}
	c := newCluster(t, trainJob(suspended), gangRuntime(t))
	c.settle()
	runtime := gangRuntime(t)
	c.get(runtime)
	c.update(runtime, func() {
		runtime.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image = "new"
	})
	c.setJobSetStatus(jobsetv1alpha2.JobSetStatus{ReplicatedJobsStatus: []jobsetv1alpha2.ReplicatedJobStatus{{Name: "node", Active: 1}}})

	c.fail = immutable
	if _, err := c.reconcile(); err == nil || !strings.Contains(err.Error(), "waiting for the pods") {
		t.Fatalf("error with active pods = %v", err)
	}
	if c.jobSet() == nil {
		t.Fatal("a JobSet with active pods was deleted")
	}
	c.setJobSetStatus(jobsetv1alpha2.JobSetStatus{})
	c.mustReconcile()
	if c.jobSet() != nil {
		t.Fatal("the JobSet was not deleted")
	}
	c.fail = nil
	c.settle()
	if got := c.jobSet().Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image; got != "new" {
		t.Errorf("image of the new JobSet = %q", got)
	}
	if c.job().Finished() {
		t.Errorf("the TrainJob ended: %v", c.job().Status.Conditions)
	}
}

func TestReconcileEndIsFinal(t *testing.T) {
	for kind, want := range map[jobsetv1alpha2.JobSetConditionType]string{
		jobsetv1alpha2.JobSetCompleted: v1alpha1.TrainJobComplete,
		jobsetv1alpha2.JobSetFailed:    v1alpha1.TrainJobFailed,
	} {
		t.Run(want, func(t *testing.T) {
			c := newCluster(t, trainJob(), gangRuntime(t))
			c.settle()
			c.setJobSetStatus(terminal(kind))
			c.settle()
			c.wantCondition(want, metav1.ConditionTrue, "AllJobs"+string(kind), "jobset ended")
			if got := c.condition(want).LastTransitionTime; !got.Time.Equal(start.Add(time.Hour)) {
				t.Errorf("last transition = %v", got)
			}
			if diff := cmp.Diff([]v1alpha1.JobStatus{{
				Name: "node", Ready: ptr.To[int32](0), Succeeded: ptr.To[int32](1), Failed: ptr.To[int32](0),
				Active: ptr.To[int32](0), Suspended: ptr.To[int32](0),
			}}, c.job().Status.JobsStatus); diff != "" {
				t.Errorf("jobsStatus (-want +got)\n%s", diff)
			}
			if got := c.podGroups(); got != nil {
				t.Errorf("PodGroups of a finished job: %v", got)
			}
			if c.jobSet() == nil {
				t.Error("the finished JobSet, which has its own TTL, was deleted")
			}

			// Its TTL deletes the JobSet, the runtime goes, and the user suspends: nothing revives the job.
			end := c.job().Status
			if err := c.Delete(context.Background(), c.jobSet()); err != nil {
				t.Fatal(err)
			}
			job := c.job()
			c.update(job, func() { job.Spec.Suspend = ptr.To(true) })
			c.writes = nil
			c.mustReconcile()
			if len(c.writes) != 0 || c.jobSet() != nil {
				t.Errorf("writes after the end: %v", c.writes)
			}
			if diff := cmp.Diff(end, c.job().Status, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("status after the end (-before +after)\n%s", diff)
			}
		})
	}
}

func TestTTLStartsWhenTheEndIsRecorded(t *testing.T) {
	for held, want := range map[string]*int32{"0": ptr.To[int32](0), "600": ptr.To[int32](600), "edited": nil, "-1": nil} {
		t.Run(held, func(t *testing.T) {
			runtime := gangRuntime(t)
			runtime.Spec.Template.Spec.TTLSecondsAfterFinished = ptr.To[int32](600)
			c := newCluster(t, trainJob(), runtime)
			c.settle()
			jobSet := c.jobSet()
			const annotation = "trainer.muster.dev/ttl-seconds-after-finished"
			if ttl := jobSet.Spec.TTLSecondsAfterFinished; ttl != nil || jobSet.Annotations[annotation] != "600" {
				t.Fatalf("TTL of a running JobSet = %v, annotations %v", ttl, jobSet.Annotations)
			}
			c.update(jobSet, func() { jobSet.Annotations[annotation] = held })
			c.setJobSetStatus(terminal(jobsetv1alpha2.JobSetCompleted))
			c.fail = func(write string) error {
				if write == "patch JobSet" && !c.job().Finished() {
					t.Error("the TTL started before the end was recorded")
				}
				return nil
			}
			c.settle()
			if diff := cmp.Diff(want, c.jobSet().Spec.TTLSecondsAfterFinished); diff != "" {
				t.Errorf("TTL of a finished JobSet (-want +got)\n%s", diff)
			}
		})
	}
}

func TestReconcileStaleReadDoesNotRevive(t *testing.T) {
	c := newCluster(t, trainJob(), gangRuntime(t))
	c.settle()
	stale := c.job()
	c.setJobSetStatus(terminal(jobsetv1alpha2.JobSetCompleted))
	c.settle()
	// The cache still shows the TrainJob without its end, and the JobSet is gone already.
	if err := c.Delete(context.Background(), c.jobSet()); err != nil {
		t.Fatal(err)
	}
	c.stale = stale
	c.stale.Spec.Suspend = ptr.To(true)
	_, err := c.reconcile()
	if !apierrors.IsConflict(err) {
		t.Fatalf("reconciling a stale TrainJob: %v, want a conflict", err)
	}
	c.stale = nil
	c.wantCondition(v1alpha1.TrainJobComplete, metav1.ConditionTrue, "AllJobsCompleted", "")
	// What the stale read made is removed again.
	c.settle()
	if c.jobSet() != nil || c.podGroups() != nil {
		t.Errorf("children after the end: %v, %v", c.jobSet(), c.podGroups())
	}
}

func TestEndIsNotOverruledByJobSet(t *testing.T) {
	c := newCluster(t, trainJob(func(j *v1alpha1.TrainJob) { j.Spec.ActiveDeadlineSeconds = 60 }), gangRuntime(t))
	c.settle()
	c.clock.SetTime(start.Add(time.Hour))
	c.fail = func(write string) error {
		if write == "delete JobSet" {
			return errors.New("API server away")
		}
		return nil
	}
	if _, err := c.reconcile(); err == nil {
		t.Fatal("a failed deletion is no error")
	}
	// The JobSet succeeds, too late, before its deletion is tried again.
	c.setJobSetStatus(terminal(jobsetv1alpha2.JobSetCompleted))
	c.fail = nil
	c.settle()
	c.wantCondition(v1alpha1.TrainJobFailed, metav1.ConditionTrue, "DeadlineExceeded", "")
	if got := c.condition(v1alpha1.TrainJobComplete); got != nil {
		t.Errorf("the TrainJob is complete as well: %+v", got)
	}
}

func TestReconcileDeadline(t *testing.T) {
	withDeadline := func(j *v1alpha1.TrainJob) { j.Spec.ActiveDeadlineSeconds = 60 }

	t.Run("passes", func(t *testing.T) {
		c := newCluster(t, trainJob(withDeadline), gangRuntime(t))
		c.clock.SetTime(start.Add(10 * time.Second))
		if got := c.mustReconcile().RequeueAfter; got != 50*time.Second {
			t.Errorf("requeue after %v, want 50s", got)
		}
		c.clock.SetTime(start.Add(60 * time.Second))
		c.settle()
		c.wantCondition(v1alpha1.TrainJobFailed, metav1.ConditionTrue, "DeadlineExceeded", "TrainJob exceeded its active deadline")
		if c.jobSet() != nil || c.podGroups() != nil {
			t.Errorf("children after the deadline: %v, %v", c.jobSet(), c.podGroups())
		}
		if event := c.nextEvent(); !strings.Contains(event, "Warning DeadlineExceeded") {
			t.Errorf("event = %q", event)
		}
	})
	t.Run("deletion is tried until it succeeds", func(t *testing.T) {
		c := newCluster(t, trainJob(withDeadline), gangRuntime(t))
		c.settle()
		c.clock.SetTime(start.Add(time.Hour))
		c.fail = func(write string) error {
			if write == "delete JobSet" {
				return fmt.Errorf("API server away")
			}
			return nil
		}
		for range 2 {
			if _, err := c.reconcile(); err == nil {
				t.Fatal("a failed deletion is no error")
			}
			if c.podGroups() != nil {
				t.Error("the PodGroup waits for the JobSet's deletion")
			}
		}
		c.fail = nil
		c.settle()
		if c.jobSet() != nil {
			t.Error("the JobSet is still there")
		}
	})
	t.Run("stands still while suspended, starts anew on resume", func(t *testing.T) {
		resumed := metav1.NewTime(start.Add(time.Hour))
		c := newCluster(t, trainJob(withDeadline, suspended), gangRuntime(t))
		c.clock.SetTime(resumed.Time)
		if got := c.mustReconcile().RequeueAfter; got != 0 || c.job().Finished() {
			t.Fatalf("suspended: requeue after %v, finished %v", got, c.job().Finished())
		}
		job := c.job()
		c.update(job, func() { job.Spec.Suspend = ptr.To(false) })
		job.Status.Conditions = []metav1.Condition{{Type: "Suspended", Status: "False", Reason: "Resumed", Message: "TrainJob is resumed", LastTransitionTime: resumed}}
		if err := c.Status().Update(context.Background(), job); err != nil {
			t.Fatal(err)
		}
		c.clock.SetTime(resumed.Add(59 * time.Second))
		if got := c.mustReconcile().RequeueAfter; got != time.Second {
			t.Errorf("requeue after %v, want 1s", got)
		}
	})
}

func TestReconcileRefusals(t *testing.T) {
	cases := map[string]struct {
		job     func(*v1alpha1.TrainJob)
		runtime func(*v1alpha1.ClusterTrainingRuntime)
		reason  string
		message string
	}{
		"another kind of runtime": {
			job:    func(j *v1alpha1.TrainJob) { j.Spec.RuntimeRef.Kind = ptr.To("Recipe") },
			reason: "TrainingRuntimeNotSupported", message: "unsupported runtime: Recipe.trainer.kubeflow.org",
		},
		"another group of runtime": {
			job:    func(j *v1alpha1.TrainJob) { j.Spec.RuntimeRef.APIGroup = ptr.To("example.com") },
			reason: "TrainingRuntimeNotSupported", message: "unsupported runtime: ClusterTrainingRuntime.example.com",
		},
		"MPI": {
			runtime: func(r *v1alpha1.ClusterTrainingRuntime) {
				r.Spec.MLPolicy.MLPolicySource = v1alpha1.MLPolicySource{MPI: &v1alpha1.MPIMLPolicySource{}}
			},
			reason: "TrainingRuntimeNotSupported", message: "ClusterTrainingRuntime torch-distributed-gang: spec.mlPolicy.mpi: ",
		},
		"JAX": {
			runtime: func(r *v1alpha1.ClusterTrainingRuntime) {
				r.Spec.MLPolicy.MLPolicySource = v1alpha1.MLPolicySource{JAX: &v1alpha1.JAXMLPolicySource{}}
			},
			reason: "TrainingRuntimeNotSupported", message: "spec.mlPolicy.jax: ",
		},
		"XGBoost": {
			runtime: func(r *v1alpha1.ClusterTrainingRuntime) {
				r.Spec.MLPolicy.MLPolicySource = v1alpha1.MLPolicySource{XGBoost: &v1alpha1.XGBoostMLPolicySource{}}
			},
			reason: "TrainingRuntimeNotSupported", message: "spec.mlPolicy.xgboost: ",
		},
		"Flux": {
			runtime: func(r *v1alpha1.ClusterTrainingRuntime) {
				r.Spec.MLPolicy.MLPolicySource = v1alpha1.MLPolicySource{Flux: &v1alpha1.FluxMLPolicySource{}}
			},
			reason: "TrainingRuntimeNotSupported", message: "spec.mlPolicy.flux: ",
		},
		"Volcano, beside coscheduling too": {
			runtime: func(r *v1alpha1.ClusterTrainingRuntime) {
				r.Spec.PodGroupPolicy.Volcano = &v1alpha1.VolcanoPodGroupPolicySource{}
			},
			reason: "TrainingRuntimeNotSupported", message: "spec.podGroupPolicy.volcano: ",
		},
		"no nodes": {
			job:    func(j *v1alpha1.TrainJob) { j.Spec.Trainer.NumNodes = ptr.To[int32](0) },
			reason: "Invalid", message: "spec.trainer.numNodes: Invalid value: 0: must be at least 1",
		},
		"a reserved variable": {
			job: func(j *v1alpha1.TrainJob) {
				j.Spec.Trainer.Env = []corev1.EnvVar{{Name: "A"}, {Name: "PET_NNODES"}}
			},
			reason: "Invalid", message: "spec.trainer.env[1].name: ",
		},
		"a negative timeout": {
			runtime: func(r *v1alpha1.ClusterTrainingRuntime) {
				r.Spec.PodGroupPolicy.Coscheduling.ScheduleTimeoutSeconds = ptr.To[int32](-1)
			},
			reason: "Invalid", message: "ClusterTrainingRuntime torch-distributed-gang: spec.podGroupPolicy.coscheduling.scheduleTimeoutSeconds: ",
		},
		"an initializer that the runtime lacks": {
			job: func(j *v1alpha1.TrainJob) {
				j.Spec.Initializer = &v1alpha1.Initializer{Dataset: &v1alpha1.DatasetInitializer{}}
			},
			reason: "Invalid", message: "spec.initializer.dataset: ",
		},
		"a patch for a job that the runtime lacks": {
			job: func(j *v1alpha1.TrainJob) {
				j.Spec.RuntimePatches = []v1alpha1.RuntimePatch{{
					Manager: "example.com/m",
					TrainingRuntimeSpec: &v1alpha1.TrainingRuntimeSpecPatch{Template: &v1alpha1.JobSetTemplatePatch{
						Spec: &v1alpha1.JobSetSpecPatch{ReplicatedJobs: []v1alpha1.ReplicatedJobPatch{{Name: "nodes"}}},
					}},
				}}
			},
			reason: "Invalid", message: "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].name: ",
		},
		"a runtime without jobs": {
			runtime: func(r *v1alpha1.ClusterTrainingRuntime) { r.Spec.Template.Spec.ReplicatedJobs = nil },
			reason:  "Invalid", message: "spec.template.spec.replicatedJobs: Required value",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job, runtime := trainJob(), gangRuntime(t)
			if tc.job != nil {
				tc.job(job)
			}
			if tc.runtime != nil {
				tc.runtime(runtime)
			}
			c := newCluster(t, job, runtime)
			c.settle()
			c.wantCondition(v1alpha1.TrainJobFailed, metav1.ConditionTrue, tc.reason, tc.message)
			if c.jobSet() != nil || c.podGroups() != nil {
				t.Error("a refused TrainJob has children")
			}
			if event := c.nextEvent(); !strings.Contains(event, "Warning "+tc.reason) {
				t.Errorf("event = %q", event)
			}
			if event := c.nextEvent(); event != "" {
				t.Errorf("a second event: %q", event)
			}
		})
	}
}

func TestReconcileWaitsForRuntime(t *testing.T) {
	c := newCluster(t, trainJob())
	c.settle()
	if c.job().Finished() {
		t.Fatal("a TrainJob before its runtime has failed")
	}
	if event := c.nextEvent(); !strings.Contains(event, "TrainJobResourcesCreationFailed") || !strings.Contains(event, "torch-distributed-gang") {
		t.Errorf("event = %q", event)
	}
	runtime := gangRuntime(t)
	if err := c.Create(context.Background(), runtime); err != nil {
		t.Fatal(err)
	}
	requests := c.reconciler.trainJobsOfRuntime(context.Background(), runtime)
	if len(requests) != 1 || requests[0].NamespacedName != client.ObjectKeyFromObject(trainJob()) {
		t.Fatalf("TrainJobs of the runtime = %v", requests)
	}
	c.settle()
	if c.jobSet() == nil {
		t.Error("no JobSet after the runtime came")
	}
}

func TestTrainJobsOfRuntime(t *testing.T) {
	named := func(namespace, name string, change func(*v1alpha1.TrainJob)) *v1alpha1.TrainJob {
		return trainJob(func(j *v1alpha1.TrainJob) { j.Namespace, j.Name = namespace, name }, change)
	}
	namespaced := func(j *v1alpha1.TrainJob) { j.Spec.RuntimeRef.Kind = ptr.To(v1alpha1.TrainingRuntimeKind) }
	c := newCluster(t,
		named("a", "cluster", func(*v1alpha1.TrainJob) {}),
		named("b", "cluster", func(*v1alpha1.TrainJob) {}),
		named("a", "own", namespaced),
		named("b", "own", namespaced),
		named("a", "other", func(j *v1alpha1.TrainJob) { j.Spec.RuntimeRef.Name = "other" }),
		named("a", "finished", func(j *v1alpha1.TrainJob) { setFailed(j, "Invalid", "") }),
	)
	got := func(runtime client.Object) []string {
		var names []string
		for _, request := range c.reconciler.trainJobsOfRuntime(context.Background(), runtime) {
			names = append(names, request.String())
		}
		return names
	}
	meta := metav1.ObjectMeta{Name: "torch-distributed-gang"}
	if diff := cmp.Diff([]string{"a/cluster", "b/cluster"}, got(&v1alpha1.ClusterTrainingRuntime{ObjectMeta: meta})); diff != "" {
		t.Errorf("cluster runtime (-want +got)\n%s", diff)
	}
	meta.Namespace = "a"
	if diff := cmp.Diff([]string{"a/own"}, got(&v1alpha1.TrainingRuntime{ObjectMeta: meta})); diff != "" {
		t.Errorf("namespaced runtime (-want +got)\n%s", diff)
	}
}

func TestReconcileNeverTakesOthersObjects(t *testing.T) {
	other := metav1.ObjectMeta{Namespace: "research", Name: "llm", Labels: map[string]string{"theirs": "yes"}}
	for name, object := range map[string]client.Object{
		"JobSet":   &jobsetv1alpha2.JobSet{ObjectMeta: other},
		"PodGroup": &podgroup.PodGroup{ObjectMeta: other},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, trainJob(), gangRuntime(t), object)
			_, err := c.reconcile()
			if err == nil || !strings.Contains(err.Error(), name+" research/llm exists and does not belong to this TrainJob") {
				t.Fatalf("error = %v", err)
			}
			if !c.get(object) || len(object.GetOwnerReferences()) != 0 {
				t.Errorf("the object was taken: %v", object.GetOwnerReferences())
			}
			if event := c.nextEvent(); !strings.Contains(event, "does not belong") {
				t.Errorf("event = %q", event)
			}
		})
	}
}

func TestReconcileRefusedByAPIServer(t *testing.T) {
	c := newCluster(t, trainJob(), gangRuntime(t))
	c.fail = func(write string) error {
		if write == "apply JobSet" {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "JobSet"}, "llm", nil)
		}
		return nil
	}
	c.settle()
	c.wantCondition(v1alpha1.TrainJobFailed, metav1.ConditionTrue, "Invalid", `JobSet "llm" is invalid`)
	if got := c.podGroups(); got != nil {
		t.Errorf("PodGroups = %v", got)
	}
}

func TestDeletedPodGroupComesBackWhileJobRuns(t *testing.T) {
	c := newCluster(t, trainJob(), gangRuntime(t))
	c.settle()
	group := &podgroup.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm"}}
	if err := c.Delete(context.Background(), group); err != nil {
		t.Fatal(err)
	}
	c.settle()
	if diff := cmp.Diff([]string{"llm:4"}, c.podGroups()); diff != "" {
		t.Errorf("PodGroups (-want +got)\n%s", diff)
	}
}

func TestPodGroupFollowsRuntimeOnlyWhileSuspended(t *testing.T) {
	numNodes := func(job *v1alpha1.TrainJob) { job.Spec.Trainer.NumNodes = nil }
	resize := func(c *cluster, nodes int32) {
		runtime := gangRuntime(t)
		c.get(runtime)
		c.update(runtime, func() { runtime.Spec.MLPolicy.NumNodes = &nodes })
		c.settle()
	}
	running := newCluster(t, trainJob(numNodes), gangRuntime(t))
	running.settle()
	resize(running, 3)
	if diff := cmp.Diff([]string{"llm:1"}, running.podGroups()); diff != "" {
		t.Errorf("running (-want +got)\n%s", diff)
	}
	idle := newCluster(t, trainJob(numNodes, suspended), gangRuntime(t))
	idle.settle()
	resize(idle, 3)
	if diff := cmp.Diff([]string{"llm:3"}, idle.podGroups()); diff != "" {
		t.Errorf("suspended (-want +got)\n%s", diff)
	}
	// Without a policy there is no group any more.
	runtime := gangRuntime(t)
	idle.get(runtime)
	idle.update(runtime, func() { runtime.Spec.PodGroupPolicy = nil })
	idle.settle()
	if got := idle.podGroups(); got != nil {
		t.Errorf("PodGroups without a policy: %v", got)
	}
}

func TestNote(t *testing.T) {
	if got := note("short"); got != "short" {
		t.Errorf("note = %q", got)
	}
	long := note(strings.Repeat("é", 2000))
	if len(long) > 1024 || !strings.HasSuffix(long, "...") || strings.ContainsRune(long, '\uFFFD') {
		t.Errorf("note of a long text: %d bytes", len(long))
	}
}

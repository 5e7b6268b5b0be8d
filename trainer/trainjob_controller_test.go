package trainer

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

func TestReconcileMakesJobSetAndPodGroup(t *testing.T) {
	c := newCluster(t, trainJob(), gangRuntime(t))
	c.mustReconcile()
	if diff := cmp.Diff([]string{"create ConfigMap", "apply PodGroup", "apply JobSet"}, c.writes); diff != "" {
		t.Errorf("writes (-want +got): the snapshot comes before what is made of it, the group before its pods\n%s", diff)
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

package trainer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

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

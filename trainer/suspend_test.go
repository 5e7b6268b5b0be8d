package trainer

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
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

	// Suspending must touch nothing else, because JobSet would refuse it.
	job = c.job()
	c.update(job, func() { job.Spec.Suspend = ptr.To(true) })
	c.writes = nil
	c.mustReconcile()
	if diff := cmp.Diff([]string{"patch JobSet", "patch status TrainJob"}, c.writes); diff != "" {
		t.Errorf("writes (-want +got)\n%s", diff)
	}
	if !ptr.Deref(c.jobSet().Spec.Suspend, false) {
		t.Error("the JobSet is not suspended again")
	}
}

func podPatch(job string, pod *v1alpha1.PodSpecPatch) v1alpha1.RuntimePatch {
	return v1alpha1.RuntimePatch{
		Manager: "kueue.x-k8s.io/manager",
		TrainingRuntimeSpec: &v1alpha1.TrainingRuntimeSpecPatch{Template: &v1alpha1.JobSetTemplatePatch{Spec: &v1alpha1.JobSetSpecPatch{
			ReplicatedJobs: []v1alpha1.ReplicatedJobPatch{{Name: job, Template: &v1alpha1.JobTemplatePatch{Spec: &v1alpha1.JobSpecPatch{
				Template: &v1alpha1.PodTemplatePatch{Spec: pod},
			}}}},
		}}},
	}
}

func TestSuspendedJobFollowsPatchesAndDropsThem(t *testing.T) {
	patch := podPatch("node", &v1alpha1.PodSpecPatch{NodeSelector: map[string]string{"pool": "a100"}})
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

// A refusal of JobSet's webhook, as the API server returns it.
func denied(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: `admission webhook "vjobset.kb.io" denied the request: ` + message,
	}}
}

func TestSuspendedJobSetIsReplacedWhereItCannotChange(t *testing.T) {
	for name, refusal := range map[string]error{
		"schema":  apierrors.NewInvalid(schema.GroupKind{Group: "jobset.x-k8s.io", Kind: "JobSet"}, "llm", nil),
		"webhook": denied("spec.replicatedJobs: Invalid value: field is immutable"),
	} {
		t.Run(name, func(t *testing.T) {
			immutable := func(write string) error {
				if write != "apply JobSet" {
					return nil
				}
				return refusal
			}
			c := newCluster(t, trainJob(suspended), gangRuntime(t))
			c.settle()
			affinity := &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}
			job := c.job()
			c.update(job, func() {
				job.Spec.RuntimePatches = []v1alpha1.RuntimePatch{podPatch("node", &v1alpha1.PodSpecPatch{Affinity: affinity})}
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
			if c.propagation != metav1.DeletePropagationForeground {
				t.Errorf("Jobs of the old JobSet may be in the way of the new one's: propagation %q", c.propagation)
			}
			c.fail = nil
			c.settle()
			if diff := cmp.Diff(affinity, c.jobSet().Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Affinity); diff != "" {
				t.Errorf("affinity of the new JobSet (-want +got)\n%s", diff)
			}
			if c.job().Finished() {
				t.Errorf("the TrainJob ended: %v", c.job().Status.Conditions)
			}
		})
	}
}

func TestPodGroupFollowsItsTrainJobOnlyWhileSuspended(t *testing.T) {
	resize := func(c *cluster, nodes int32) {
		job := c.job()
		c.update(job, func() { job.Spec.Trainer.NumNodes = &nodes })
		c.settle()
	}
	running := newCluster(t, trainJob(), gangRuntime(t))
	running.settle()
	resize(running, 3)
	if diff := cmp.Diff([]string{"llm:4"}, running.podGroups()); diff != "" {
		t.Errorf("running (-want +got)\n%s", diff)
	}
	idle := newCluster(t, trainJob(suspended), gangRuntime(t))
	idle.settle()
	resize(idle, 3)
	if diff := cmp.Diff([]string{"llm:3"}, idle.podGroups()); diff != "" {
		t.Errorf("suspended (-want +got)\n%s", diff)
	}
}

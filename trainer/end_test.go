package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

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
		c.wantEvents("Normal TrainJobResourcesCreated", "Warning DeadlineExceeded")
	})
	t.Run("the JobSet does not wait for its Jobs to go", func(t *testing.T) {
		c := newCluster(t, trainJob(withDeadline), gangRuntime(t))
		c.settle()
		c.clock.SetTime(start.Add(time.Hour))
		c.settle()
		if c.jobSet() != nil || c.propagation != metav1.DeletePropagationBackground {
			t.Errorf("deleted with propagation %q", c.propagation)
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

// The API has no upper bound for the deadline, and a time.Duration has one.
func TestDeadlineOfAges(t *testing.T) {
	for _, seconds := range []int64{math.MaxInt64, math.MaxInt64 / int64(time.Second), 10_000_000_000, 1 << 40} {
		c := newCluster(t, trainJob(func(j *v1alpha1.TrainJob) { j.Spec.ActiveDeadlineSeconds = seconds }), gangRuntime(t))
		c.settle()
		if wait := c.mustReconcile().RequeueAfter; c.job().Finished() || wait < 200*365*24*time.Hour {
			t.Errorf("%d seconds: conditions %v, next look in %v", seconds, c.job().Status.Conditions, wait)
		}
	}
}

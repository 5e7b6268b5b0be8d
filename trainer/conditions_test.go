package trainer

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// wantBlocked checks that a failure is told on the TrainJob, and written once.
func (c *cluster) wantBlocked(part string) {
	c.t.Helper()
	for range 2 {
		_, _ = c.reconcile()
	}
	c.wantCondition(v1alpha1.TrainJobBlocked, metav1.ConditionTrue, "TrainJobResourcesCreationFailed", part)
	c.writes = nil
	_, _ = c.reconcile()
	if slices.Contains(c.writes, "patch status TrainJob") {
		c.t.Error("a failure that stays the same is written again")
	}
}

// wantUnblocked checks that the children are made once nothing is in the way, and that nothing of it stays.
func (c *cluster) wantUnblocked() {
	c.t.Helper()
	c.settle()
	if got := c.job().Status.Conditions; len(got) != 0 {
		c.t.Errorf("conditions = %+v", got)
	}
	if c.jobSet() == nil {
		c.t.Error("no JobSet")
	}
}

// The Blocked condition names what is in the way of a TrainJob, and goes with it.
func TestBlocked(t *testing.T) {
	t.Run("by somebody's PodGroup", func(t *testing.T) {
		theirs := &podgroup.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm"}}
		c := newCluster(t, trainJob(), gangRuntime(t), theirs)
		c.wantBlocked("PodGroup research/llm exists and does not belong to this TrainJob")
		if err := c.Delete(context.Background(), theirs); err != nil {
			t.Fatal(err)
		}
		c.wantUnblocked()
	})
	t.Run("by somebody's Secret", func(t *testing.T) {
		theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm-mpi-ssh-auth"}}
		ofMPI := func(j *v1alpha1.TrainJob) { j.Spec.RuntimeRef.Name = "deepspeed-distributed-gang" }
		c := newCluster(t, trainJob(ofMPI), readRuntime(t, "deepspeed-distributed-gang"), theirs)
		c.wantBlocked("Secret research/llm-mpi-ssh-auth exists and does not belong to this TrainJob")
		if err := c.Delete(context.Background(), theirs); err != nil {
			t.Fatal(err)
		}
		c.wantUnblocked()
	})
	t.Run("by a runtime that is not there", func(t *testing.T) {
		c := newCluster(t, trainJob())
		c.wantBlocked(`spec.runtimeRef: the runtime does not exist`)
		if err := c.Create(context.Background(), gangRuntime(t)); err != nil {
			t.Fatal(err)
		}
		c.wantUnblocked()
	})
	jobSets := schema.GroupResource{Group: "jobset.x-k8s.io", Resource: "jobsets"}
	for name, err := range map[string]error{
		"by quota":                 apierrors.NewForbidden(jobSets, "llm", errors.New("exceeded quota: count/jobsets")),
		"by a lack of rights":      apierrors.NewForbidden(jobSets, "llm", errors.New("may not create")),
		"by a webhook that's away": apierrors.NewInternalError(errors.New(`failed calling webhook "vjobset.kb.io"`)),
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, trainJob(), gangRuntime(t))
			c.fail = failing("apply JobSet", err)
			c.wantBlocked(err.Error())
			c.fail = nil
			c.wantUnblocked()
		})
	}
}

func failing(write string, err error) func(string) error {
	return func(asked string) error {
		if asked == write {
			return err
		}
		return nil
	}
}

func TestBlockedIsNotWhatPassesByItself(t *testing.T) {
	jobSets := schema.GroupResource{Group: "jobset.x-k8s.io", Resource: "jobsets"}
	for name, err := range map[string]error{
		"a conflict":        apierrors.NewConflict(jobSets, "llm", errors.New("changed")),
		"a busy API server": apierrors.NewTooManyRequests("later", 1),
		"a restart":         context.Canceled,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, trainJob(), gangRuntime(t))
			c.fail = failing("apply JobSet", err)
			if _, err := c.reconcile(); err == nil {
				t.Fatal("no error")
			}
			if got := c.job().Status.Conditions; len(got) != 0 {
				t.Errorf("conditions = %+v", got)
			}
		})
	}
}

// A TrainJob that is over waits for nothing.
func TestBlockedEndsWithTheTrainJob(t *testing.T) {
	theirs := &podgroup.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm"}}
	c := newCluster(t, trainJob(func(j *v1alpha1.TrainJob) { j.Spec.ActiveDeadlineSeconds = 60 }), gangRuntime(t), theirs)
	c.wantBlocked("PodGroup")
	c.clock.SetTime(start.Add(time.Hour))
	c.settle()
	c.wantCondition(v1alpha1.TrainJobFailed, metav1.ConditionTrue, "DeadlineExceeded", "")
	if got := c.job().Status.Conditions; len(got) != 1 {
		t.Errorf("conditions = %+v", got)
	}
	if !c.get(theirs) {
		t.Error("somebody's PodGroup is gone")
	}
}

// What cannot be read of a long message is not stored either.
func TestBlockedCutsLongMessages(t *testing.T) {
	job := trainJob(func(j *v1alpha1.TrainJob) { j.Spec.Suspend = ptr.To(false) })
	setBlocked(job, errors.New(string(make([]byte, 1<<16))))
	if got := len(job.Status.Conditions[0].Message); got > 1024 {
		t.Errorf("%d bytes", got)
	}
}

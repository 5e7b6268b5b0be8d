package trainer

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

func jobs(statuses ...jobsetv1alpha2.ReplicatedJobStatus) jobsetv1alpha2.JobSetStatus {
	return jobsetv1alpha2.JobSetStatus{ReplicatedJobsStatus: statuses}
}

// What happens to a TrainJob between creation and end is told by events, each once.
func TestEventsTellTheLifeOfATrainJob(t *testing.T) {
	c := newCluster(t, trainJob(suspended), gangRuntime(t))
	c.settle()
	c.wantEvents("Normal TrainJobResourcesCreated Made the JobSet from ClusterTrainingRuntime torch-distributed-gang", "Normal Suspended")
	job := c.job()
	c.update(job, func() { job.Spec.Suspend = ptr.To(false) })
	c.settle()
	c.wantEvents("Normal Resumed")
	c.setJobSetStatus(jobs(jobsetv1alpha2.ReplicatedJobStatus{Name: "node", Active: 1}))
	c.settle()
	c.wantEvents()
	c.setJobSetStatus(jobs(jobsetv1alpha2.ReplicatedJobStatus{Name: "node", Active: 1, Ready: 1}))
	c.settle()
	c.settle()
	c.wantEvents("Normal Running")
	c.setJobSetStatus(terminal(jobsetv1alpha2.JobSetCompleted))
	c.settle()
	c.settle()
	c.wantEvents("Normal AllJobsCompleted jobset ended")
}

func TestEventWarnsOfADeprecatedRuntime(t *testing.T) {
	runtime := gangRuntime(t)
	runtime.Labels = map[string]string{v1alpha1.SupportLabel: v1alpha1.SupportDeprecated}
	c := newCluster(t, trainJob(), runtime)
	c.settle()
	c.wantEvents("Normal TrainJobResourcesCreated", `Warning TrainingRuntimeDeprecated ClusterTrainingRuntime "torch-distributed-gang" is deprecated`)
}

func TestEventWarnsOfIdleAccelerators(t *testing.T) {
	c := newCluster(t, trainJob(func(j *v1alpha1.TrainJob) { j.Spec.Trainer.NumProcPerNode = ptr.To[int32](1) }), gangRuntime(t))
	c.settle()
	c.wantEvents("Normal TrainJobResourcesCreated", "Warning AcceleratorsIdle spec.trainer.numProcPerNode: there will be one process on each node, which has 8 nvidia.com/gpu")
}

func TestRunning(t *testing.T) {
	status := func(ready, active, succeeded int32) v1alpha1.JobStatus {
		return v1alpha1.JobStatus{Ready: &ready, Active: &active, Succeeded: &succeeded}
	}
	for name, tc := range map[string]struct {
		jobs []v1alpha1.JobStatus
		want bool
	}{
		"no Jobs yet":                   {nil, false},
		"pods are pending":              {[]v1alpha1.JobStatus{status(0, 1, 0)}, false},
		"ready":                         {[]v1alpha1.JobStatus{status(1, 1, 0)}, true},
		"one of two is ready":           {[]v1alpha1.JobStatus{status(1, 2, 0)}, false},
		"the initializer runs":          {[]v1alpha1.JobStatus{status(1, 1, 0), status(0, 0, 0)}, false},
		"after the initializer":         {[]v1alpha1.JobStatus{status(0, 0, 1), status(1, 1, 0)}, true},
		"pods pending after the first":  {[]v1alpha1.JobStatus{status(0, 0, 1), status(0, 1, 0)}, false},
		"all succeeded, not yet closed": {[]v1alpha1.JobStatus{status(0, 0, 1)}, true},
	} {
		job := trainJob()
		job.Status.JobsStatus = tc.jobs
		if got := running(job); got != tc.want {
			t.Errorf("%s: running = %v", name, got)
		}
	}
	ended := trainJob()
	ended.Status.JobsStatus = []v1alpha1.JobStatus{status(1, 1, 0)}
	setFailed(ended, "Invalid", "")
	if running(ended) {
		t.Error("a failed TrainJob runs")
	}
}

// The first condition that is true is the state that kubectl shows.
func TestEndIsTheStateOfASuspendedTrainJob(t *testing.T) {
	c := newCluster(t, trainJob(suspended), gangRuntime(t))
	c.settle()
	c.setJobSetStatus(terminal(jobsetv1alpha2.JobSetFailed))
	c.settle()
	conditions := c.job().Status.Conditions
	if len(conditions) != 2 || conditions[0].Type != v1alpha1.TrainJobFailed || conditions[1].Status != metav1.ConditionTrue {
		t.Errorf("conditions = %+v", conditions)
	}
	c.writes = nil
	c.mustReconcile()
	if len(c.writes) > 1 {
		t.Errorf("writes after the end: %v", c.writes)
	}
}

package trainer

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

func nodeImage(c *cluster) string {
	return c.jobSet().Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image
}

// A change of the runtime, or its deletion, is nothing to a TrainJob that uses it.
func TestSnapshotIsTheOnlySource(t *testing.T) {
	c := newCluster(t, trainJob(suspended), gangRuntime(t))
	c.settle()
	image := nodeImage(c)

	runtime := gangRuntime(t)
	c.get(runtime)
	c.update(runtime, func() {
		runtime.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image = "new"
	})
	job := c.job()
	c.update(job, func() {
		job.Spec.RuntimePatches = []v1alpha1.RuntimePatch{podPatch("node", &v1alpha1.PodSpecPatch{NodeSelector: map[string]string{"a": "b"}})}
	})
	c.settle()
	if got := nodeImage(c); got != image {
		t.Errorf("image %q after the runtime changed, want %q", got, image)
	}
	if err := c.Delete(context.Background(), runtime); err != nil {
		t.Fatal(err)
	}
	job = c.job()
	c.update(job, func() { job.Spec.Suspend = ptr.To(false) })
	c.settle()
	if ptr.Deref(c.jobSet().Spec.Suspend, true) || nodeImage(c) != image || c.job().Finished() {
		t.Errorf("resumed after the runtime is gone: %+v", c.job().Status)
	}
}

// Others read the snapshot too: it is the whole runtime, with its kind, and goes with the TrainJob.
func TestSnapshotIsTheRuntime(t *testing.T) {
	runtime := gangRuntime(t)
	runtime.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "team": "vision"}
	c := newCluster(t, trainJob(), runtime)
	c.settle()
	snapshot := c.snapshot()
	if snapshot == nil {
		t.Fatal("no snapshot")
	}
	if !metav1.IsControlledBy(snapshot, trainJob()) || !ptr.Deref(snapshot.OwnerReferences[0].BlockOwnerDeletion, false) {
		t.Errorf("owners = %v", snapshot.OwnerReferences)
	}
	got := &v1alpha1.ClusterTrainingRuntime{}
	if err := yaml.UnmarshalStrict([]byte(snapshot.Data["runtime"]), got); err != nil {
		t.Fatal(err)
	}
	if got.Kind != "ClusterTrainingRuntime" || got.APIVersion != "trainer.kubeflow.org/v1alpha1" || got.Name != runtime.Name {
		t.Errorf("snapshot of %s %s %s", got.APIVersion, got.Kind, got.Name)
	}
	if got.Annotations["team"] != "vision" || got.Annotations[corev1.LastAppliedConfigAnnotation] != "" || got.ManagedFields != nil {
		t.Errorf("metadata of the snapshot: %+v", got.ObjectMeta)
	}

	// A TrainJob from before there were snapshots, or whose snapshot was deleted, gets one.
	if err := c.Delete(context.Background(), snapshot); err != nil {
		t.Fatal(err)
	}
	c.settle()
	if c.snapshot() == nil {
		t.Error("a snapshot that was deleted does not come back")
	}
}

func TestSnapshotIsTakenOfWhatIsValid(t *testing.T) {
	runtime := gangRuntime(t)
	runtime.Spec.Template.Spec.ReplicatedJobs = nil
	c := newCluster(t, trainJob(), runtime)
	c.settle()
	c.wantCondition(v1alpha1.TrainJobFailed, metav1.ConditionTrue, "Invalid", "replicatedJobs")
	if c.snapshot() != nil {
		t.Error("a refused TrainJob has a snapshot")
	}
}

func TestUnusableSnapshots(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*corev1.ConfigMap)
		message string
	}{
		"without data":   {func(cm *corev1.ConfigMap) { cm.Data = nil }, "data.runtime: is missing"},
		"not YAML":       {func(cm *corev1.ConfigMap) { cm.Data["runtime"] = "{" }, "data.runtime: is no runtime"},
		"without a kind": {func(cm *corev1.ConfigMap) { cm.Data["runtime"] = "spec: {}" }, "the TrainJob names a"},
		"another kind": {func(cm *corev1.ConfigMap) {
			cm.Data["runtime"] = strings.Replace(cm.Data["runtime"], "kind: ClusterTrainingRuntime", "kind: TrainingRuntime", 1)
		}, `is a "TrainingRuntime.trainer.kubeflow.org", the TrainJob names a "ClusterTrainingRuntime.trainer.kubeflow.org"`},
		"another group": {func(cm *corev1.ConfigMap) {
			cm.Data["runtime"] = strings.Replace(cm.Data["runtime"], "trainer.kubeflow.org/v1alpha1", "example.com/v1", 1)
		}, "the TrainJob names a"},
		"another name": {func(cm *corev1.ConfigMap) {
			cm.Data["runtime"] = strings.ReplaceAll(cm.Data["runtime"], "name: torch-distributed-gang", "name: other")
		}, `is of the runtime "other"`},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, trainJob(suspended), gangRuntime(t))
			c.settle()
			snapshot := c.snapshot()
			c.update(snapshot, func() { tc.change(snapshot) })
			c.settle()
			c.wantCondition(v1alpha1.TrainJobFailed, metav1.ConditionTrue, "Invalid", "ConfigMap llm-runtime-snapshot: ")
			c.wantCondition(v1alpha1.TrainJobFailed, metav1.ConditionTrue, "Invalid", tc.message)
		})
	}
}

// The snapshot of a deleted TrainJob of the same name is on its way out, and never used.
func TestSnapshotOfAnotherTrainJob(t *testing.T) {
	c := newCluster(t, trainJob(), gangRuntime(t))
	c.settle()
	snapshot := c.snapshot()
	c.update(snapshot, func() { snapshot.OwnerReferences[0].UID = "u-before" })
	if _, err := c.reconcile(); err == nil || !strings.Contains(err.Error(), "ConfigMap research/llm-runtime-snapshot exists and does not belong to this TrainJob") {
		t.Fatalf("error = %v", err)
	}
	if c.job().Finished() {
		t.Error("a TrainJob that only has to wait has failed")
	}
	if err := c.Delete(context.Background(), snapshot); err != nil {
		t.Fatal(err)
	}
	c.settle()
	if snapshot := c.snapshot(); snapshot == nil || !metav1.IsControlledBy(snapshot, trainJob()) {
		t.Errorf("snapshot = %v", snapshot)
	}
}

// A snapshot that another process made in between is used, not replaced.
func TestSnapshotIsNeverReplaced(t *testing.T) {
	c := newCluster(t, trainJob(), gangRuntime(t))
	c.fail = func(write string) error {
		if write == "create ConfigMap" {
			return apierrors.NewAlreadyExists(corev1.Resource("configmaps"), "llm-runtime-snapshot")
		}
		return nil
	}
	if _, err := c.reconcile(); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("error = %v", err)
	}
	if c.jobSet() != nil {
		t.Error("a JobSet from a runtime that is not the snapshot's")
	}
}

// TrainJobs of one name in two namespaces have nothing in common.
func TestNamespacesAreApart(t *testing.T) {
	other := trainJob(func(j *v1alpha1.TrainJob) {
		j.Namespace, j.UID = "production", "u-other"
		j.Spec.RuntimeRef = v1alpha1.RuntimeRef{Name: "own", Kind: ptr.To("TrainingRuntime")}
	})
	own := &v1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: "production", Name: "own"}, Spec: gangRuntime(t).Spec}
	own.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image = "theirs"
	c := newCluster(t, trainJob(), gangRuntime(t), other, own)
	c.settle()
	if got := c.podGroups(); len(got) != 1 {
		t.Errorf("PodGroups = %v, want only those of the TrainJob that was reconciled", got)
	}
	if nodeImage(c) == "theirs" {
		t.Error("a runtime of another namespace was used")
	}
	if status := other.DeepCopy(); !c.get(status) || len(status.Status.Conditions) != 0 {
		t.Errorf("the other TrainJob: %+v", status.Status)
	}
}

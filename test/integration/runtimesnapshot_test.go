package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// ownRuntime makes a runtime of the scene's namespace from one that Muster ships.
func (s *scene) ownRuntime(name string, change func(*trainer.TrainingRuntime)) *trainer.TrainingRuntime {
	s.Helper()
	s.runtimes()
	shipped := &trainer.ClusterTrainingRuntime{}
	s.must(kube.Get(s.ctx, types.NamespacedName{Name: "torch-distributed"}, shipped))
	own := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Spec: shipped.Spec}
	change(own)
	s.must(kube.Create(s.ctx, own))
	return own
}

// onOwnRuntime makes a TrainJob use a runtime of its namespace, and start suspended.
func onOwnRuntime(name string) func(*trainer.TrainJob) {
	return func(j *trainer.TrainJob) {
		j.Spec.RuntimeRef = trainer.RuntimeRef{Name: name, Kind: ptr.To("TrainingRuntime")}
		j.Spec.Suspend = ptr.To(true)
	}
}

func (s *scene) submit(name string, change func(*trainer.TrainJob)) *trainer.TrainJob {
	s.Helper()
	job := s.trainJob(name, "", 1, 0)
	change(job)
	s.must(kube.Create(s.ctx, job))
	return job
}

// awaitJobSet waits until the JobSet of a TrainJob is as it should be, and returns it.
func (s *scene) awaitJobSet(name string, wrong func(*jobset.JobSet) string) *jobset.JobSet {
	s.Helper()
	set := &jobset.JobSet{}
	s.await("JobSet "+name, func() string {
		*set = jobset.JobSet{}
		if err := kube.Get(s.ctx, s.key(name), set); err != nil {
			return err.Error()
		}
		return wrong(set)
	})
	return set
}

func podSpecOf(set *jobset.JobSet) *corev1.PodSpec {
	return &set.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
}

// A TrainJob lives on what its runtime was, whatever becomes of it; the old finalizer holds no runtime back.
func TestTrainJobOutlivesItsRuntime(t *testing.T) {
	s := newScene(t)
	own := s.ownRuntime("own", func(r *trainer.TrainingRuntime) { r.Finalizers = []string{trainer.ResourceInUseFinalizer} })
	job := s.submit("llm", onOwnRuntime("own"))
	set := s.awaitJobSet("llm", func(*jobset.JobSet) string { return "" })
	image := podSpecOf(set).Containers[0].Image

	s.change(own, func() {
		own.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image = "new"
	})
	s.must(kube.Delete(s.ctx, own))
	s.await("the runtime to go", func() string {
		if err := kube.Get(s.ctx, s.key("own"), own); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("%v, finalizers %v", err, own.Finalizers)
		}
		return ""
	})
	s.change(job, func() { job.Spec.Suspend = ptr.To(false) })
	set = s.awaitJobSet("llm", func(set *jobset.JobSet) string {
		if ptr.Deref(set.Spec.Suspend, true) {
			return "suspended"
		}
		return ""
	})
	if got := podSpecOf(set).Containers[0].Image; got != image {
		t.Errorf("image %q, want that of the snapshot, %q", got, image)
	}

	// Somebody deletes the snapshot: there is nothing left to make one of, and the JobSet goes on.
	snapshot := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "llm-runtime-snapshot"}}
	s.must(kube.Get(s.ctx, s.key(snapshot.Name), snapshot))
	if !metav1.IsControlledBy(snapshot, job) {
		t.Errorf("owners of the snapshot: %v", snapshot.OwnerReferences)
	}
}

// An affinity may be patched, but JobSet lets none change: the suspended JobSet is replaced.
func TestAffinityPatchReplacesTheSuspendedJobSet(t *testing.T) {
	s := newScene(t)
	s.ownRuntime("own", func(*trainer.TrainingRuntime) {})
	job := s.submit("llm", onOwnRuntime("own"))
	before := s.awaitJobSet("llm", func(*jobset.JobSet) string { return "" })
	affinity := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "pool", Operator: corev1.NodeSelectorOpExists}}}},
	}}}
	s.change(job, func() {
		job.Spec.RuntimePatches = []trainer.RuntimePatch{patchOf("example.com/m", "node", trainer.PodSpecPatch{Affinity: affinity})}
	})
	after := s.awaitJobSet("llm", func(set *jobset.JobSet) string {
		if podSpecOf(set).Affinity == nil {
			return "no affinity"
		}
		return ""
	})
	if before.UID == after.UID {
		t.Error("JobSet let the affinity change: it need not be replaced any more")
	}
	// What JobSet lets change, changes in place.
	s.change(job, func() {
		pod := job.Spec.RuntimePatches[0].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
		pod.NodeSelector = map[string]string{"pool": "a100"}
		job.Spec.Suspend = ptr.To(false)
	})
	last := s.awaitJobSet("llm", func(set *jobset.JobSet) string {
		if ptr.Deref(set.Spec.Suspend, true) || podSpecOf(set).NodeSelector["pool"] != "a100" {
			return fmt.Sprintf("suspend %v, node selector %v", set.Spec.Suspend, podSpecOf(set).NodeSelector)
		}
		return ""
	})
	if last.UID != after.UID {
		t.Error("the JobSet was replaced for a node selector")
	}
}

// What JobSet refuses ends the TrainJob, in JobSet's words: nothing would make it otherwise.
func TestJobSetsRefusalEndsTheTrainJob(t *testing.T) {
	s := newScene(t)
	s.ownRuntime("own", func(r *trainer.TrainingRuntime) {
		r.Spec.Template.Spec.SuccessPolicy = &jobset.SuccessPolicy{Operator: jobset.OperatorAll, TargetReplicatedJobs: []string{"nobody"}}
	})
	s.submit("llm", onOwnRuntime("own"))
	why := s.awaitFailed("llm")
	for _, part := range []string{"spec.runtimeRef: what TrainingRuntime own makes of the TrainJob is refused", "denied the request", "nobody"} {
		if !strings.Contains(why, part) {
			t.Errorf("%q is not in %q", part, why)
		}
	}
}

// The schema refuses what would change a training that is under way, without any webhook.
func TestImmutableFieldsOfATrainJob(t *testing.T) {
	s := newScene(t)
	s.ownRuntime("own", func(*trainer.TrainingRuntime) {})
	job := s.submit("llm", func(j *trainer.TrainJob) {
		onOwnRuntime("own")(j)
		j.Spec.Suspend, j.Spec.Trainer = nil, nil
	})
	for name, change := range map[string]func(*trainer.TrainJobSpec){
		"trainer":               func(spec *trainer.TrainJobSpec) { spec.Trainer = &trainer.Trainer{NumNodes: ptr.To[int32](9)} },
		"initializer":           func(spec *trainer.TrainJobSpec) { spec.Initializer = &trainer.Initializer{} },
		"activeDeadlineSeconds": func(spec *trainer.TrainJobSpec) { spec.ActiveDeadlineSeconds = 60 },
		"runtimePatches": func(spec *trainer.TrainJobSpec) {
			spec.RuntimePatches = []trainer.RuntimePatch{patchOf("example.com/m", "node", trainer.PodSpecPatch{})}
		},
	} {
		s.await(name, func() string {
			s.must(kube.Get(s.ctx, s.key("llm"), job))
			change(&job.Spec)
			err := kube.Update(s.ctx, job)
			if apierrors.IsConflict(err) {
				return err.Error()
			}
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec."+name) {
				t.Errorf("%s: %v", name, err)
			}
			return ""
		})
	}
}

// kubectl shows what a TrainJob is, not what it was last: a resumed one is not suspended.
func TestStateColumn(t *testing.T) {
	s := newScene(t)
	s.ownRuntime("own", func(*trainer.TrainingRuntime) {})
	job := s.submit("llm", onOwnRuntime("own"))
	s.awaitTrainJob("llm", trainer.TrainJobSuspended)
	s.awaitState("llm", "Suspended")
	s.change(job, func() { job.Spec.Suspend = ptr.To(false) })
	s.awaitState("llm", "")
	wrong := s.submit("wrong", func(j *trainer.TrainJob) {
		onOwnRuntime("own")(j)
		j.Spec.Trainer.NumNodes = ptr.To[int32](0)
	})
	s.awaitFailed(wrong.Name)
	s.awaitState("wrong", "Failed")
}

func (s *scene) awaitState(name, want string) {
	s.Helper()
	s.awaitShown(name, "State", want)
}

// awaitShown waits until kubectl would show that of a TrainJob in a column.
func (s *scene) awaitShown(name, column, want string) {
	s.Helper()
	s.await(column+" of "+name, func() string {
		table := &metav1.Table{}
		s.must(cluster.Client().Discovery().RESTClient().Get().
			AbsPath("/apis/trainer.kubeflow.org/v1alpha1/namespaces", s.namespace, "trainjobs", name).
			SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Do(s.ctx).Into(table))
		i := slices.IndexFunc(table.ColumnDefinitions, func(c metav1.TableColumnDefinition) bool { return c.Name == column })
		got := ""
		if cell := table.Rows[0].Cells[i]; cell != nil {
			got = fmt.Sprint(cell)
		}
		if got != want {
			return fmt.Sprintf("shown as %q, want %q", got, want)
		}
		return ""
	})
}

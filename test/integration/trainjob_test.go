package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	"github.com/muster-sched/muster/manifests"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// runtimes installs the training runtimes that Muster ships.
func (s *scene) runtimes() {
	s.Helper()
	objects, err := manifests.Runtimes()
	s.must(err)
	for _, o := range objects {
		s.must(client.IgnoreAlreadyExists(kube.Create(s.ctx, o.DeepCopy())))
	}
}

// trainJob returns a TrainJob whose nodes request GPUs as a limit only.
func (s *scene) trainJob(name, runtime string, nodes int32, gpus int64) *trainer.TrainJob {
	return &trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace},
		Spec: trainer.TrainJobSpec{
			RuntimeRef: trainer.RuntimeRef{Name: runtime},
			Trainer: &trainer.Trainer{
				NumNodes: ptr.To(nodes),
				Command:  []string{"torchrun", "train.py"},
				ResourcesPerNode: &corev1.ResourceRequirements{Limits: corev1.ResourceList{
					gpuResource: *resource.NewQuantity(gpus, resource.DecimalSI),
				}},
			},
		},
	}
}

func (s *scene) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: name}
}

// trainPods returns the pods of a TrainJob.
func (s *scene) trainPods(name string) []corev1.Pod {
	s.Helper()
	pods := &corev1.PodList{}
	s.must(kube.List(s.ctx, pods, client.InNamespace(s.namespace), client.MatchingLabels{jobset.JobSetNameKey: name}))
	return pods.Items
}

func (s *scene) awaitTrainPods(name string, n int, bound bool) {
	s.Helper()
	s.await(fmt.Sprintf("pods of TrainJob %s", name), func() string {
		pods, placed := s.trainPods(name), 0
		for _, p := range pods {
			if p.Spec.NodeName != "" {
				placed++
			}
		}
		if len(pods) != n || bound && placed != n {
			return fmt.Sprintf("%d pods, %d bound, want %d; PodGroup says %s", len(pods), placed, n, s.conditions(s.namespace, name))
		}
		return ""
	})
}

func (s *scene) awaitTrainJob(name, condition string) {
	s.Helper()
	s.await("TrainJob "+name, func() string {
		job := &trainer.TrainJob{}
		s.must(kube.Get(s.ctx, s.key(name), job))
		if !meta.IsStatusConditionTrue(job.Status.Conditions, condition) {
			return fmt.Sprintf("not %s: %+v", condition, job.Status)
		}
		return ""
	})
}

// From a TrainJob to all its pods bound in one commit, to its end.
func TestTrainJobStartsWhole(t *testing.T) {
	s := newScene(t)
	s.runtimes()
	s.nodes(3, controlplane.NodeShape{})
	s.must(kube.Create(s.ctx, s.trainJob("llm", "torch-distributed-gang", 4, 8)))

	why := s.awaitRefused("llm").Message
	if !strings.Contains(why, "room for 3") || !strings.Contains(why, "nvidia.com/gpu: needed 32, free 24") {
		t.Errorf("explanation: %q", why)
	}
	group := &podgroups.PodGroup{}
	s.must(kube.Get(s.ctx, s.key("llm"), group))
	if gpus := group.Spec.MinResources[gpuResource]; group.Spec.MinMember != 4 || gpus.Value() != 32 {
		t.Errorf("minMember %d, minResources %v: want 4 members and the 32 GPUs that stand under limits only", group.Spec.MinMember, group.Spec.MinResources)
	}
	for _, p := range s.trainPods("llm") {
		if p.Spec.NodeName != "" || p.Labels[podgroups.GroupLabel] != "llm" || p.Spec.SchedulerName != schedulerName {
			t.Errorf("pod %s: on node %q, in group %q, for scheduler %q", p.Name, p.Spec.NodeName, p.Labels[podgroups.GroupLabel], p.Spec.SchedulerName)
		}
	}

	s.nodes(1, controlplane.NodeShape{})
	s.awaitTrainPods("llm", 4, true)
	s.awaitCondition(s.namespace, "llm", podgroups.ConditionScheduled, metav1.ConditionTrue)
	s.await("jobsStatus", func() string {
		job := &trainer.TrainJob{}
		s.must(kube.Get(s.ctx, s.key("llm"), job))
		for _, j := range job.Status.JobsStatus {
			if j.Name == "node" && ptr.Deref(j.Ready, 0) == 1 {
				return ""
			}
		}
		return fmt.Sprintf("%+v", job.Status.JobsStatus)
	})

	for _, p := range s.trainPods("llm") {
		s.finish(p.Name)
	}
	s.awaitTrainJob("llm", trainer.TrainJobComplete)
	s.await("the PodGroup of a finished TrainJob to go", func() string {
		if err := kube.Get(s.ctx, s.key("llm"), group); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
}

func TestTrainJobSuspendedAndResumed(t *testing.T) {
	s := newScene(t)
	s.runtimes()
	s.nodes(2, controlplane.NodeShape{})
	job := s.trainJob("llm", "torch-distributed-gang", 2, 8)
	job.Spec.Suspend = ptr.To(true)
	s.must(kube.Create(s.ctx, job))
	s.awaitTrainJob("llm", trainer.TrainJobSuspended)

	s.suspend(job, false)
	s.awaitTrainPods("llm", 2, true)
	s.suspend(job, true)
	s.awaitTrainPods("llm", 0, false)
	s.awaitTrainJob("llm", trainer.TrainJobSuspended)
	// What it held is free while it is suspended.
	s.create(s.singles(2, 8)...)
	s.awaitBound("", 2)
	s.remove("single-0", "single-1")
	s.suspend(job, false)
	s.awaitTrainPods("llm", 2, true)
}

// Installing Muster gangs nothing: a runtime without a policy makes no PodGroup, and its pods stay
// with the scheduler they had.
func TestTrainJobWithoutPolicyIsNoGang(t *testing.T) {
	s := newScene(t)
	s.runtimes()
	s.must(kube.Create(s.ctx, s.trainJob("plain", "torch-distributed", 2, 8)))
	s.awaitTrainPods("plain", 2, false)
	for _, p := range s.trainPods("plain") {
		if p.Labels[podgroups.GroupLabel] != "" || p.Spec.SchedulerName != corev1.DefaultSchedulerName {
			t.Errorf("pod %s: in group %q, for scheduler %q", p.Name, p.Labels[podgroups.GroupLabel], p.Spec.SchedulerName)
		}
	}
	groups := &podgroups.PodGroupList{}
	s.must(kube.List(s.ctx, groups, client.InNamespace(s.namespace)))
	if len(groups.Items) != 0 {
		t.Errorf("%d PodGroups", len(groups.Items))
	}
}

// One gang starts when another TrainJob ends, without anyone's help.
func TestSecondTrainJobStartsWhenTheFirstEnds(t *testing.T) {
	s := newScene(t)
	s.runtimes()
	s.nodes(4, controlplane.NodeShape{})
	s.must(kube.Create(s.ctx, s.trainJob("first", "torch-distributed-gang", 3, 8)))
	s.awaitTrainPods("first", 3, true)
	s.must(kube.Create(s.ctx, s.trainJob("second", "torch-distributed-gang", 3, 8)))
	s.awaitRefused("second")
	for _, p := range s.trainPods("second") {
		if p.Spec.NodeName != "" {
			t.Errorf("pod %s of the second is bound beside the first", p.Name)
		}
	}
	for _, p := range s.trainPods("first") {
		s.finish(p.Name)
	}
	s.awaitTrainJob("first", trainer.TrainJobComplete)
	s.awaitTrainPods("second", 3, true)
}

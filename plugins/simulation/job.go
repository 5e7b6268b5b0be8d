package simulation

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// Namespace is where everything in the simulation is that has one.
const Namespace = "default"

// GPU is the resource that pods request.
const GPU = corev1.ResourceName("nvidia.com/gpu")

// Job is what a user submits: pods that its Job keeps up, and the PodGroup that makes a gang of them.
type Job struct {
	Name string
	// Sizes is how many GPUs each of the pods requests, in the order of their ranks.
	Sizes []int64
	// MinMember is that of the PodGroup; without it there is none, and the pods are single ones.
	MinMember int32
	Priority  int32
	// Annotations are those of the PodGroup.
	Annotations map[string]string
	// RunTime is how long each pod runs before it succeeds; without it a pod runs until it is deleted.
	RunTime time.Duration
	// StopTime is how long a pod takes to end after it was told so, within its grace period; by default five seconds.
	StopTime time.Duration
	// Disruptions is how many of its pods its PodDisruptionBudget lets be evicted at a time; nil for no budget.
	Disruptions *int32
	// PreemptionPolicy is that of the pods, "" for PreemptLowerPriority.
	PreemptionPolicy corev1.PreemptionPolicy
	// Gated is whether the pods have a scheduling gate until Ungate.
	Gated bool
	// Template, if set, changes each pod before it is made.
	Template func(*corev1.Pod)
	// WithoutGroup is whether the PodGroup is not made with the pods, but by CreateGroup.
	WithoutGroup bool
}

// job is a Job in the cluster: the controller that keeps its pods.
type job struct {
	Job
	uid types.UID
	// made counts the pods that were made for each index.
	made []int
	// done are the indices that succeeded.
	done sets.Set[int]
	// live is the pod of each index, "" if there is none.
	live []string
	// order is that in which the Jobs came, and lacks whether this one is among those that may lack a pod.
	order int
	lacks bool
}

const gate = "simulation/gate"

func (j *job) key() types.NamespacedName {
	return types.NamespacedName{Namespace: Namespace, Name: j.Name}
}

// group is the PodGroup of the Job.
func (j *job) group() *v1alpha1.PodGroup {
	g := &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: j.Name, Annotations: maps.Clone(j.Annotations)}}
	g.Spec.MinMember = j.MinMember
	return g
}

// native is its PodGroup of scheduling.k8s.io.
func (j *job) native() *schedulingv1beta1.PodGroup {
	g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: j.Name}}
	g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: j.MinMember}
	g.Spec.Priority = &j.Priority
	return g
}

// pod is the next pod for an index.
func (j *job) pod(index int, native bool) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: Namespace,
		Name:      fmt.Sprintf("%s-%d-%d", j.Name, index, j.made[index]),
		Labels:    map[string]string{batchv1.JobNameLabel: j.Name, batchv1.JobCompletionIndexAnnotation: strconv.Itoa(index)},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "batch/v1", Kind: "Job", Name: j.Name, UID: j.uid, Controller: new(bool),
		}},
	}}
	*pod.OwnerReferences[0].Controller = true
	if j.MinMember > 0 && !native {
		pod.Labels[v1alpha1.GroupLabel] = j.Name
	}
	priority := j.Priority
	requests := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(1, resource.DecimalSI)}
	if gpus := j.Sizes[index]; gpus > 0 {
		requests[GPU] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	pod.Spec = corev1.PodSpec{
		SchedulerName: SchedulerName,
		Priority:      &priority,
		Containers:    []corev1.Container{{Name: "main", Image: "train", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}},
	}
	grace := int64(max(j.StopTime, corev1.DefaultTerminationGracePeriodSeconds*time.Second) / time.Second)
	pod.Spec.TerminationGracePeriodSeconds = &grace
	if policy := j.PreemptionPolicy; policy != "" {
		pod.Spec.PreemptionPolicy = &policy
	}
	pod.Status.Phase = corev1.PodPending
	if j.MinMember > 0 && native {
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &j.Name}
	}
	if j.Gated {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: gate}}
	}
	if j.Template != nil {
		j.Template(pod)
	}
	return pod
}

// missing returns the first index that has no pod and needs one, -1 if there is none.
func (j *job) missing() int {
	for i, name := range j.live {
		if name == "" && !j.done.Has(i) {
			return i
		}
	}
	return -1
}

// saw follows what became of a pod: as a Job does by default, one that fails or is being deleted is replaced.
// It returns the pod that has nothing to do, if one finished that was replaced.
func (j *job) saw(pod *corev1.Pod, exists bool) (idle string) {
	index, _ := podgroup.Rank(pod)
	live := j.live[index]
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		j.done.Insert(index)
		if live != pod.Name {
			return live
		}
	case live != pod.Name:
	case !exists || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed:
		j.live[index] = ""
	}
	return ""
}

// Package coscheduling makes the pods of a TrainJob members of PodGroups, so that they start together or
// not at all.
package coscheduling

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/framework"
)

// Name of the plugin.
const Name = "CoScheduling"

// defaultScheduleTimeoutSeconds is the API's default, for runtimes that were stored without it.
const defaultScheduleTimeoutSeconds int32 = 60

// CoScheduling owns the PodGroups of the TrainJobs whose runtime has a coscheduling policy. Without that
// policy a TrainJob has no PodGroup, and its pods are scheduled one by one.
type CoScheduling struct {
	client        client.Client
	schedulerName string
}

var (
	_ framework.ValidationPlugin     = (*CoScheduling)(nil)
	_ framework.PodGroupPolicyPlugin = (*CoScheduling)(nil)
	_ framework.ComponentPlugin      = (*CoScheduling)(nil)
)

// New makes the plugin. It reads through c, which may be cached but must be indexed by IndexOwner, and
// writes PodGroups. Members whose template names no scheduler get schedulerName, unless that is empty.
func New(c client.Client, schedulerName string) *CoScheduling {
	return &CoScheduling{client: c, schedulerName: schedulerName}
}

// Name implements framework.Plugin.
func (*CoScheduling) Name() string {
	return Name
}

// Validate implements framework.ValidationPlugin.
func (*CoScheduling) Validate(info *runtime.Info, _ *v1alpha1.TrainJob) field.ErrorList {
	policy := policyOf(info)
	if policy == nil {
		return nil
	}
	if seconds := ptr.Deref(policy.ScheduleTimeoutSeconds, 0); seconds < 0 {
		return field.ErrorList{field.Invalid(
			field.NewPath("runtime", "spec", "podGroupPolicy", "coscheduling", "scheduleTimeoutSeconds"), seconds, "must not be negative")}
	}
	return nil
}

// EnforcePodGroupPolicy implements framework.PodGroupPolicyPlugin.
func (c *CoScheduling) EnforcePodGroupPolicy(info *runtime.Info, trainJob *v1alpha1.TrainJob) error {
	if policyOf(info) == nil {
		return nil
	}
	for _, gang := range gangsOf(info, trainJob) {
		for _, podSet := range gang.podSets {
			template := &podSet.Job.Template.Spec.Template
			metav1.SetMetaDataLabel(&template.ObjectMeta, podgroup.GroupLabel, gang.name)
			if template.Spec.SchedulerName == "" {
				template.Spec.SchedulerName = c.schedulerName
			}
		}
	}
	return nil
}

// Build implements framework.ComponentPlugin.
func (c *CoScheduling) Build(ctx context.Context, info *runtime.Info, trainJob *v1alpha1.TrainJob) ([]client.Object, error) {
	policy := policyOf(info)
	if policy == nil {
		return nil, nil
	}
	var objects []client.Object
	for _, gang := range gangsOf(info, trainJob) {
		var members int32
		total := corev1.ResourceList{}
		for _, podSet := range gang.podSets {
			requests, err := c.podRequests(ctx, podSet)
			if err != nil {
				return nil, err
			}
			pods := podSet.Replicas * podSet.Count
			members += pods
			addTimes(total, requests, int64(pods))
		}
		if members == 0 {
			// An MPI job without workers. Nobody waits for a group of none.
			continue
		}
		objects = append(objects, &podgroup.PodGroup{
			TypeMeta: metav1.TypeMeta{APIVersion: podgroup.GroupVersion.String(), Kind: "PodGroup"},
			ObjectMeta: metav1.ObjectMeta{
				Name:            gang.name,
				Namespace:       trainJob.Namespace,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(trainJob, v1alpha1.GroupVersion.WithKind(v1alpha1.TrainJobKind))},
			},
			Spec: schedulingv1alpha1.PodGroupSpec{
				MinMember:              members,
				MinResources:           total,
				ScheduleTimeoutSeconds: ptr.To(ptr.Deref(policy.ScheduleTimeoutSeconds, defaultScheduleTimeoutSeconds)),
			},
		})
	}
	return objects, nil
}

func policyOf(info *runtime.Info) *v1alpha1.CoschedulingPodGroupPolicySource {
	if info.PodGroupPolicy == nil {
		return nil
	}
	return info.PodGroupPolicy.Coscheduling
}

func addTimes(total, requests corev1.ResourceList, times int64) {
	for name, quantity := range requests {
		quantity.Mul(times)
		sum := total[name]
		sum.Add(quantity)
		total[name] = sum
	}
}

// gang is the pods that start together.
type gang struct {
	name    string
	podSets []*runtime.PodSet
}

// gangsOf splits the pods into gangs by startup phase, in the order of the phases. The gang of the
// training nodes has the TrainJob's name, and so has the only gang where there is one phase.
func gangsOf(info *runtime.Info, trainJob *v1alpha1.TrainJob) []gang {
	phases := phasesOf(info.JobSet)
	trainer := 0
	var gangs []gang
	for p := range info.PodSets {
		phase := phases[p]
		for len(gangs) <= phase {
			gangs = append(gangs, gang{name: fmt.Sprintf("%s-phase-%d", trainJob.Name, len(gangs))})
		}
		gangs[phase].podSets = append(gangs[phase].podSets, &info.PodSets[p])
		if info.PodSets[p].Ancestor == v1alpha1.AncestorTrainer {
			trainer = phase
		}
	}
	if len(gangs) > 0 {
		gangs[trainer].name = trainJob.Name
	}
	return gangs
}

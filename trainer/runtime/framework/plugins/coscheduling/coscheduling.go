// Package coscheduling makes the pods of a TrainJob members of PodGroups of scheduling.x-k8s.io, the ones
// that Muster schedules.
package coscheduling

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/child"
	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/runtime/gang"
)

// Name of the plugin.
const Name = "CoScheduling"

// defaultScheduleTimeoutSeconds is the API's default, for runtimes that were stored without it.
const defaultScheduleTimeoutSeconds int32 = 60

// CoScheduling owns the PodGroups of the TrainJobs whose runtime has a coscheduling policy. Without that
// policy a TrainJob has no such PodGroup.
type CoScheduling struct {
	gang.Groups
	schedulerName string
}

var (
	_ framework.ValidationPlugin     = (*CoScheduling)(nil)
	_ framework.PodGroupPolicyPlugin = (*CoScheduling)(nil)
	_ framework.ComponentPlugin      = (*CoScheduling)(nil)
)

// New makes the plugin. It reads through c, which may be cached but must be indexed by gang.OwnerIndex, and
// writes PodGroups. Through live, which must not be cached, it reads one that c does not show where that matters.
// Members whose template names no scheduler get schedulerName, unless that is empty.
func New(c client.Client, live client.Reader, schedulerName string) *CoScheduling {
	return &CoScheduling{
		Groups:        gang.Groups{Client: c, Live: live, Object: &podgroup.PodGroup{}, List: &podgroup.PodGroupList{}},
		schedulerName: schedulerName,
	}
}

// Name implements framework.Plugin.
func (*CoScheduling) Name() string {
	return Name
}

// Validate implements framework.ValidationPlugin. It also reports, for all backends, that a runtime asks for
// several or for one that does not exist.
func (*CoScheduling) Validate(info *runtime.Info, _ *v1alpha1.TrainJob) field.ErrorList {
	backend, err := gang.BackendOf(info)
	if err != nil {
		return field.ErrorList{err}
	}
	if backend != gang.Coscheduling {
		return nil
	}
	errs := gang.ValidateMembership(info, backend)
	if seconds := ptr.Deref(info.PodGroupPolicy.Coscheduling.ScheduleTimeoutSeconds, 0); seconds < 0 {
		errs = append(errs, field.Invalid(
			field.NewPath("runtime", "spec", "podGroupPolicy", "coscheduling", "scheduleTimeoutSeconds"), seconds, "must not be negative"))
	}
	return errs
}

// EnforcePodGroupPolicy implements framework.PodGroupPolicyPlugin.
func (c *CoScheduling) EnforcePodGroupPolicy(info *runtime.Info, trainJob *v1alpha1.TrainJob) error {
	if backend, _ := gang.BackendOf(info); backend != gang.Coscheduling {
		return nil
	}
	for _, g := range gang.Of(info, trainJob) {
		for _, podSet := range g.PodSets {
			template := &podSet.Job.Template.Spec.Template
			metav1.SetMetaDataLabel(&template.ObjectMeta, podgroup.GroupLabel, g.Name)
			if template.Spec.SchedulerName == "" {
				template.Spec.SchedulerName = c.schedulerName
			}
		}
	}
	return nil
}

// Build implements framework.ComponentPlugin.
func (c *CoScheduling) Build(ctx context.Context, info *runtime.Info, trainJob *v1alpha1.TrainJob) ([]client.Object, error) {
	if backend, _ := gang.BackendOf(info); backend != gang.Coscheduling {
		return nil, nil
	}
	timeout := ptr.Deref(info.PodGroupPolicy.Coscheduling.ScheduleTimeoutSeconds, defaultScheduleTimeoutSeconds)
	var objects []client.Object
	for _, g := range gang.Of(info, trainJob) {
		members, err := g.Members()
		if err != nil {
			return nil, err
		}
		total, err := g.MinResources(ctx, c.Client, trainJob.Namespace)
		if err != nil {
			return nil, err
		}
		group := &podgroup.PodGroup{
			TypeMeta:   metav1.TypeMeta{APIVersion: string(gang.Coscheduling), Kind: "PodGroup"},
			ObjectMeta: child.Metadata(trainJob, g.Name),
			Spec: schedulingv1alpha1.PodGroupSpec{
				MinMember:              members,
				MinResources:           total,
				ScheduleTimeoutSeconds: &timeout,
			},
		}
		group.Annotations = g.Annotations(info)
		limitRunTime(group, trainJob)
		limitRendezvous(group, &g, trainJob)
		objects = append(objects, group)
	}
	return objects, nil
}

// Package native makes the pods of a TrainJob members of Kubernetes' own PodGroups, where the API server
// serves them.
package native

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/child"
	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/runtime/gang"
)

// Name of the plugin.
const Name = "NativePodGroup"

// remedy is for API servers that do not serve the groups.
const remedy = "start it with --runtime-config=" + string(gang.Native) + "=true and --feature-gates=GenericWorkload=true"

// Native owns the PodGroups of scheduling.k8s.io of the TrainJobs whose runtime asks for them by
// gang.APIAnnotation. The groups stand alone: they are instances of no Workload, whose templates could say
// nothing that they do not.
type Native struct {
	gang.Groups
	schedulerName string
}

var (
	_ framework.ValidationPlugin     = (*Native)(nil)
	_ framework.PodGroupPolicyPlugin = (*Native)(nil)
	_ framework.ComponentPlugin      = (*Native)(nil)
)

// New makes the plugin. It reads through c, which may be cached but must be indexed by gang.OwnerIndex, and
// writes PodGroups. Through live, which must not be cached, it reads one that c does not show where that matters.
// Members whose template names no scheduler get schedulerName, unless that is empty.
func New(c client.Client, live client.Reader, schedulerName string) *Native {
	return &Native{
		Groups:        gang.Groups{Client: c, Live: live, Object: &schedulingv1beta1.PodGroup{}, List: &schedulingv1beta1.PodGroupList{}},
		schedulerName: schedulerName,
	}
}

// Name implements framework.Plugin.
func (*Native) Name() string {
	return Name
}

// Validate implements framework.ValidationPlugin.
func (n *Native) Validate(info *runtime.Info, _ *v1alpha1.TrainJob) field.ErrorList {
	backend, _ := gang.BackendOf(info)
	if backend != gang.Native {
		return nil
	}
	return gang.ValidateMembership(info, backend)
}

// EnforcePodGroupPolicy implements framework.PodGroupPolicyPlugin.
func (n *Native) EnforcePodGroupPolicy(info *runtime.Info, trainJob *v1alpha1.TrainJob) error {
	if backend, _ := gang.BackendOf(info); backend != gang.Native {
		return nil
	}
	for _, g := range gang.Of(info, trainJob) {
		for _, podSet := range g.PodSets {
			spec := podSet.PodSpec()
			spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &g.Name}
			if spec.SchedulerName == "" {
				spec.SchedulerName = n.schedulerName
			}
		}
	}
	return nil
}

// Build implements framework.ComponentPlugin.
func (n *Native) Build(_ context.Context, info *runtime.Info, trainJob *v1alpha1.TrainJob) ([]client.Object, error) {
	if backend, _ := gang.BackendOf(info); backend != gang.Native {
		return nil, nil
	}
	if err := n.CheckServed(gang.Native, gang.NativePath, remedy); err != nil {
		return nil, err
	}
	var objects []client.Object
	for _, g := range gang.Of(info, trainJob) {
		members, err := g.Members()
		if err != nil {
			return nil, err
		}
		group := &schedulingv1beta1.PodGroup{
			TypeMeta:   metav1.TypeMeta{APIVersion: string(gang.Native), Kind: "PodGroup"},
			ObjectMeta: child.Metadata(trainJob, g.Name),
			Spec: schedulingv1beta1.PodGroupSpec{
				SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{
					Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: members},
				},
				// One evicted member ends the training of all, so that they may as well go together.
				DisruptionMode:    &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}},
				PriorityClassName: g.PriorityClassName(),
			},
		}
		group.Annotations = g.Annotations(info)
		group.Spec.SchedulingConstraints = constraints(group.Annotations)
		objects = append(objects, group)
	}
	return objects, nil
}

// constraints says what the API can say of the annotations that ask for a topology: the level whose one domain
// must hold all pods. The rest, and what is wrong with them, is for schedulers that read the annotations. An API
// server without the gate TopologyAwareWorkloadScheduling drops the field.
func constraints(annotations map[string]string) *schedulingv1beta1.PodGroupSchedulingConstraints {
	topology, err := podgroup.ParseTopology(annotations)
	if err != nil || topology.Required.Label == "" {
		return nil
	}
	return &schedulingv1beta1.PodGroupSchedulingConstraints{
		Topology: []schedulingv1beta1.TopologyConstraint{{Key: topology.Required.Label}},
	}
}

package gputopology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/planner"
)

// constraintField is where a pod group names the level of its native constraint.
const constraintField = "spec.schedulingConstraints.topology"

// unknownLevel is a constraint that names no level of the scheduler.
type unknownLevel struct {
	key   string
	known []string
}

func (e *unknownLevel) Error() string {
	return fmt.Sprintf("%s: %q is not a topology level of the scheduler; its levels are %s", constraintField, e.key, strings.Join(e.known, ", "))
}

// invalid reports whether an error is about what the group asks for, so that only a change of that, or
// of the nodes, can help.
func invalid(err error) bool {
	var level *unknownLevel
	var topology *podgroup.TopologyError
	return errors.As(err, &level) || errors.As(err, &topology)
}

// demand describes the members that the cycle is about, beside those of the group that have their
// place already.
func (pl *GPUTopology) demand(ctx context.Context, group fwk.PodGroupInfo) (*gangplan.Demand, error) {
	object := group.GetPodGroup()
	if object == nil {
		return nil, fmt.Errorf("pod group %s has no object", group.GetKey())
	}
	state, err := pl.handle.SnapshotSharedLister().PodGroupStates().Get(group.GetNamespace(), group.GetName())
	if err != nil {
		return nil, fmt.Errorf("state of pod group %s: %w", group.GetKey(), err)
	}
	scheduled := state.ScheduledPods()
	arrangement, err := pl.arrange(object, group.GetUnscheduledPods(), scheduled)
	if err != nil {
		return nil, err
	}
	pods := slices.SortedFunc(slices.Values(group.GetUnscheduledPods()), podgroup.CompareMembers)
	placed := make([]gangplan.Placed, len(scheduled))
	for i, pod := range scheduled {
		placed[i] = gangplan.Placed{UID: pod.UID, Node: pod.Spec.NodeName}
	}
	d, err := pl.cluster.NewDemand(klog.FromContext(ctx), pods, stillNeeded(object, len(scheduled)), placed)
	if err != nil {
		return nil, err
	}
	return d, pl.cluster.Constrain(d, arrangement)
}

// arrange reads what the group asks of the topology: the annotations of the group and of its members,
// and the native constraint. Of two levels that must hold the whole group the inner one counts.
func (pl *GPUTopology) arrange(group *schedulingv1beta1.PodGroup, waiting, scheduled []*corev1.Pod) (*podgroup.Arrangement, error) {
	var members []podgroup.Member
	for _, pod := range slices.Concat(waiting, scheduled) {
		members = append(members, podgroup.MemberOf(pod))
	}
	slices.SortFunc(members, podgroup.Member.Compare)
	count := len(members)
	if gang := group.Spec.SchedulingPolicy.Gang; gang != nil {
		count = int(gang.MinCount)
	}
	arrangement, err := podgroup.Arrange(group.Annotations, count, members)
	if err != nil || group.Spec.SchedulingConstraints == nil {
		return arrangement, err
	}
	for _, constraint := range group.Spec.SchedulingConstraints.Topology {
		level, err := pl.level(constraint.Key)
		if err != nil {
			return nil, err
		}
		asked := arrangement.Gang.Required.Label
		if outer, known := pl.cluster.Level(asked); asked == "" || known && outer < level {
			arrangement.Gang.Required = podgroup.Asked{Label: constraint.Key, Annotation: constraintField}
		}
	}
	return arrangement, nil
}

// stillNeeded is how many members must find a place for the cycle to be worth it: what the gang's
// minimum lacks, and one where the minimum is there, or is none.
func stillNeeded(group *schedulingv1beta1.PodGroup, scheduled int) int {
	if gang := group.Spec.SchedulingPolicy.Gang; gang != nil {
		return max(1, int(gang.MinCount)-scheduled)
	}
	return 1
}

// level returns the level of a constraint's key.
func (pl *GPUTopology) level(key string) (planner.Level, error) {
	l, ok := pl.cluster.Level(key)
	if !ok {
		return 0, &unknownLevel{key: key, known: pl.cluster.KnownLevels()}
	}
	return l, nil
}

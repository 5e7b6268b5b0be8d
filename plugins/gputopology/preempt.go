package gputopology

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/preemption"
	"github.com/muster-sched/muster/podgroup/planner"
)

// wouldAge is how old what a group is told of its victims may be, if it preempts nobody: to choose them costs more than to
// plan.
const wouldAge = 30 * time.Second

// would is whom a group would preempt if it could, and when that was so.
type would struct {
	at    time.Time
	words string
}

// PodGroupPostFilter makes room for a pod group that was refused: it chooses a domain and whole units of lower
// priority together, evicts those, and nominates the members on their nodes. Pods that are on their way out already
// are waited for first. Nobody else preempts for a group that the planner has no place for, so that nothing
// is evicted in vain; composite groups are left to Kubernetes.
func (pl *GPUTopology) PodGroupPostFilter(ctx context.Context, _ fwk.PodGroupCycleState, group fwk.PodGroupInfo, _ fwk.PodGroupSchedulingFunc) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	object := group.GetPodGroup()
	if object == nil || group.GetCompositePodGroup() != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	priority := schedutil.PodGroupPriority(object)
	switch {
	case neverPreempts(object, group.GetUnscheduledPods()):
		would, err := pl.wouldPreempt(ctx, group, priority)
		if err != nil {
			return nil, fwk.AsStatus(fmt.Errorf("preempt for pod group %s: %w", group.GetKey(), err))
		}
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "preemptionPolicy Never: nobody of lower priority is preempted"+would)
	case !pl.priorities.Below(priority):
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	}
	room, d, err := pl.findRoom(ctx, group, priority)
	switch {
	case invalid(err):
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	case err != nil:
		return nil, fwk.AsStatus(fmt.Errorf("preempt for pod group %s: %w", group.GetKey(), err))
	case d == nil:
		return nil, fwk.NewStatus(fwk.Unschedulable) // it has a place: what refused it is not room
	case room == nil:
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "preempting pods of lower priority would not make room")
	}
	logger := klog.FromContext(ctx)
	if len(room.Victims) > 0 {
		logger.V(2).Info("Pod group preempts", "podGroup", group.GetKey(), "victims", len(room.Victims), "pods", room.Pods(), "domain", room.Domain)
		by := preemption.Preemptor{
			Key: nameOf(group), Object: withKind(object), Priority: priority, SchedulerName: d.Pods[0].Spec.SchedulerName, Plugin: Name,
		}
		pl.handle.EventRecorder().WithLogger(logger).Eventf(by.Object, nil, corev1.EventTypeNormal, "Preempting", "Preempting", "preempting %s", room)
		waiting := map[string]*corev1.Pod{}
		for _, pod := range d.Pods {
			waiting[pod.Namespace+"/"+pod.Name] = pod
		}
		pl.evictor.Evict(logger, by, room.Victims, func(err error) {
			if err != nil {
				pl.handle.Activate(logger, waiting) // no pod will end that would wake it
			}
		})
	}
	return pl.nominations(d, room), fwk.NewStatus(fwk.Success, words(room))
}

// wouldPreempt says who would go for a group that may preempt nobody. It looks for them no more often than every wouldAge.
func (pl *GPUTopology) wouldPreempt(ctx context.Context, group fwk.PodGroupInfo, priority int32) (string, error) {
	key, now := nameOf(group), pl.clock.Now()
	if last, ok := pl.would.Get(key); ok && now.Sub(last.(would).at) < wouldAge {
		return last.(would).words, nil
	}
	w := would{at: now}
	if pl.priorities.Below(priority) {
		room, _, err := pl.findRoom(ctx, group, priority)
		switch {
		case err != nil && !invalid(err):
			return "", err
		case room != nil && len(room.Victims) > 0:
			w.words = fmt.Sprintf("; it would fit by preempting %s", room)
		}
	}
	pl.would.Add(key, w)
	return w.words, nil
}

func words(room *preemption.Room) string {
	if len(room.Victims) == 0 {
		return "waiting for " + room.String()
	}
	return "preempting " + room.String()
}

// findRoom plans the group on the whole cluster without those who may go for it. The demand is nil if the group
// fits as things are.
func (pl *GPUTopology) findRoom(ctx context.Context, group fwk.PodGroupInfo, priority int32) (*preemption.Room, *gangplan.Demand, error) {
	nodes, err := pl.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, nil, err
	}
	pl.cluster.Sync(nodes)
	d, err := pl.demand(ctx, group)
	if err != nil {
		return nil, nil, err
	}
	if plan, _, err := gangplan.Plan(ctx, pl.handle, pl.cluster, d, nil); err != nil || plan != nil {
		return nil, nil, err
	}
	started := pl.clock.Now()
	census := preemption.Census{Cluster: pl.cluster, Gangs: pl, Budgets: pl.budgets, Evicted: pl.evictor.Evicted, Now: started}
	room, err := census.Room(ctx, pl.handle, d, nil, priority, func(pod *corev1.Pod) bool { return memberOf(pod, group.GetPodGroup()) })
	preemption.Observe(room, pl.clock.Since(started))
	return room, d, err
}

func (pl *GPUTopology) nominations(d *gangplan.Demand, room *preemption.Room) *fwk.PodGroupPostFilterResult {
	result := &fwk.PodGroupPostFilterResult{NominatingInfos: map[types.NamespacedName]*fwk.NominatingInfo{}}
	for i, node := range room.Nodes {
		if node != planner.NoNode {
			result.NominatingInfos[types.NamespacedName{Namespace: d.Pods[i].Namespace, Name: d.Pods[i].Name}] = &fwk.NominatingInfo{
				NominatedNodeName: pl.cluster.NodeName(node), NominatingMode: fwk.ModeOverride,
			}
		}
	}
	return result
}

// neverPreempts reports whether the group, or a member of it, has preemptionPolicy Never. The scheduler checks
// that they agree.
func neverPreempts(group *schedulingv1beta1.PodGroup, pods []*corev1.Pod) bool {
	if p := group.Spec.PreemptionPolicy; p != nil && *p == schedulingv1beta1.PreemptNever {
		return true
	}
	return slices.ContainsFunc(pods, preemption.Never)
}

// Gang implements preemption.Gangs. What is known of gangs of scheduling.x-k8s.io the plugin of the same profile
// knows that schedules them.
func (pl *GPUTopology) Gang(key types.NamespacedName) (preemption.Gang, bool) {
	for _, plugin := range pl.handle.EnqueueExtensions() {
		if gangs, ok := plugin.(preemption.Gangs); ok && plugin.Name() != Name {
			return gangs.Gang(key)
		}
	}
	return preemption.Gang{}, false
}

func withKind(group *schedulingv1beta1.PodGroup) *schedulingv1beta1.PodGroup {
	object := group.DeepCopy()
	object.SetGroupVersionKind(schedulingv1beta1.SchemeGroupVersion.WithKind("PodGroup"))
	return object
}

package gputopology

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup"
)

// EventsToRegister returns the events that may let a refused pod group in.
func (pl *GPUTopology) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return append(gangplan.FilterEvents(pl.otherHelps),
		fwk.ClusterEventWithHint{Event: gangplan.PlacedEvent, QueueingHintFn: pl.otherHelps},
		fwk.ClusterEventWithHint{Event: gangplan.NodeEvent, QueueingHintFn: pl.nodeHelps},
		fwk.ClusterEventWithHint{Event: gangplan.PodEvent, QueueingHintFn: pl.podHelps},
		fwk.ClusterEventWithHint{Event: gangplan.DeviceClassEvent},
		fwk.ClusterEventWithHint{Event: fwk.ClusterEvent{Resource: fwk.PodGroup, ActionType: fwk.Add | fwk.Update}, QueueingHintFn: pl.groupHelps},
		fwk.ClusterEventWithHint{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update}, QueueingHintFn: pl.memberHelps},
	), nil
}

func hint(helps bool) fwk.QueueingHint {
	if helps {
		return fwk.Queue
	}
	return fwk.QueueSkip
}

func (pl *GPUTopology) nodeHelps(_ klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	old, node, err := schedutil.As[*corev1.Node](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	r := pl.refusals.of(pod)
	return hint(r == nil || node == nil || r.helpedBy(oldObj, newObj, func(w *gangplan.Watch) bool { return w.NodeHelps(old, node) })), nil
}

func (pl *GPUTopology) podHelps(_ klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	old, now, err := schedutil.As[*corev1.Pod](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	r := pl.refusals.of(pod)
	if r == nil || old == nil {
		return fwk.Queue, nil
	}
	freed, err := pl.freed.By(old, now)
	if err != nil {
		return fwk.Queue, err
	}
	return hint(r.helpedBy(oldObj, newObj, func(w *gangplan.Watch) bool { return w.PodHelps(freed) })), nil
}

// otherHelps queues groups that another plugin had a part in refusing.
func (pl *GPUTopology) otherHelps(_ klog.Logger, pod *corev1.Pod, _, _ any) (fwk.QueueingHint, error) {
	r := pl.refusals.of(pod)
	return hint(r == nil || r.learned), nil
}

// groupHelps queues the members of a pod group when what it asks for changed.
func (pl *GPUTopology) groupHelps(_ klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	old, group, err := schedutil.As[*schedulingv1beta1.PodGroup](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if group == nil || !memberOf(pod, group) {
		return fwk.QueueSkip, nil
	}
	if old != nil && podgroup.SameTopology(old.Annotations, group.Annotations) && equality.Semantic.DeepEqual(old.Spec, group.Spec) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// memberHelps queues a member whose own rules changed. Its status changes with every refusal and is
// none of them, except for its claims' names.
func (pl *GPUTopology) memberHelps(_ klog.Logger, _ *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	old, pod, err := schedutil.As[*corev1.Pod](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if old != nil && pod != nil && podgroup.SameTopology(old.Annotations, pod.Annotations) && maps.Equal(old.Labels, pod.Labels) &&
		equality.Semantic.DeepEqual(old.Spec, pod.Spec) &&
		equality.Semantic.DeepEqual(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

func memberOf(pod *corev1.Pod, group *schedulingv1beta1.PodGroup) bool {
	key, ok := podgroup.NativeKey(pod)
	return ok && key.Namespace == group.Namespace && key.Name == group.Name
}

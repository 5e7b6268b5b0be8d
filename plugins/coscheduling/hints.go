package coscheduling

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup"
)

// EventsToRegister returns the events that may let a refused gang in. Only its representative is
// queued by them; the other members follow when it finds a plan. What makes a gang complete is not
// among them: the handlers in watch.go activate exactly the members concerned, where an event of
// unscheduled pods would be put to every waiting pod. Nor is that pods come to nodes (sightings.go).
func (pl *Coscheduling) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return append(gangplan.FilterEvents(pl.otherHelps),
		fwk.ClusterEventWithHint{Event: gangplan.NodeEvent, QueueingHintFn: pl.nodeHelps},
		fwk.ClusterEventWithHint{Event: gangplan.PodEvent, QueueingHintFn: pl.podHelps},
		fwk.ClusterEventWithHint{Event: gangplan.DeviceClassEvent, QueueingHintFn: pl.anyHelps},
		fwk.ClusterEventWithHint{
			Event:          fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.UpdatePodLabel | fwk.UpdatePodScaleDown | fwk.UpdatePodToleration | fwk.UpdatePodGeneratedResourceClaim},
			QueueingHintFn: pl.memberChanged,
		},
	), nil
}

// represented returns the verdict that the pod may try to turn: its gang's, if the pod is the
// representative. It reports false if the pod should stay where it is, and nil if the pod's gang
// has no verdict, so that it should have a turn.
func (pl *Coscheduling) represented(pod *corev1.Pod) (r *refusal, try bool) {
	key, ok := podgroup.Key(pod)
	if !ok {
		return nil, true
	}
	r = pl.gangs.refusalOf(key)
	return r, r == nil || !r.invalid && !r.forMember(pod.UID)
}

func (pl *Coscheduling) nodeHelps(logger klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	old, node, err := schedutil.As[*corev1.Node](oldObj, newObj)
	if err != nil {
		return pl.called(pod), err
	}
	if node != nil { // before anybody is put in line who would take its room
		pl.nodeMayHouse(old, node)
		pl.nodeJoins(logger, node)
	}
	r, try := pl.represented(pod)
	if !try || node == nil || r != nil && r.watch != nil && !r.watch.NodeHelps(old, node) {
		return fwk.QueueSkip, nil
	}
	return pl.called(pod), nil
}

// called lets a pod into line, which it is to be put in now.
func (pl *Coscheduling) called(pod *corev1.Pod) fwk.QueueingHint {
	if key, ok := podgroup.Key(pod); ok {
		pl.gangs.call(key, pod.UID)
	}
	return fwk.Queue
}

func (pl *Coscheduling) podHelps(logger klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	old, now, err := schedutil.As[*corev1.Pod](oldObj, newObj)
	if err != nil {
		return pl.called(pod), err
	}
	if old != nil && now == nil {
		pl.vanished(logger, old) // before anybody takes the room
	}
	r, try := pl.represented(pod)
	if !try {
		return fwk.QueueSkip, nil
	}
	if key, ok := podgroup.Key(pod); ok && old != nil && now == nil && pl.gangs.lastAwaited(key, old.UID) {
		// At once, whatever the backoff; the queue calls this with its lock held.
		pl.background(func() { pl.activateRepresentative(logger, key) })
		return pl.called(pod), nil
	}
	if r == nil || r.watch == nil || old == nil {
		return pl.called(pod), nil
	}
	freed, err := pl.freed.By(old, now)
	if err != nil {
		return pl.called(pod), err
	}
	if r.watch.PodHelps(freed) {
		return pl.called(pod), nil
	}
	return fwk.QueueSkip, nil
}

// memberChanged lets a member whose own rules changed try again for its gang.
func (pl *Coscheduling) memberChanged(_ klog.Logger, pod *corev1.Pod, _, _ any) (fwk.QueueingHint, error) {
	key, ok := podgroup.Key(pod)
	if !ok {
		return fwk.QueueSkip, nil
	}
	if r := pl.gangs.refusalOf(key); r != nil && r.passedOn(pod.UID) {
		pl.gangs.elect(key, r.representative, pod.UID)
	}
	return pl.called(pod), nil
}

// otherHelps queues gangs that another plugin had a part in refusing.
func (pl *Coscheduling) otherHelps(_ klog.Logger, pod *corev1.Pod, _, _ any) (fwk.QueueingHint, error) {
	r, try := pl.represented(pod)
	if !try || r != nil && !r.learned {
		return fwk.QueueSkip, nil
	}
	return pl.called(pod), nil
}

// anyHelps queues gangs whatever they were refused for.
func (pl *Coscheduling) anyHelps(_ klog.Logger, pod *corev1.Pod, _, _ any) (fwk.QueueingHint, error) {
	if _, try := pl.represented(pod); !try {
		return fwk.QueueSkip, nil
	}
	return pl.called(pod), nil
}

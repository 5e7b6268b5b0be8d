package coscheduling

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/muster-sched/muster/podgroup"
)

// Reasons of the condition PodScheduled=False of members, besides those of the PodGroup's condition. Only
// "Unschedulable" tells autoscalers to add nodes, so no other refusal has that reason.
const (
	// ReasonIncomplete means that the gang is not there yet: it lacks its PodGroup or members.
	ReasonIncomplete = "GangIncomplete"
	// ReasonBeingPlaced means that the member comes after others of its gang, which are being placed.
	ReasonBeingPlaced = "GangBeingPlaced"
	// ReasonAllocating means that devices are being allocated to, or taken back from, claims of the gang.
	ReasonAllocating = "AllocatingDevices"
	// ReasonNoNodeHelps means that there is no place for the gang, and that no new node would give it one.
	ReasonNoNodeHelps = "NoNodeHelps"
)

// podReason is the reason that members have in their condition PodScheduled.
func (r *refusal) podReason() string {
	switch {
	case r.reason == ReasonUnschedulable && r.advice.futile:
		return ReasonNoNodeHelps
	case r.reason == "":
		return ReasonBeingPlaced
	}
	return r.reason
}

// podReason is the reason for telling a member this: that of its gang's verdict, if it is what that says.
func (pl *Coscheduling) podReason(key types.NamespacedName, why string) string {
	if r := pl.gangs.refusalOf(key); r != nil && r.message == why {
		return r.podReason()
	}
	if pl.incomplete(key) != "" {
		return ReasonIncomplete
	}
	return ReasonBeingPlaced
}

// refusedFor travels with the status of a refused member, so that who reports the failure knows the reason.
type refusedFor struct{ reason, message string }

// Error is what the member is told.
func (r *refusedFor) Error() string { return r.message }

// FailureHandler is what the scheduler calls when a pod could not be scheduled: scheduler.FailureHandlerFn.
type FailureHandler = func(context.Context, framework.Framework, *framework.QueuedPodInfo, *fwk.Status, *fwk.NominatingInfo, time.Time)

// TellReasons wraps the scheduler's failure handler. kube-scheduler gives the reason Unschedulable to every pod that
// a plugin refused, and autoscalers add nodes for all of those. With this, members of gangs have the reason for
// which their gang was turned away; other pods are left as they are.
func TellReasons(next FailureHandler) FailureHandler {
	return func(ctx context.Context, fw framework.Framework, info *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
		if reason := reasonOf(fw, info.Pod, status); reason != "" {
			fw = &reasonedFramework{fw, reason}
		}
		next(ctx, fw, info, status, nominating, start)
	}
}

// reasonOf returns the reason that a pod's condition is to have instead of Unschedulable, "" for none.
func reasonOf(fw framework.Framework, pod *corev1.Pod, status *fwk.Status) string {
	if _, member := podgroup.Key(pod); !member || !status.IsRejected() {
		return ""
	}
	fit, ok := status.AsError().(*framework.FitError)
	if !ok {
		return ""
	}
	// A refusal before any node was looked at stands for all nodes.
	if told := (*refusedFor)(nil); fit.Diagnosis.NodeToStatus != nil && errors.As(fit.Diagnosis.NodeToStatus.Get("").AsError(), &told) {
		if told.reason == ReasonUnschedulable {
			return ""
		}
		return told.reason
	}
	filters := fw.ListPlugins().Filter.Enabled
	if !slices.ContainsFunc(filters, func(p schedconfig.Plugin) bool { return p.Name == Name }) {
		return "" // it is a pod like any other here
	}
	return ReasonLetGo // there was a place for it
}

// reasonedFramework is the framework of a profile for one report of a failure.
type reasonedFramework struct {
	framework.Framework
	reason string
}

// APICacher returns what the report is written with.
func (f *reasonedFramework) APICacher() fwk.APICacher {
	return &reasonedWriter{f.Framework.APICacher(), f.ClientSet(), f.reason}
}

// reasonedWriter writes the status of pods with another reason in PodScheduled, by way of the scheduler's own writer
// if it has one.
type reasonedWriter struct {
	fwk.APICacher
	client clientset.Interface
	reason string
}

// PatchPodStatus writes the conditions and the nomination of a pod.
func (w *reasonedWriter) PatchPodStatus(pod *corev1.Pod, conditions []*corev1.PodCondition, nominating *fwk.NominatingInfo) (<-chan error, error) {
	for _, c := range conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
			c.Reason = w.reason
		}
	}
	if w.APICacher != nil {
		return w.APICacher.PatchPodStatus(pod, conditions, nominating)
	}
	status := pod.Status.DeepCopy()
	for _, c := range conditions {
		podutil.UpdatePodCondition(status, c)
	}
	if nominating.Mode() == fwk.ModeOverride {
		status.NominatedNodeName = nominating.NominatedNodeName
	}
	done := make(chan error, 1)
	done <- nil
	return done, schedutil.PatchPodStatus(context.Background(), w.client, pod.Name, pod.Namespace, &pod.Status, status)
}

// retell tells the members that wait behind the representative that their gang is refused for another reason than
// before: they have no turn of their own at which they would learn it.
func (pl *Coscheduling) retell(logger klog.Logger, key types.NamespacedName, r *refusal) {
	pl.background(func() {
		for _, pod := range pl.waitingPods(key, func(m *podgroup.Member) bool { return r.passedOn(m.UID) && m.UID != r.representative }) {
			if now := pl.gangs.refusalOf(key); now == nil || now.podReason() != r.podReason() || pl.incomplete(key) != "" {
				return // whoever changed that tells them
			}
			if !pl.setReason(logger, pod, r.podReason(), r.message) {
				pl.clock.AfterFunc(lastRetry, func() { pl.retell(logger, key, r) })
				return
			}
		}
	})
}

// incompleteGrace is how long a gang may be incomplete before its members say so instead of what they said before: a
// controller often replaces a member at once.
const incompleteGrace = 2 * time.Second

// takeBackLater makes members stop asking for nodes, after a while, if their gang is not complete: they are not
// tried any more and would ask for ever. Nothing is kept for such a gang then until pods end. Nor do members of a
// refused gang ask for the nodes any more that were kept for them while it waited for that.
func (pl *Coscheduling) takeBackLater(logger klog.Logger, key types.NamespacedName) {
	if !pl.gangs.takeBack(key, true) {
		return
	}
	pl.clock.AfterFunc(incompleteGrace, func() {
		pl.gangs.takeBack(key, false)
		why := pl.incomplete(key)
		switch {
		case pl.members.Generation(key) == 0:
			pl.gangs.forget(key)
		case why == "":
			if r := pl.gangs.refusalOf(key); r != nil && pl.gangs.preemptingOf(key) == nil {
				pl.takeBackFrom(logger, key, r.podReason(), r.message)
			}
		case !pl.leads.Load():
			pl.takeBackLater(logger, key) // the scheduler that leads does so, until this one does
		default:
			pl.endPreempting(logger, key, nil, ReasonMembersChanged, why, time.Time{})
			pl.takeBackFrom(logger, key, ReasonIncomplete, why)
		}
	})
}

// takeBackFrom tells members why they wait that ask for nodes in vain.
func (pl *Coscheduling) takeBackFrom(logger klog.Logger, key types.NamespacedName, reason, why string) {
	pl.background(func() {
		for _, pod := range pl.waitingPods(key, func(m *podgroup.Member) bool { return !m.Gated && m.SchedulerName == pl.handle.ProfileName() }) {
			_, c := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
			asks := pod.Status.NominatedNodeName != "" || reason == ReasonIncomplete && c != nil && c.Reason == corev1.PodReasonUnschedulable
			if asks && !pl.setReason(logger, pod, reason, why) {
				pl.takeBackLater(logger, key)
				return
			}
		}
	})
}

// nominationShown is told of changes of pods as the scheduler sees them. A nomination that is shown after the gang gave
// it up is the scheduler's again, and nothing else would end it.
func (pl *Coscheduling) nominationShown(logger klog.Logger, old, pod *corev1.Pod) {
	node := pod.Status.NominatedNodeName
	if node == "" || node == old.Status.NominatedNodeName || pod.Spec.NodeName != "" {
		return
	}
	if key, ok := podgroup.Key(pod); ok {
		pl.takeBackLater(logger, key)
	}
}

// takeBack notes that somebody is about to make the members stop asking for nodes, or has done so, and reports
// whether that is news.
func (g *gangs) takeBack(key types.NamespacedName, about bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, ok := g.byKey[key]
	if !ok {
		if !about {
			return false
		}
		x = g.get(key)
	}
	was := x.takingBack
	x.takingBack = about
	return was != about
}

// setReason writes the condition PodScheduled=False of a pod, if its reason is another one, and takes its nomination back
// unless its gang preempts. It reports false if that failed.
func (pl *Coscheduling) setReason(logger klog.Logger, pod *corev1.Pod, reason, message string) bool {
	_, c := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason == corev1.PodReasonSchedulingGated {
		return true // it was not told anything yet, or is told by others
	}
	if c.Reason == reason && (pod.Status.NominatedNodeName == "" || reason == ReasonPreempting) {
		return true
	}
	status := pod.Status.DeepCopy()
	status.NominatedNodeName = "" // given up, or of a scheduler that died: every change of the pod would keep others out anew
	podutil.UpdatePodCondition(status, &corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: shortened(message, messageLimit),
		ObservedGeneration: c.ObservedGeneration,
	})
	ctx, cancel := context.WithTimeout(context.Background(), claimTimeout)
	defer cancel()
	err := schedutil.PatchPodStatus(ctx, pl.handle.ClientSet(), pod.Name, pod.Namespace, &pod.Status, status)
	if err != nil && !apierrors.IsNotFound(err) {
		logger.V(2).Info("Telling a member why its gang waits failed; trying again", "pod", klog.KObj(pod), "err", err)
		return false
	}
	return true
}

package coscheduling

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/muster-sched/muster/plugins/preemption"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// missingGroupGrace is how long a member may wait for its PodGroup to be created before an event
// says that there is none: a controller often makes the pods first.
const missingGroupGrace = 10 * time.Second

// watch keeps the index of members and the PodGroups up to date, and returns when both are synced.
//
// The members have an informer of their own because the scheduler's leaves out finished pods, and
// a finished member still counts.
func (pl *Coscheduling) watch(ctx context.Context, s Surroundings) error {
	groups, pods := s.PodGroups, s.Members
	pl.groups = groups.GetIndexer()
	if err := preemption.Follow(pl.handle.SharedInformerFactory().Core().V1().Pods(), pl.priorities, pl.evictor); err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	podHandler, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { pl.podChanged(logger, nil, obj.(*corev1.Pod)) },
		UpdateFunc: func(old, obj any) { pl.podChanged(logger, old.(*corev1.Pod), obj.(*corev1.Pod)) },
		DeleteFunc: func(obj any) {
			if pod, ok := untombed[*corev1.Pod](obj); ok {
				pl.podDeleted(logger, pod)
			}
		},
	})
	if err != nil {
		return err
	}
	groupHandler, err := groups.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { pl.groupChanged(logger, nil, obj.(*v1alpha1.PodGroup)) },
		UpdateFunc: func(old, obj any) {
			pl.groupChanged(logger, old.(*v1alpha1.PodGroup), obj.(*v1alpha1.PodGroup))
		},
		DeleteFunc: func(obj any) {
			if group, ok := untombed[*v1alpha1.PodGroup](obj); ok {
				pl.groupDeleted(logger, group)
			}
		},
	})
	if err != nil {
		return err
	}
	if err := pl.watchScheduler(logger); err != nil {
		return err
	}
	go groups.RunWithContext(ctx)
	go pods.RunWithContext(ctx)
	pl.report.run(ctx, s.Writers)
	if !cache.WaitForCacheSync(ctx.Done(), podHandler.HasSynced, groupHandler.HasSynced) {
		return fmt.Errorf("waiting for PodGroups and their pods: %w", context.Cause(ctx))
	}
	return nil
}

// watchScheduler follows what the scheduler itself sees of pods and nodes: when room becomes free there, what lost
// members looked like, of which the index of members knows little, and when it sees the nominations that it wrote.
func (pl *Coscheduling) watchScheduler(logger klog.Logger) error {
	core := pl.handle.SharedInformerFactory().Core().V1()
	if _, err := core.Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { pl.sighted(logger, nil, obj.(*corev1.Pod)) },
		UpdateFunc: func(old, obj any) {
			pl.nominationShown(logger, old.(*corev1.Pod), obj.(*corev1.Pod))
			pl.sighted(logger, old.(*corev1.Pod), obj.(*corev1.Pod))
		},
		DeleteFunc: func(obj any) {
			if pod, ok := untombed[*corev1.Pod](obj); ok && pod.Spec.NodeName != "" {
				pl.vanished(logger, pod)
			}
		},
	}); err != nil {
		return err
	}
	_, err := core.Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { pl.nodeChanged(logger, nil, obj.(*corev1.Node)) },
		UpdateFunc: func(old, obj any) { pl.nodeChanged(logger, old.(*corev1.Node), obj.(*corev1.Node)) },
		DeleteFunc: func(obj any) {
			if node, ok := untombed[*corev1.Node](obj); ok {
				pl.nodeChanged(logger, node, nil)
			}
		},
	})
	return err
}

// checkPodGroupServed returns an error that names the CRD if the API server does not serve it; the
// informer would wait for it without a word.
func checkPodGroupServed(client discovery.DiscoveryInterface) error {
	resources, err := client.ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("looking for the PodGroup API: %w", err)
	}
	if resources == nil || !slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == "podgroups" }) {
		return fmt.Errorf("the CRD podgroups.%s is not installed", v1alpha1.GroupVersion.Group)
	}
	return nil
}

func untombed[T any](obj any) (T, bool) {
	if tomb, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tomb.Obj
	}
	typed, ok := obj.(T)
	return typed, ok
}

func (pl *Coscheduling) podChanged(logger klog.Logger, old, pod *corev1.Pod) {
	if old != nil && old.UID != pod.UID {
		// Deleted and made again under its name between two looks.
		pl.podDeleted(logger, old)
		old = nil
	}
	key, ok := podgroup.Key(pod)
	changed := pl.members.Update(pod)
	if old != nil {
		if was, is := podgroup.Key(old); is && was != key {
			pl.left(logger, was, old)
		}
	}
	if !ok || !changed && old != nil {
		return
	}
	if old != nil && !podgroup.SameTopology(old.Annotations, pod.Annotations) {
		pl.topologyChanged(logger, key, pod)
	}
	defer pl.recheckTopology(logger, key)
	defer pl.reviewRepair(logger, key)
	if podgroup.StateOf(pod) != podgroup.Waiting {
		defer pl.waitForNoMore(logger, key, pod.UID)
		pl.line.leave(pod.UID)
	}
	if state := podgroup.StateOf(pod); old != nil && hasPlace(old) && (state == podgroup.Gone || state == podgroup.Failed) {
		defer pl.activateRepresentative(logger, key)
	}
	switch podgroup.StateOf(pod) {
	case podgroup.Waiting:
		pl.settle(logger, key)
		if pl.incomplete(key) == "" {
			pl.activatePods(logger, pod)
		}
		if pl.group(key) == nil {
			pl.clock.AfterFunc(missingGroupGrace, func() { pl.reportMissingGroup(logger, key, pod.Name) })
		}
	case podgroup.Gone:
		pl.leaving(logger, key, pod.Name, pod.UID)
		pl.gangs.arrived(key, pod.UID)
		pl.waitsNoMore(logger, key, pod.UID, pod.Name)
		pl.settle(logger, key)
	default:
		ours := pl.gangs.arrived(key, pod.UID)
		pl.waitsNoMore(logger, key, pod.UID, pod.Name)
		pl.settle(logger, key)
		pl.correct(key)
		if bound := old == nil || podgroup.StateOf(old) == podgroup.Waiting; bound && !ours || podgroup.StateOf(pod) == podgroup.Succeeded {
			pl.activateRepresentative(logger, key) // less to place than the verdict was passed on
		}
	}
}

func (pl *Coscheduling) podDeleted(logger klog.Logger, pod *corev1.Pod) {
	pl.members.Delete(pod)
	if key, ok := podgroup.Key(pod); ok {
		pl.left(logger, key, pod)
	}
}

// topologyChanged is what follows when a member asks for another topology: a plan made for the old one must not
// be carried out, and a verdict passed on the old one is passed anew.
func (pl *Coscheduling) topologyChanged(logger klog.Logger, key types.NamespacedName, pod *corev1.Pod) {
	if r := pl.gangs.release(key, pod.UID, fmt.Sprintf("member %q asks for another topology now, so the whole gang let go", pod.Name)); r != nil {
		pl.letGo(logger, key, r)
	}
	pl.withdrawPreempting(logger, key, pod.UID, fmt.Sprintf("member %q asks for another topology now", pod.Name))
	pl.activateRepresentative(logger, key)
}

// recheckTopology puts a gang in line, after a change of its members, that was refused for a topology that
// cannot be: whichever of them was in the way may have changed or gone.
func (pl *Coscheduling) recheckTopology(logger klog.Logger, key types.NamespacedName) {
	if refused := pl.gangs.refusalOf(key); refused != nil && refused.invalid {
		pl.activateRepresentative(logger, key)
	}
}

// waitForNoMore puts the gang's members in line, which may have been told to wait for one that could not be bound, once
// that one is bound after all or gone.
func (pl *Coscheduling) waitForNoMore(logger klog.Logger, key types.NamespacedName, uid types.UID) {
	if pl.gangs.pausesNoMore(key, uid) {
		pl.activateMembers(logger, key)
	}
}

// hasPlace reports whether a member is on a node or has finished, so that it counts. A gang that is refused beside it may
// fit without: it may have kept the others in its domain, or out of any. And what was beyond the minimum may be needed.
func hasPlace(pod *corev1.Pod) bool { return podgroup.StateOf(pod) >= podgroup.Bound }

// left is what follows when a pod is no longer a member of a gang.
func (pl *Coscheduling) left(logger klog.Logger, key types.NamespacedName, pod *corev1.Pod) {
	defer pl.reviewRepair(logger, key)
	pl.line.leave(pod.UID)
	pl.gangs.arrived(key, pod.UID)
	defer pl.waitForNoMore(logger, key, pod.UID)
	pl.waitsNoMore(logger, key, pod.UID, pod.Name)
	pl.recheckTopology(logger, key)
	if hasPlace(pod) {
		pl.activateRepresentative(logger, key)
	}
	pl.settle(logger, key)
	if pl.members.Generation(key) == 0 {
		pl.gangs.forget(key)
		pl.endProvisioning(logger, key, nil, ReasonIncomplete, "the gang has no members")
	}
}

func (pl *Coscheduling) groupChanged(logger klog.Logger, old, group *v1alpha1.PodGroup) {
	if old != nil && old.UID != group.UID {
		// Deleted and made again under its name between two looks.
		pl.groupDeleted(logger, old)
		pl.gangs.becameComplete(types.NamespacedName{Namespace: group.Namespace, Name: group.Name}, func() bool { return false })
		old = nil
	}
	if old != nil && apiequality.Semantic.DeepEqual(old.Spec, group.Spec) && podgroup.SameTopology(old.Annotations, group.Annotations) &&
		podgroup.SameSettings(old.Annotations, group.Annotations) {
		return // a status, often our own
	}
	key := types.NamespacedName{Namespace: group.Namespace, Name: group.Name}
	defer pl.reviewRepair(logger, key)
	pl.correct(key)
	if old != nil && asksForMore(old, group) {
		pl.groupWithdrawn(logger, key, group)
	}
	pl.keepOut(logger, key, group)
	pl.settle(logger, key)
	if old != nil && pl.incomplete(key) == "" {
		pl.activateMembers(logger, key)
	}
}

func (pl *Coscheduling) groupDeleted(logger klog.Logger, group *v1alpha1.PodGroup) {
	key := types.NamespacedName{Namespace: group.Namespace, Name: group.Name}
	pl.groupWithdrawn(logger, key, nil)
	pl.reviewRepair(logger, key)
	pl.settle(logger, key)
	why := fmt.Sprintf("PodGroup %q was deleted", key.Name)
	pl.endProvisioning(logger, key, nil, ReasonIncomplete, why)
	pl.needsNoRoom(logger, key, ReasonIncomplete, why)
	pl.report.forget(key)
}

// settle notes whether the gang is complete, and puts its members in line when it has become so.
func (pl *Coscheduling) settle(logger klog.Logger, key types.NamespacedName) {
	if pl.gangs.becameComplete(key, func() bool { return pl.incomplete(key) == "" }) {
		pl.waitsForRoom(key)
		pl.activateMembers(logger, key)
	} else if why := pl.incomplete(key); why != "" {
		pl.needsNoRoom(logger, key, ReasonIncomplete, why)
		pl.sweepLater(logger, key)
		pl.takeBackLater(logger, key)
	}
}

// correct takes back what the PodGroup still says of a gang that has its places by now: that it is refused, waits for
// others to end, or has room kept for it. Another scheduler said so, or one that died before it could take it back.
func (pl *Coscheduling) correct(key types.NamespacedName) {
	group := pl.group(key)
	if group == nil {
		return
	}
	if counts := pl.members.Get(key); counts.Bound+counts.Finished < max(int(group.Spec.MinMember), 1) {
		return
	}
	if meta.IsStatusConditionTrue(group.Status.Conditions, v1alpha1.ConditionUnschedulable) {
		pl.report.admitted(key)
	}
	pl.correctPreempting(key, group)
	pl.correctProvisioning(key, group)
	pl.correctReservation(key, group)
}

// reportMissingGroup tells a waiting member that the PodGroup its label names does not exist.
func (pl *Coscheduling) reportMissingGroup(logger klog.Logger, key types.NamespacedName, name string) {
	if pl.group(key) != nil {
		return
	}
	pod, err := pl.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(key.Namespace).Get(name)
	if err != nil || pod.Spec.NodeName != "" || pod.Spec.SchedulerName != pl.handle.ProfileName() {
		return
	}
	if is, ok := podgroup.Key(pod); !ok || is != key {
		return
	}
	pl.handle.EventRecorder().WithLogger(logger).Eventf(pod, nil, corev1.EventTypeWarning, "PodGroupNotFound", "Scheduling",
		"label %s names PodGroup %q, which does not exist in namespace %q; the pod waits for it", v1alpha1.GroupLabel, key.Name, key.Namespace)
}

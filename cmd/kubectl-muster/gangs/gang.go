// Package gangs reads from an API server what is known of gangs, in the words in which the scheduler and the controllers have
// written it there. It writes nothing.
package gangs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	upstream "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// Gang is what an API server knows of a gang.
type Gang struct {
	// Native is set for a group of scheduling.k8s.io; others are of scheduling.x-k8s.io.
	Native bool

	Key       types.NamespacedName
	Created   time.Time
	MinMember int
	Priority  int32

	// Phase is that of a group of scheduling.x-k8s.io.
	Phase      upstream.PodGroupPhase
	Conditions []metav1.Condition

	// Members are the pods that exist, by rank.
	Members []podgroup.Member

	// owner is the group's controller, "" if it has none.
	owner types.UID

	// untold is the PodScheduled condition of the first member that waits. It has the words where the group has no
	// conditions to hold them.
	untold *corev1.PodCondition
}

// Kind is how kubectl names the group's resource.
func (g *Gang) Kind() string {
	if g.Native {
		return "podgroup." + schedulingv1beta1.GroupName
	}
	return "podgroup"
}

// Get reads a group of scheduling.x-k8s.io or, if native is set, of scheduling.k8s.io, and its members.
func Get(ctx context.Context, reader client.Reader, key types.NamespacedName, native bool) (*Gang, error) {
	if native {
		group := &schedulingv1beta1.PodGroup{}
		if err := reader.Get(ctx, key, group); err != nil {
			return nil, err
		}
		g := ofNative(group)
		return g, g.readMembers(ctx, reader)
	}
	group := &v1alpha1.PodGroup{}
	if err := reader.Get(ctx, key, group); err != nil {
		return nil, err
	}
	g := of(group)
	return g, g.readMembers(ctx, reader)
}

func of(group *v1alpha1.PodGroup) *Gang {
	return &Gang{
		Key: client.ObjectKeyFromObject(group), Created: group.CreationTimestamp.Time, MinMember: int(group.Spec.MinMember),
		Phase: group.Status.Phase, Conditions: group.Status.Conditions, owner: ownerOf(group),
	}
}

func ofNative(group *schedulingv1beta1.PodGroup) *Gang {
	g := &Gang{
		Native: true, Key: client.ObjectKeyFromObject(group), Created: group.CreationTimestamp.Time,
		Priority: ptr.Deref(group.Spec.Priority, 0), Conditions: group.Status.Conditions, MinMember: 1, owner: ownerOf(group),
	}
	if gang := group.Spec.SchedulingPolicy.Gang; gang != nil {
		g.MinMember = int(gang.MinCount)
	}
	return g
}

func ownerOf(group metav1.Object) types.UID {
	if owner := metav1.GetControllerOfNoCopy(group); owner != nil {
		return owner.UID
	}
	return ""
}

// list reads the groups of a namespace, or of all if it is empty, of those kinds that the API server knows. They are without
// their members.
func list(ctx context.Context, reader client.Reader, namespace string) ([]*Gang, error) {
	groups, natives := &v1alpha1.PodGroupList{}, &schedulingv1beta1.PodGroupList{}
	for _, list := range []client.ObjectList{groups, natives} {
		if err := reader.List(ctx, list, client.InNamespace(namespace)); err != nil && !absent(err) {
			return nil, err
		}
	}
	var gangs []*Gang
	for i := range groups.Items {
		gangs = append(gangs, of(&groups.Items[i]))
	}
	for i := range natives.Items {
		gangs = append(gangs, ofNative(&natives.Items[i]))
	}
	return gangs, nil
}

func (g *Gang) readMembers(ctx context.Context, reader client.Reader) error {
	options := []client.ListOption{client.InNamespace(g.Key.Namespace)}
	if !g.Native {
		options = append(options, client.MatchingLabels{v1alpha1.GroupLabel: g.Key.Name})
	}
	pods := &corev1.PodList{}
	if err := reader.List(ctx, pods, options...); err != nil {
		return fmt.Errorf("members of %s %s: %w", g.Kind(), g.Key, err)
	}
	var members []*corev1.Pod
	for i := range pods.Items {
		if g.has(&pods.Items[i]) {
			members = append(members, &pods.Items[i])
		}
	}
	g.take(members)
	return nil
}

// has reports whether the pod says that it is a member.
func (g *Gang) has(pod *corev1.Pod) bool {
	key, ok := podgroup.Key(pod)
	if g.Native {
		key, ok = podgroup.NativeKey(pod)
	}
	return ok && key == g.Key
}

// take makes the pods the members of the gang.
func (g *Gang) take(pods []*corev1.Pod) {
	slices.SortFunc(pods, podgroup.CompareMembers)
	for _, pod := range pods {
		m := podgroup.MemberOf(pod)
		g.Members = append(g.Members, m)
		if g.untold == nil && m.State == podgroup.Waiting {
			if _, c := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
				g.untold = c
			}
		}
	}
	if !g.Native && len(g.Members) > 0 {
		g.Priority = g.Members[0].Priority
	}
}

// Waits reports whether the gang waits for places, or for what it needs before it can have some.
func (g *Gang) Waits() bool {
	switch {
	case g.Phase == upstream.PodGroupFinished || g.Phase == upstream.PodGroupFailed:
		return false
	case g.Native:
		return !meta.IsStatusConditionTrue(g.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled)
	}
	return !meta.IsStatusConditionTrue(g.Conditions, v1alpha1.ConditionScheduled)
}

// Why returns what the gang waits for, before it is scheduled or before it meets: the condition that says so. It is nil for
// a gang that waits for nothing, and for one of which nothing has been told.
func (g *Gang) Why() *metav1.Condition {
	types := []string{v1alpha1.ConditionScheduled, v1alpha1.ConditionReady}
	if g.Native {
		types = []string{schedulingv1beta1.PodGroupInitiallyScheduled}
	}
	for _, t := range types {
		if c := meta.FindStatusCondition(g.Conditions, t); c != nil && c.Status != metav1.ConditionTrue {
			return c
		}
	}
	if c := g.untold; c != nil {
		return &metav1.Condition{
			Type: string(c.Type), Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime,
		}
	}
	return nil
}

// Notes returns what else is under way for the gang: room that is kept for it or made, and how its last attempt ended.
func (g *Gang) Notes() []metav1.Condition {
	var notes []metav1.Condition
	for _, t := range []string{
		v1alpha1.ConditionPreempting, v1alpha1.ConditionReserved, v1alpha1.ConditionProvisioning, v1alpha1.ConditionRendezvousTimedOut,
		v1alpha1.ConditionFinished,
	} {
		if c := meta.FindStatusCondition(g.Conditions, t); c != nil && c.Status == metav1.ConditionTrue {
			notes = append(notes, *c)
		}
	}
	return notes
}

// compare orders gangs as the scheduler does by default: by priority, the higher first, then by age and name.
func (g *Gang) compare(other *Gang) int {
	return cmp.Or(
		cmp.Compare(other.Priority, g.Priority),
		g.Created.Compare(other.Created),
		cmp.Compare(g.Key.Namespace, other.Key.Namespace),
		cmp.Compare(g.Key.Name, other.Key.Name),
	)
}

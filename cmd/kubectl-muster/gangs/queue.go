package gangs

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// Queue reads the gangs that wait in a namespace, or in all of them if it is empty, by priority and age. Of their members it
// knows those that wait.
func Queue(ctx context.Context, reader client.Reader, namespace string) ([]*Gang, error) {
	groups, natives, pods := &v1alpha1.PodGroupList{}, &schedulingv1beta1.PodGroupList{}, &corev1.PodList{}
	for _, list := range []client.ObjectList{groups, natives} {
		if err := reader.List(ctx, list, client.InNamespace(namespace)); err != nil && !absent(err) {
			return nil, err
		}
	}
	if err := reader.List(ctx, pods, client.InNamespace(namespace), client.MatchingFields{"spec.nodeName": ""}); err != nil {
		return nil, err
	}
	// The groups of either kind have names of their own.
	members := map[bool]map[types.NamespacedName][]*corev1.Pod{true: {}, false: {}}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
			key := types.NamespacedName{Namespace: pod.Namespace, Name: *group.PodGroupName}
			members[true][key] = append(members[true][key], pod)
		} else if key, ok := podgroup.Key(pod); ok {
			members[false][key] = append(members[false][key], pod)
		}
	}
	var waiting []*Gang
	wait := func(g *Gang) {
		if g.Waits() {
			g.take(members[g.Native][g.Key])
			waiting = append(waiting, g)
		}
	}
	for i := range groups.Items {
		wait(of(&groups.Items[i]))
	}
	for i := range natives.Items {
		wait(ofNative(&natives.Items[i]))
	}
	slices.SortFunc(waiting, (*Gang).compare)
	return waiting, nil
}

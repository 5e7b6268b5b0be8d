package gangs

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/podgroup"
)

// Queue reads the gangs that wait in a namespace, or in all of them if it is empty, by priority and age. Of their members it
// knows those that wait.
func Queue(ctx context.Context, reader client.Reader, namespace string) ([]*Gang, error) {
	gangs, err := list(ctx, reader, namespace)
	if err != nil {
		return nil, err
	}
	pods := &corev1.PodList{}
	if err := reader.List(ctx, pods, client.InNamespace(namespace), client.MatchingFields{"spec.nodeName": ""}); err != nil {
		return nil, err
	}
	// The groups of either kind have names of their own.
	members := map[bool]map[types.NamespacedName][]*corev1.Pod{true: {}, false: {}}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if key, ok := podgroup.NativeKey(pod); ok {
			members[true][key] = append(members[true][key], pod)
		} else if key, ok := podgroup.Key(pod); ok {
			members[false][key] = append(members[false][key], pod)
		}
	}
	var waiting []*Gang
	for _, g := range gangs {
		if g.Waits() {
			g.take(members[g.Native][g.Key])
			waiting = append(waiting, g)
		}
	}
	slices.SortFunc(waiting, (*Gang).compare)
	return waiting, nil
}

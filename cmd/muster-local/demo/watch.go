package demo

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
)

// podEvent is news of a pod, with the time at which it arrived.
type podEvent struct {
	at   time.Time
	uid  string
	pod  podState
	gone bool
}

// watchPods delivers the news of a namespace's pods until ctx is done.
func watchPods(ctx context.Context, client kubernetes.Interface, namespace string) (<-chan podEvent, error) {
	events := make(chan podEvent, 256)
	send := func(obj any, gone bool) {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return
		}
		select {
		case events <- podEvent{at: time.Now(), uid: string(pod.UID), pod: stateOf(pod), gone: gone}:
		case <-ctx.Done():
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { send(obj, false) },
		UpdateFunc: func(_, obj any) { send(obj, false) },
		DeleteFunc: func(obj any) { send(obj, true) },
	}); err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, errors.New("watch pods: stopped before the first list")
	}
	return events, nil
}

// stateOf reads what the demo needs from a pod.
func stateOf(pod *corev1.Pod) podState {
	state := podState{
		name:     pod.Name,
		job:      pod.Labels[jobsetapi.JobSetNameKey],
		node:     pod.Spec.NodeName,
		running:  pod.Status.Phase == corev1.PodRunning,
		finished: pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
	}
	for i := range pod.Spec.Containers {
		gpus := pod.Spec.Containers[i].Resources.Limits[controlplane.GPUResource]
		state.gpus += int(gpus.Value())
	}
	return state
}

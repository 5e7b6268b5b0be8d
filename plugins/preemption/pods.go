package preemption

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// Follow keeps the index, and the evictor's memory, up to date with the scheduler's own informer of pods,
// which the scheduler starts later.
func Follow(pods coreinformers.PodInformer, p *Priorities, e *Evictor) error {
	_, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { p.Update(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { p.Update(obj.(*corev1.Pod)) },
		DeleteFunc: func(obj any) {
			if tomb, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tomb.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				p.Delete(pod.UID)
				e.Gone(pod.UID)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("following pods as victims: %w", err)
	}
	return nil
}

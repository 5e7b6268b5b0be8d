package simulation

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"
)

// waitingPod is a pod that waits at Permit. It is the framework's own in all but its clock, and in that it can
// be asked whether its wait is over.
type waitingPod struct {
	pod     *corev1.Pod
	pending map[string]clock.Timer
	// outcome is how the wait ended, nil while it lasts.
	outcome *fwk.Status
	process *process
}

var _ fwk.WaitingPod = &waitingPod{}

func (p *process) newWaitingPod(pod *corev1.Pod, waits map[string]time.Duration) *waitingPod {
	w := &waitingPod{pod: pod, pending: map[string]clock.Timer{}, process: p}
	for _, plugin := range slices.Sorted(maps.Keys(waits)) {
		wait := waits[plugin]
		w.pending[plugin] = p.clock.AfterFunc(wait, func() {
			w.Reject(plugin, fmt.Sprintf("rejected due to timeout after waiting %v at plugin %v", wait, plugin))
		})
	}
	return w
}

// GetPod implements fwk.WaitingPod.
func (w *waitingPod) GetPod() *corev1.Pod { return w.pod }

// GetPendingPlugins implements fwk.WaitingPod.
func (w *waitingPod) GetPendingPlugins() []string { return slices.Sorted(maps.Keys(w.pending)) }

// Allow implements fwk.WaitingPod.
func (w *waitingPod) Allow(plugin string) {
	if timer, ok := w.pending[plugin]; ok {
		timer.Stop()
		delete(w.pending, plugin)
	}
	if len(w.pending) == 0 && w.outcome == nil {
		w.outcome = fwk.NewStatus(fwk.Success)
		w.process.allowed = append(w.process.allowed, w.pod)
	}
}

// Reject implements fwk.WaitingPod.
func (w *waitingPod) Reject(plugin, message string) bool {
	return w.stop(fwk.Unschedulable, plugin, message)
}

// Preempt implements fwk.WaitingPod.
func (w *waitingPod) Preempt(plugin, message string) bool {
	w.process.evicts(w.pod.UID)
	return w.stop(fwk.Error, plugin, message)
}

func (w *waitingPod) stop(code fwk.Code, plugin, message string) bool {
	for _, timer := range w.pending {
		timer.Stop()
	}
	if w.outcome != nil {
		return false
	}
	w.outcome = fwk.NewStatus(code, message).WithPlugin(plugin)
	return true
}

package simulation

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// profile is the scheduling framework with its waiting in the hands of the simulation, and with nothing left
// to chance.
type profile struct {
	framework.Framework
	process *process
}

// RunPermitPlugins tells which pods may bind from now on.
func (f *profile) RunPermitPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) (map[string]time.Duration, *fwk.Status) {
	f.process.tellAllowed()
	waits, status := f.Framework.RunPermitPlugins(ctx, state, pod, node)
	if status.IsSuccess() {
		f.process.allowed = append(f.process.allowed, pod)
		f.process.tellAllowed()
	}
	if status.IsSuccess() || status.IsWait() {
		f.process.expected = append(f.process.expected, pod.UID)
	}
	return waits, status
}

// AddWaitingPod lets the pods of another scheduler wait in the framework's own way: the plugins that come with
// kube-scheduler do not see the profile. Their wait does not end by itself.
func (f *profile) AddWaitingPod(pod *corev1.Pod, waits map[string]time.Duration) {
	if f.process.plugin == nil {
		f.Framework.AddWaitingPod(pod, waits)
		return
	}
	f.process.waiting[pod.UID] = f.process.newWaitingPod(pod, waits)
}

// GetWaitingPod finds a pod no more that was rejected. The framework's own does so until the pod's goroutine has
// woken up; nobody can tell in that moment that it was rejected.
func (f *profile) GetWaitingPod(uid types.UID) fwk.WaitingPod {
	if w := f.process.waiting[uid]; w != nil && (w.outcome == nil || w.outcome.IsSuccess()) {
		return w
	}
	return nil
}

func (f *profile) IterateOverWaitingPods(visit func(fwk.WaitingPod)) {
	for _, uid := range sortedKeys(f.process.waiting) {
		visit(f.process.waiting[uid])
	}
}

func (f *profile) RejectWaitingPod(uid types.UID) bool {
	if f.Framework.RejectWaitingPod(uid) {
		f.process.rejected.Insert(uid)
		return true
	}
	w := f.process.waiting[uid]
	return w != nil && w.Reject("", "removed")
}

func (f *profile) WillWaitOnPermit(ctx context.Context, pod *corev1.Pod) bool {
	return f.process.waiting[pod.UID] != nil || f.Framework.WillWaitOnPermit(ctx, pod)
}

// RunPreBindPreFlights is the first that a binding cycle does.
func (f *profile) RunPreBindPreFlights(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	f.process.enter(ctx, pod, node)
	return f.Framework.RunPreBindPreFlights(ctx, state, pod, node)
}

func (f *profile) WaitOnPermit(ctx context.Context, pod *corev1.Pod) *fwk.Status {
	if w := f.Framework.GetWaitingPod(pod.UID); w != nil {
		f.process.park(func() bool { return len(w.GetPendingPlugins()) == 0 || f.process.rejected.Has(pod.UID) })
		f.process.rejected.Delete(pod.UID)
		return f.Framework.WaitOnPermit(ctx, pod)
	}
	w := f.process.waiting[pod.UID]
	if w == nil {
		return nil
	}
	f.process.park(func() bool { return w.outcome != nil })
	delete(f.process.waiting, pod.UID)
	if w.outcome.IsSuccess() {
		return nil
	}
	return w.outcome
}

// RunScorePlugins breaks ties by the order of the nodes, where the scheduler would do so at random.
func (f *profile) RunScorePlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) ([]fwk.NodePluginScores, *fwk.Status) {
	scores, status := f.Framework.RunScorePlugins(ctx, state, pod, nodes)
	for i := range scores {
		scores[i].TotalScore = scores[i].TotalScore*int64(len(scores)) + int64(len(scores)-1-i)
	}
	return scores, status
}

// GetNodeHint and StoreScheduleResults switch opportunistic batching off: it only saves time, and lasts for
// half a second of it.
func (f *profile) GetNodeHint(context.Context, *corev1.Pod, fwk.PodSignature, fwk.CycleState, int64) string {
	return ""
}

func (f *profile) StoreScheduleResults(context.Context, fwk.PodSignature, string, string, framework.SortedScoredNodes, int64) {
}

// Status of pods, and bindings, go to the API of the simulation.
var _ fwk.APICacher = &apiCalls{}

// apiCalls are the scheduler's own writes.
type apiCalls struct{ process *process }

// PatchPodStatus implements fwk.APICacher. As the scheduler's patch it is of the pod of that name, whatever
// became of it.
func (c *apiCalls) PatchPodStatus(pod *corev1.Pod, conditions []*corev1.PodCondition, nominating *fwk.NominatingInfo) (<-chan error, error) {
	if c.process.dead {
		return nil, errDead
	}
	c.process.cluster.api.patchPodStatus(nameOf(pod), conditions, nominating)
	return nil, nil
}

// BindPod implements fwk.APICacher.
func (c *apiCalls) BindPod(binding *corev1.Binding) (<-chan error, error) {
	c.process.current.binding = binding
	return nil, nil
}

// WaitOnFinish implements fwk.APICacher. Only bindings are waited for.
func (c *apiCalls) WaitOnFinish(context.Context, <-chan error) error {
	b := c.process.current
	c.process.park(func() bool { return true })
	return b.err
}

package coscheduling

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// BenchmarkRefuse is the turn of the first member of a gang of 512 whole nodes on 5,000 nodes, of which 400 are free
// and the others have a pod of 2, 4 or 6 of their 8 GPUs: the benchmark's case gpu-refused. The first gang after
// the scheduler started meets nodes that were never looked at.
func BenchmarkRefuse(b *testing.B) {
	const nodes, free, size = 5000, 400, 512
	var running []*corev1.Pod
	for i := free; i < nodes; i++ {
		running = append(running, stage.Pod(size+i, 2+2*(i%3)).Node(fmt.Sprintf("n%d", i)).Obj())
	}
	p := newPlayBeside(b, running, stage.Nodes(nodes, 8)...)
	group := &v1alpha1.PodGroup{}
	group.Namespace, group.Name, group.Spec.MinMember = testKey.Namespace, testKey.Name, size
	if err := p.groups.Add(group); err != nil {
		b.Fatal(err)
	}
	pods := stage.Pods(size, 8, func(w *st.PodWrapper) *st.PodWrapper {
		for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} { // as the API server adds
			w = w.Toleration(taint)
		}
		return w.Label(v1alpha1.GroupLabel, testKey.Name).SchedulerName("test")
	})
	for _, pod := range pods {
		if err := p.handle.SharedInformerFactory().Core().V1().Pods().Informer().GetStore().Add(pod); err != nil {
			b.Fatal(err)
		}
		p.members.Update(pod)
	}
	for _, first := range []bool{true, false} {
		b.Run(fmt.Sprintf("first=%v", first), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.gangs = newGangs()
				if first {
					p.cluster = gangplan.NewCluster(nil)
					p.cluster.Use(p.handle)
				}
				if _, status := p.PreFilter(p.ctx, framework.NewCycleState(), pods[0], p.nodes); status.IsSuccess() {
					b.Fatal("placed")
				}
			}
		})
	}
}

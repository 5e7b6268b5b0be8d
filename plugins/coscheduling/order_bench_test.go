package coscheduling

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/plugins/stage"
)

// BenchmarkComeIntoLine is what the queue pays for a pod that comes into line, and for one comparison, in a cluster of
// a hundred namespaces.
func BenchmarkComeIntoLine(b *testing.B) {
	for _, order := range []QueueOrder{PriorityFIFO, FairShare} {
		pl := orderPlugin(b, nil)
		pl.line = newLine(&handClock{}, &Args{QueueOrder: order})
		pods := make([]*framework.QueuedPodInfo, 1000)
		for i := range pods {
			pods[i] = queued(b, fmt.Sprintf("ns-%d", i%100), fmt.Sprint("p-", i), "", i)
		}
		if u := pl.line.usage; u != nil {
			u.setNode(stage.Node("n", 100_000).Obj())
			for i := range 100 {
				u.add(running(fmt.Sprintf("ns-%d", i), fmt.Sprint("r-", i), stage.GPU, i))
			}
			pl.line.clock.(*handClock).Step(time.Hour)
		}
		b.Run(string(order)+"/enter", func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				pl.line.enter(pods[i%len(pods)].Pod, standing{})
			}
		})
		b.Run(string(order)+"/less", func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				pl.Less(pods[i%len(pods)], pods[(i*7+1)%len(pods)])
			}
		})
	}
}

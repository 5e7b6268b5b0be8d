package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-sched/muster/cmd/kubectl-muster/gangs"
	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
)

// What the command tells is what the condition says, for the group, its pods and in the queue.
func TestKubectlMusterTellsTheSame(t *testing.T) {
	s := newScene(t)
	s.nodes(2, controlplane.NodeShape{})
	s.group("gang", 3)
	s.create(s.members("gang", 3, 8)...)
	s.awaitRefused("gang")
	s.group("runs", 2)
	s.create(s.members("runs", 2, 8)...)
	s.awaitBound("runs", 2)
	why := s.awaitRefused("gang").Message
	for _, ask := range []string{"gang", "pod/gang-1"} {
		s.await("kubectl muster explain "+ask, func() string {
			found, err := gangs.Find(s.ctx, kube, s.namespace, ask)
			if err != nil {
				return err.Error()
			}
			var told strings.Builder
			s.must(found[0].Explain(&told, time.Now()))
			if !strings.Contains(told.String(), "3 waiting of 3 needed") || !strings.Contains(told.String(), "(Scheduled): "+why+"\n") {
				return told.String()
			}
			return ""
		})
	}
	s.await("queue", func() string {
		waiting, err := gangs.Queue(s.ctx, kube, s.namespace)
		s.must(err)
		var table strings.Builder
		s.must(gangs.Table(&table, waiting, true, time.Now()))
		if len(waiting) != 1 || len(waiting[0].Members) != 3 || !strings.Contains(table.String(), why) {
			return table.String()
		}
		return ""
	})
}

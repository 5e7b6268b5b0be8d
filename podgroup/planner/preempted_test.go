package planner

import (
	"fmt"
	"strings"
	"testing"
)

func TestExplanationsNameWhoWouldBePreempted(t *testing.T) {
	s := newStage(t, racks("r", 1, 6)...)
	s.victim("default/low", 8, "r0/n0", "r0/n1")
	v := s.victim("default/one", 8, "r0/n2")
	v.Pod, v.Priority = true, 5
	for i := range 3 {
		s.victim(fmt.Sprint("x/", i), 8, fmt.Sprint("r0/n", 3+i))
	}
	for _, tc := range []struct {
		members int
		want    string
	}{
		{1, "; would fit by preempting x/0 (priority 0, 1 pod)"},
		{6, "; would fit by preempting default/low (priority 0, 2 pods), x/0 (priority 0, 1 pod), x/1 (priority 0, 1 pod) and 2 others (2 pods)"},
	} {
		d := gang(s.Cluster, repeat(tc.members, 8)...)
		e := mustRefuse(t, s.Cluster, d, nil)
		p, _, err := s.Preempt(d, nil, s.victims)
		if p == nil {
			t.Fatal(err)
		}
		e.WouldPreempt(p, s.victims)
		if !strings.HasSuffix(e.String(), tc.want) {
			t.Errorf("%q does not end with %q", e, tc.want)
		}
		s.Advise(d, e, nil)
		if e.WouldPreempt(p, s.victims); !strings.Contains(e.String(), "more node") || !strings.HasSuffix(e.String(), ", or "+strings.TrimPrefix(tc.want, "; would fit ")) {
			t.Errorf("%q does not name both ways", e)
		}
	}
}

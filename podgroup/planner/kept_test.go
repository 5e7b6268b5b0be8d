package planner

import (
	"strings"
	"testing"
)

func TestKeptRoomIsSaid(t *testing.T) {
	e := &Explanation{
		Need: []ClassNeed{{2, []ResourceAmount{{"nvidia.com/gpu", 8}}}}, Asked: 2, ClusterNodes: 4, Nodes: 4,
		Kept: []Kept{
			{ResourceAmount{"nvidia.com/gpu", 16}, "rack r1", "team/big until about 2026-03-01T14:05:00Z"},
			{ResourceAmount{"nvidia.com/gpu", 1}, "rack r2", "team/small until 2026-03-01T15:00:00Z at most"},
		},
	}
	for _, want := range []string{
		"; 16 nvidia.com/gpu in rack r1 are reserved for team/big until about 2026-03-01T14:05:00Z",
		"; 1 nvidia.com/gpu in rack r2 is reserved for team/small until 2026-03-01T15:00:00Z at most",
	} {
		if got := e.String(); !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	e.Kept = nil
	if got := e.String(); strings.Contains(got, "reserved") {
		t.Errorf("%q", got)
	}
}

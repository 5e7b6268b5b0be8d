package coscheduling

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup/planner"
)

// mustExport compares what a scheduler with these gangs exports, without the explanations of the metrics.
func mustExport(t *testing.T, g *gangs, want string) {
	t.Helper()
	registry := metrics.NewKubeRegistry()
	collector := &demandCollector{gangs: []*gangs{g}}
	registry.CustomMustRegister(collector)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			line := strings.TrimPrefix(family.GetName(), "muster_waiting_")
			for _, l := range m.GetLabel() {
				line += " " + l.GetValue()
			}
			got = append(got, fmt.Sprint(line, " ", m.GetGauge().GetValue()))
		}
	}
	if g, w := strings.Join(got, "\n"), strings.ReplaceAll(strings.TrimSpace(want), "\t", ""); g != w {
		t.Errorf("exported:\n%s\nwant:\n%s", g, w)
	}
}

func TestWaitingGangsExportTheirDemand(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	p.group(3)
	pods := p.wholeNodeMembers(4)
	mustExport(t, p.gangs, "")
	p.refusalStatus(pods[0])
	mustExport(t, p.gangs, `
		gang_members Unschedulable 4
		gang_nodes nvidia.com/gpu=8 2
		gang_requests Unschedulable nvidia.com/gpu 24
		gangs Unschedulable 1`)

	// A member less: it cannot start, whatever comes.
	p.podDeleted(p.logger, pods[3])
	p.podDeleted(p.logger, pods[2])
	mustExport(t, p.gangs, "")
	p.see(nil, pods[2])

	// It starts as soon as it has its places.
	p.group(1)
	if _, why := p.turn(pods[0]); why != "" {
		t.Fatal(why)
	}
	mustExport(t, p.gangs, "")

	// What is surplus does not keep the gang waiting.
	p.gangs.refuse(testKey, &refusal{reason: ReasonUnschedulable, surplus: true, members: map[types.UID]version{"x": {}}})
	mustExport(t, p.gangs, "")
}

func TestDemandIsAddedUpByReasonAndShape(t *testing.T) {
	g := newGangs()
	refuse := func(name string, r *refusal) {
		key := types.NamespacedName{Namespace: "ns", Name: name}
		g.becameComplete(key, func() bool { return true })
		g.refuse(key, r)
	}
	needs := func(members int, amounts ...planner.ResourceAmount) []planner.ClassNeed {
		return []planner.ClassNeed{{Members: members, Requests: amounts}}
	}
	cpu, gpu := planner.ResourceAmount{Name: string(corev1.ResourceCPU), Value: 1500}, planner.ResourceAmount{Name: stage.GPU, Value: 4}
	more := func(n int, amounts ...planner.ResourceAmount) advised {
		return advised{nodes: &planner.MoreNodes{Count: n, Shape: amounts}}
	}
	node := []planner.ResourceAmount{{Name: stage.GPU, Value: 8}, {Name: "cpu", Value: 96000}, {Name: "memory", Value: 1 << 40}}
	futile := more(0)
	futile.futile, futile.nodes = true, nil
	refuse("a", &refusal{reason: ReasonUnschedulable, needs: needs(2, gpu, cpu), advice: more(1, node...)})
	refuse("b", &refusal{reason: ReasonUnschedulable, needs: needs(8, gpu), advice: more(4, node[:1]...)})
	refuse("c", &refusal{reason: ReasonUnschedulable, needs: needs(2, cpu), advice: more(1, node[1:]...)})
	refuse("d", &refusal{reason: ReasonUnschedulable, needs: needs(1, gpu), advice: futile})
	refuse("e", &refusal{reason: ReasonMembersDisagree, members: map[types.UID]version{"x": {}, "y": {}}})
	mustExport(t, g, `
		gang_members MembersDisagree 2
		gang_members NoNodeHelps 0
		gang_members Unschedulable 0
		gang_nodes cpu=96 1
		gang_nodes nvidia.com/gpu=8 5
		gang_requests NoNodeHelps nvidia.com/gpu 4
		gang_requests Unschedulable cpu 6
		gang_requests Unschedulable nvidia.com/gpu 40
		gangs MembersDisagree 1
		gangs NoNodeHelps 1
		gangs Unschedulable 3`)
}

func TestDemandIsOfSchedulersThatRun(t *testing.T) {
	d := &demandCollector{}
	ctx, cancel := context.WithCancel(t.Context())
	d.count(ctx, newGangs())
	d.count(t.Context(), newGangs())
	cancel()
	for left := 2; left > 1; runtime.Gosched() {
		d.mu.Lock()
		left = len(d.gangs)
		d.mu.Unlock()
	}
}

package coscheduling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/muster-sched/muster/podgroup/planner"
)

var (
	gangsWaiting = metrics.NewDesc("muster_waiting_gangs",
		"Gangs that were turned away and wait, by the reason that their members have in the condition PodScheduled.",
		[]string{"reason"}, nil, metrics.ALPHA, "")
	membersWaiting = metrics.NewDesc("muster_waiting_gang_members",
		"Members of waiting gangs that have no node, by reason.",
		[]string{"reason"}, nil, metrics.ALPHA, "")
	requestsWaiting = metrics.NewDesc("muster_waiting_gang_requests",
		"What the members request that gangs need to start and that there is no room for, by resource, in cores, bytes or pieces, and by reason.",
		[]string{"resource", "reason"}, nil, metrics.ALPHA, "")
	nodesWanted = metrics.NewDesc("muster_waiting_gang_nodes",
		"New nodes that would let waiting gangs start, each gang by itself, by the devices of a node (or its cores, where gangs request no devices).",
		[]string{"shape"}, nil, metrics.ALPHA, "")
)

// demandCollector tells how much the waiting gangs of all schedulers in the process ask for. It adds up when it is
// asked, so that a gang that started or went is not in it any more.
type demandCollector struct {
	metrics.BaseStableCollector

	mu    sync.Mutex
	gangs []*gangs
}

var demands = &demandCollector{}

func init() {
	legacyregistry.CustomMustRegister(demands)
}

// count has these gangs counted until the context ends.
func (d *demandCollector) count(ctx context.Context, g *gangs) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gangs = append(d.gangs, g)
	context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.gangs = slices.DeleteFunc(d.gangs, func(other *gangs) bool { return other == g })
	})
}

// DescribeWithStability implements metrics.StableCollector.
func (d *demandCollector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{gangsWaiting, membersWaiting, requestsWaiting, nodesWanted} {
		ch <- desc
	}
}

// CollectWithStability implements metrics.StableCollector.
func (d *demandCollector) CollectWithStability(ch chan<- metrics.Metric) {
	d.mu.Lock()
	all := slices.Clone(d.gangs)
	d.mu.Unlock()
	sum := newDemand()
	for _, g := range all {
		g.addDemand(sum)
	}
	send := func(desc *metrics.Desc, value float64, labels ...string) {
		ch <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, labels...)
	}
	for _, reason := range slices.Sorted(maps.Keys(sum.gangs)) {
		send(gangsWaiting, float64(sum.gangs[reason]), reason)
		send(membersWaiting, float64(sum.members[reason]), reason)
	}
	for of, value := range sum.requests {
		send(requestsWaiting, value, of.resource, of.reason)
	}
	for shape, n := range sum.nodes {
		send(nodesWanted, float64(n), shape)
	}
}

// demand is what waiting gangs ask for.
type demand struct {
	gangs, members map[string]int // by reason
	requests       map[requested]float64
	nodes          map[string]int // by shape
}

type requested struct{ resource, reason string }

func newDemand() *demand {
	return &demand{gangs: map[string]int{}, members: map[string]int{}, requests: map[requested]float64{}, nodes: map[string]int{}}
}

// addDemand adds what the refused gangs ask for. Those that have their minimum, or lack members, do not wait for room.
func (g *gangs) addDemand(sum *demand) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, x := range g.byKey {
		if x.refusal != nil && x.complete && !x.refusal.surplus {
			sum.add(x.refusal)
		}
	}
}

func (d *demand) add(r *refusal) {
	reason := r.podReason()
	d.gangs[reason]++
	d.members[reason] += len(r.members)
	for _, need := range r.needs {
		for _, a := range need.Requests {
			d.requests[requested{a.Name, reason}] += float64(need.Members) * inBaseUnits(a)
		}
	}
	if nodes := r.advice.nodes; nodes != nil {
		d.nodes[shapeOf(nodes.Shape)] += nodes.Count
	}
}

// inBaseUnits returns an amount in cores, bytes or pieces.
func inBaseUnits(a planner.ResourceAmount) float64 {
	if a.Name == string(corev1.ResourceCPU) {
		return float64(a.Value) / 1000
	}
	return float64(a.Value)
}

// shapeOf words a node by its devices alone, or by its cores if it has none: there are few such words in a cluster,
// whereas memory differs from node to node.
func shapeOf(amounts []planner.ResourceAmount) string {
	var devices []string
	cores := ""
	for _, a := range amounts {
		switch {
		case strings.Contains(a.Name, "/"):
			devices = append(devices, fmt.Sprintf("%s=%d", a.Name, a.Value))
		case a.Name == string(corev1.ResourceCPU):
			cores = fmt.Sprintf("%s=%d", a.Name, a.Value/1000)
		}
	}
	if len(devices) == 0 {
		return cores
	}
	slices.Sort(devices)
	return strings.Join(devices, ",")
}

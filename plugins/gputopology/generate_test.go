package gputopology

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
)

// cycle is the scheduling cycle of the native pod group "gang".
type cycle struct {
	*testing.T
	pl       *GPUTopology
	snapshot *schedcache.Snapshot
	infos    []fwk.NodeInfo
	state    *framework.CycleState
	group    *schedulingv1beta1.PodGroup
	waiting  []*corev1.Pod
}

// newCycle is a cycle of so many waiting members, of which minCount are needed, beside other pods.
func newCycle(t *testing.T, args string, minCount int32, waiting, placed []*corev1.Pod, nodes ...*corev1.Node) *cycle {
	group := stage.PodGroup("gang", minCount)
	fw, infos, snapshot := stage.NewNativeFramework(t, []*schedulingv1beta1.PodGroup{group}, nil, placed, nodes...)
	return &cycle{
		T: t, pl: newPlugin(t, fw, args), snapshot: snapshot, infos: infos, state: framework.NewCycleState(),
		group: group, waiting: stage.InGroup("gang", waiting...),
	}
}

func (c *cycle) generate() ([]*fwk.Placement, *fwk.Status) {
	result, status := c.pl.GeneratePlacements(c.Context(), c.state, stage.GroupInfo(c.group, c.waiting...), &fwk.Placement{Nodes: c.infos})
	if result == nil {
		return nil, status
	}
	return result.Placements, status
}

// planned returns the placements of a group that must have some.
func (c *cycle) planned() []*fwk.Placement {
	c.Helper()
	placements, status := c.generate()
	if !status.IsSuccess() || len(placements) == 0 {
		c.Fatalf("no placement: %v", status)
	}
	return placements
}

func names(p *fwk.Placement) []string {
	var names []string
	for _, info := range p.Nodes {
		names = append(names, info.Node().Name)
	}
	return names
}

// follow returns the node that each waiting member gets in a placement, "" for none, and checks that
// Filter keeps it there.
func (c *cycle) follow(p *fwk.Placement) []string {
	c.Helper()
	if err := c.snapshot.AssumePlacement(p); err != nil {
		c.Fatal(err)
	}
	defer c.snapshot.ForgetPlacement()
	var nodes []string
	for _, pod := range c.waiting {
		state := framework.NewCycleState()
		state.SetPodGroupSchedulingCycle(c.state)
		result, status := c.pl.PreFilter(c.Context(), state, pod, c.infos)
		if !status.IsSuccess() {
			if status.Code() != fwk.UnschedulableAndUnresolvable {
				c.Fatalf("%s: %v", pod.Name, status)
			}
			nodes = append(nodes, "")
			continue
		}
		only := result.NodeNames.UnsortedList()
		if len(only) != 1 {
			c.Fatalf("%s may go to %v", pod.Name, only)
		}
		for _, info := range c.infos {
			if kept := c.pl.Filter(c.Context(), state, pod, info).IsSuccess(); kept != (info.Node().Name == only[0]) {
				c.Errorf("%s: Filter lets it go to %s: %v", pod.Name, info.Node().Name, kept)
			}
		}
		nodes = append(nodes, only[0])
	}
	return nodes
}

func racks(count, nodes int) []*corev1.Node {
	var out []*corev1.Node
	for r := range count {
		for n := range nodes {
			out = append(out, place("a", fmt.Sprintf("r%d", r), fmt.Sprintf("r%d-n%d", r, n), 8))
		}
	}
	return out
}

func TestPlannedNodesComeFirst(t *testing.T) {
	c := newCycle(t, levelArgs, 3, stage.Pods(3, 8, nil), nil, racks(3, 4)...)
	placements := c.planned()
	if len(placements) != 3 {
		t.Fatalf("%d placements, want the best and two alternatives", len(placements))
	}
	for i, p := range placements {
		if len(p.Nodes) != 3 || !strings.HasPrefix(p.Name, fmt.Sprintf("%d: rack r%d", i+1, i)) {
			t.Errorf("placement %q: nodes %v", p.Name, names(p))
		}
		if got := c.follow(p); !slices.Equal(got, names(p)) {
			t.Errorf("ranks go to %v in %v", got, names(p))
		}
	}
	// The same snapshot and group: the same placements.
	again := c.planned()
	for i := range again {
		if again[i].Name != placements[i].Name || !slices.Equal(names(again[i]), names(placements[i])) {
			t.Errorf("placement %d: %v, then %v", i, names(placements[i]), names(again[i]))
		}
	}
}

func TestEarlierPlacementsScoreHigher(t *testing.T) {
	c := newCycle(t, levelArgs, 3, stage.Pods(3, 8, nil), nil, racks(3, 4)...)
	placementState := framework.NewCycleState()
	placementState.SetPodGroupSchedulingCycle(c.state)
	last := int64(fwk.MaxScore + 1)
	for _, p := range c.planned() {
		score, status := c.pl.ScorePlacement(t.Context(), placementState, nil, &fwk.PodGroupAssignments{Placement: p})
		if !status.IsSuccess() || score >= last || score < fwk.MinScore {
			t.Errorf("placement %q has the score %d after %d: %v", p.Name, score, last, status)
		}
		last = score
	}
	if score, status := c.pl.ScorePlacement(t.Context(), placementState, nil, &fwk.PodGroupAssignments{Placement: &fwk.Placement{}}); score != 0 || !status.IsSuccess() {
		t.Errorf("another's placement has the score %d: %v", score, status)
	}
}

func TestAlternativesAreBounded(t *testing.T) {
	for alternatives, want := range map[int]int{0: 1, 1: 2, 8: 4} {
		c := newCycle(t, fmt.Sprintf("{alternatives: %d}", alternatives), 1, stage.Pods(1, 8, nil), nil, stage.Nodes(4, 8)...)
		if got := len(c.planned()); got != want {
			t.Errorf("alternatives %d on 4 nodes: %d placements, want %d", alternatives, got, want)
		}
	}
}

// A placement of all nodes is none to the scheduler; the plan is followed nevertheless, and there is
// only one such placement.
func TestPlacementOfAllNodes(t *testing.T) {
	c := newCycle(t, levelArgs, 4, stage.Pods(4, 4, nil), nil, stage.Nodes(2, 8)...)
	placements := c.planned()
	if len(placements) != 1 || len(placements[0].Nodes) != 2 {
		t.Fatalf("%d placements, the first of %v", len(placements), names(placements[0]))
	}
	if got := c.follow(placements[0]); !slices.Equal(got, []string{"n0", "n0", "n1", "n1"}) {
		t.Errorf("ranks go to %v", got)
	}
	c = newCycle(t, levelArgs, 2, stage.Pods(2, 2, nil), nil, stage.Node("only", 8).Obj())
	if got := len(c.planned()); got != 1 {
		t.Errorf("%d placements of all nodes cannot be told apart", got)
	}
}

func TestRefusalIsThePlugins(t *testing.T) {
	c := newCycle(t, levelArgs, 4, stage.Pods(4, 8, nil), nil, stage.Nodes(3, 8)...)
	_, status := c.generate()
	if status.Code() != fwk.Unschedulable {
		t.Fatalf("%v", status)
	}
	for _, want := range []string{"0/3 nodes are available", "gang needs 4 members", "room for 3"} {
		if !strings.Contains(status.Message(), want) {
			t.Errorf("want %q in %q", want, status.Message())
		}
	}
	var fit *framework.FitError
	if !errors.As(status.AsError(), &fit) || !fit.Diagnosis.UnschedulablePlugins.Has(Name) {
		t.Errorf("the queue does not learn who refused the group: %#v", status.AsError())
	}
}

func TestUnknownLevelsFailClosed(t *testing.T) {
	for name, change := range map[string]func(*schedulingv1beta1.PodGroup){
		"constraint": func(g *schedulingv1beta1.PodGroup) { g.Spec.SchedulingConstraints = constraint("row") },
		"annotation": func(g *schedulingv1beta1.PodGroup) {
			g.Annotations = map[string]string{podgroup.RequiredTopologyAnnotation: "row"}
		},
		"annotation beside a known constraint": func(g *schedulingv1beta1.PodGroup) {
			g.Annotations = map[string]string{podgroup.RequiredTopologyAnnotation: "row"}
			g.Spec.SchedulingConstraints = constraint("rack")
		},
	} {
		c := newCycle(t, levelArgs, 1, stage.Pods(1, 1, nil), nil, racks(1, 1)...)
		change(c.group)
		_, status := c.generate()
		if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), `"row"`) ||
			!strings.Contains(status.Message(), "zone, rack, kubernetes.io/hostname") {
			t.Errorf("%s: %v", name, status)
		}
	}
}

func constraint(key string) *schedulingv1beta1.PodGroupSchedulingConstraints {
	return &schedulingv1beta1.PodGroupSchedulingConstraints{Topology: []schedulingv1beta1.TopologyConstraint{{Key: key}}}
}

// Of a constraint and an annotation the inner level counts, whichever of the two it is.
func TestInnerLevelCounts(t *testing.T) {
	for _, levels := range [][2]string{{"zone", "rack"}, {"rack", "zone"}, {"rack", ""}, {"", "rack"}} {
		c := newCycle(t, levelArgs, 3, stage.Pods(3, 8, nil), nil, racks(2, 2)...)
		if levels[0] != "" {
			c.group.Spec.SchedulingConstraints = constraint(levels[0])
		}
		if levels[1] != "" {
			c.group.Annotations = map[string]string{podgroup.RequiredTopologyAnnotation: levels[1]}
		}
		if _, status := c.generate(); status.Code() != fwk.Unschedulable || !strings.Contains(status.Message(), "rack") {
			t.Errorf("constraint %q and annotation %q: three members do not fit into a rack of two: %v", levels[0], levels[1], status)
		}
	}
}

// Members that have their place are facts: the others go to their domain, and only what is missing
// counts.
func TestPlacedMembersKeepTheirDomain(t *testing.T) {
	placed := stage.InGroup("gang", stage.Pod(0, 8).Node("r1-n0").Obj(), stage.Pod(1, 8).Node("r1-n1").Obj())
	c := newCycle(t, levelArgs, 3, []*corev1.Pod{stage.Pod(2, 8).Obj()}, placed, racks(3, 4)...)
	c.group.Spec.SchedulingConstraints = constraint("rack")
	placements := c.planned()
	if len(placements) != 2 { // two more nodes in the rack
		t.Errorf("%d placements", len(placements))
	}
	for _, p := range placements {
		for _, node := range names(p) {
			if !strings.HasPrefix(node, "r1-") {
				t.Errorf("placement %q has node %s outside the rack of the others", p.Name, node)
			}
		}
	}
}

func TestSurplusMembersWithoutRoomAreRefusedAlone(t *testing.T) {
	c := newCycle(t, levelArgs, 2, stage.Pods(5, 8, nil), nil, stage.Nodes(3, 8)...)
	if got := c.follow(c.planned()[0]); !slices.Equal(got, []string{"n0", "n1", "n2", "", ""}) {
		t.Errorf("members go to %v", got)
	}
}

// A group without a gang policy takes what room there is.
func TestBasicPolicy(t *testing.T) {
	c := newCycle(t, levelArgs, 1, stage.Pods(5, 8, nil), nil, stage.Nodes(3, 8)...)
	c.group.Spec.SchedulingPolicy = schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}
	if got := c.follow(c.planned()[0]); !slices.Equal(got, []string{"n0", "n1", "n2", "", ""}) {
		t.Errorf("members go to %v", got)
	}
}

// Outside the cycle of a planned pod group the plugin stands aside.
func TestPreFilterStandsAside(t *testing.T) {
	c := newCycle(t, levelArgs, 1, stage.Pods(1, 8, nil), nil, stage.Nodes(2, 8)...)
	unplanned := framework.NewCycleState()
	unplanned.SetPodGroupSchedulingCycle(framework.NewCycleState())
	c.planned()
	other := framework.NewCycleState()
	other.SetPodGroupSchedulingCycle(c.state)
	for name, state := range map[string]fwk.CycleState{"a single pod": framework.NewCycleState(), "no plan": unplanned, "no placement of ours": other} {
		if _, status := c.pl.PreFilter(t.Context(), state, c.waiting[0], c.infos); !status.IsSkip() {
			t.Errorf("%s: %v", name, status)
		}
	}
	if status := c.pl.Filter(t.Context(), framework.NewCycleState(), c.waiting[0], c.infos[0]); !status.IsSuccess() {
		t.Errorf("Filter without a plan: %v", status)
	}
}

// What is assumed within a cycle, by a sibling in a composite group, leaves the nodes' generations as
// they were and is seen nevertheless; and so is its end.
func TestAssumedSiblingsAreSeen(t *testing.T) {
	c := newCycle(t, levelArgs, 1, stage.Pods(1, 8, nil), nil, stage.Nodes(2, 8)...)
	first := names(c.planned()[0])[0]
	sibling, err := framework.NewPodInfo(stage.Pod(9, 8).Node(first).Obj())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.snapshot.AssumePod(sibling); err != nil {
		t.Fatal(err)
	}
	if got := names(c.planned()[0])[0]; got == first {
		t.Errorf("%s is planned twice", got)
	}
	if err := c.snapshot.ForgetPod(klog.Background(), sibling.Pod); err != nil {
		t.Fatal(err)
	}
	if got := names(c.planned()[0])[0]; got != first {
		t.Errorf("%s is planned, want %s again", got, first)
	}
}

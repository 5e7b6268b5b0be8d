package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	"github.com/muster-sched/muster/podgroup"
)

// The scenarios say what becomes of gangs that ask for a topology, whichever API expresses a gang.
//
// A scenario is a cluster (racks of nodes), one gang (minMember, annotations, roles of equal pods), and steps. The
// first step makes the gang, each further step changes something first (its do). A step then expects that so many
// members are bound, that their places please its where, and that the gang or one of its pods says its words.
//
// To run the table in another mode, implement mode (how a gang is made, how a pod joins it, how it says that it
// is refused, how the mode's scheduler is started) and call playScenarios(t, yourMode{}). A scenario that a mode
// cannot express has the reason in unfit, by the mode's name; the runner logs it as skipped.
type scenario struct {
	name  string
	racks []rack
	gang  gang
	steps []step
	unfit map[string]string
}

// rack is nodes of 8 GPUs named <rack>-0 and so on, labelled with zone and rack unless these are "".
type rack struct {
	name  string // the nodes' prefix, and the rack's label unless unlabelled
	zone  string
	nodes int
	// busy is how many of the nodes, from the first, other pods have taken whole.
	busy       int
	unlabelled bool
}

// gang is what is to be placed together.
type gang struct {
	minMember   int
	annotations map[string]string
	roles       []role
}

// role is equal pods named <role>-0 and so on, with the completion index of a Job unless plain.
type role struct {
	name        string
	count, gpus int
	annotations map[string]string
	plain       bool
	// from is the first index; names and indices go on from there.
	from   int
	change func(*corev1.Pod)
}

// step is a change and what becomes of it.
type step struct {
	what string
	// do changes something; nil in the first step, which makes the gang.
	do func(*performance)
	// bound is how many members have their place in the end.
	bound int
	// where says what is wrong with the members' places, or "".
	where func(places) string
	// says are words of the refusal; of the gang's, or of the pod's whose name is by.
	says []string
	by   string
}

// stand is where a member stands.
type stand struct {
	node, rack, zone string
}

// places are the bound members by pod name.
type places map[string]stand

// mode is a way to express gangs to a scheduler.
type mode interface {
	name() string
	// start starts the mode's scheduler with the two levels of the scenarios, and leaves the shared one running
	// again when the test ends.
	start(s *scene)
	// restart ends that scheduler and starts it again.
	restart(s *scene)
	// create makes the object that stands for a gang of the name "gang"; annotate sets annotations on it, or
	// removes them where the value is "".
	create(s *scene, minMember int, annotations map[string]string)
	annotate(s *scene, annotations map[string]string)
	// join makes a pod a member, before it is created.
	join(pod *corev1.Pod)
	// refusal returns why the gang is refused, "" while it is not.
	refusal(s *scene) string
}

const (
	zoneLevel = corev1.LabelTopologyZone
	rackLevel = controlplane.RackLabel
	hostLevel = corev1.LabelHostname
)

func required(level string) map[string]string {
	return map[string]string{podgroup.RequiredTopologyAnnotation: level}
}

func preferred(level string) map[string]string {
	return map[string]string{podgroup.PreferredTopologyAnnotation: level}
}

func sliced(level string, size int) map[string]string {
	return map[string]string{podgroup.SliceRequiredTopologyAnnotation: level, podgroup.SliceSizeAnnotation: fmt.Sprint(size)}
}

func both(a, b map[string]string) map[string]string {
	c := maps.Clone(a)
	maps.Copy(c, b)
	return c
}

// inOneRack wants all members in one rack, the given one if there is one.
func inOneRack(want ...string) func(places) string {
	return func(p places) string {
		racks := p.racks()
		if len(racks) != 1 || racks[0] == "" || len(want) > 0 && racks[0] != want[0] {
			return fmt.Sprintf("members are in racks %q, want one %v", racks, want)
		}
		return ""
	}
}

func inRacks(want ...string) func(places) string {
	return func(p places) string {
		if racks := p.racks(); !slices.Equal(racks, want) {
			return fmt.Sprintf("members are in racks %q, want %q", racks, want)
		}
		return ""
	}
}

// racks lists the racks that hold members, sorted.
func (p places) racks() []string {
	racks := map[string]bool{}
	for _, at := range p {
		racks[at.rack] = true
	}
	return slices.Sorted(maps.Keys(racks))
}

// slicesOf wants every size consecutive ranks of a role in one rack.
func slicesOf(role string, size int) func(places) string {
	return func(p places) string {
		for name, at := range p {
			var rank int
			if _, err := fmt.Sscanf(name, role+"-%d", &rank); err != nil {
				continue
			}
			for other := rank / size * size; other < (rank/size+1)*size; other++ {
				if o, ok := p[fmt.Sprintf("%s-%d", role, other)]; ok && (o.rack != at.rack || o.rack == "") {
					return fmt.Sprintf("slice %d of %s is in racks %q and %q", rank/size, role, at.rack, o.rack)
				}
			}
		}
		return ""
	}
}

// ranksInOrder wants the ranks of a role to run through the nodes of each rack in their order.
func ranksInOrder(role string, n int) func(places) string {
	return func(p places) string {
		for i := 1; i < n; i++ {
			a, b := p[fmt.Sprintf("%s-%d", role, i-1)], p[fmt.Sprintf("%s-%d", role, i)]
			if x, y := number(a.node), number(b.node); a.rack == b.rack && x > y {
				return fmt.Sprintf("rank %d is on %s and rank %d before it on %s", i-1, a.node, i, b.node)
			}
		}
		return ""
	}
}

// number is the number that a node's name ends in.
func number(node string) (n int) {
	fmt.Sscan(node[strings.LastIndex(node, "-")+1:], &n)
	return n
}

func on(pod, rack string) func(places) string {
	return func(p places) string {
		if p[pod].rack != rack {
			return fmt.Sprintf("%s is in rack %q, want %q", pod, p[pod].rack, rack)
		}
		return ""
	}
}

func all(conditions ...func(places) string) func(places) string {
	return func(p places) string {
		for _, c := range conditions {
			if why := c(p); why != "" {
				return why
			}
		}
		return ""
	}
}

// twoZones is two zones of two racks each, of so many nodes a rack.
func twoZones(nodes int) []rack {
	return []rack{
		{name: "a1", zone: "a", nodes: nodes}, {name: "a2", zone: "a", nodes: nodes},
		{name: "b1", zone: "b", nodes: nodes}, {name: "b2", zone: "b", nodes: nodes},
	}
}

// pod returns a role's pod of that index.
func (r *role) pod(s *scene, m mode, index int) *corev1.Pod {
	pod := s.pod(fmt.Sprintf("%s-%d", r.name, index), "", r.gpus)
	pod.Labels = map[string]string{memberLabel: pod.Name}
	pod.Annotations = r.annotations
	if !r.plain {
		pod.Labels[batchv1.JobCompletionIndexAnnotation] = fmt.Sprint(index)
	}
	if r.change != nil {
		r.change(pod)
	}
	m.join(pod)
	return pod
}

var scenarios = []scenario{
	{
		name:  "a required rack holds the gang though another has a freer node each",
		racks: []rack{{name: "a1", zone: "a", nodes: 2}, {name: "a2", zone: "a", nodes: 3}},
		gang:  gang{minMember: 3, annotations: required(rackLevel), roles: []role{{name: "worker", count: 3, gpus: 8}}},
		steps: []step{{what: "created", bound: 3, where: all(inOneRack("a2"), ranksInOrder("worker", 3))}},
	},
	{
		name:  "a required rack is not exceeded, and the gang starts when the rack is free",
		racks: []rack{{name: "a1", zone: "a", nodes: 3, busy: 1}, {name: "a2", zone: "a", nodes: 2}},
		gang:  gang{minMember: 3, annotations: required(rackLevel), roles: []role{{name: "worker", count: 3, gpus: 8}}},
		steps: []step{
			{what: "created", says: []string{"needs 3 members", "within one rack (" + rackLevel + ")", "has room for 2"}},
			{what: "room in a1", do: func(p *performance) { p.free("a1") }, bound: 3, where: inOneRack("a1")},
		},
	},
	{
		name:  "a preferred rack is kept where one holds the gang",
		racks: twoZones(3),
		gang:  gang{minMember: 3, annotations: preferred(rackLevel), roles: []role{{name: "worker", count: 3, gpus: 8}}},
		steps: []step{{what: "created", bound: 3, where: inOneRack()}},
	},
	{
		name:  "a preferred rack gives way to its zone before it gives way to the cluster",
		racks: []rack{{name: "a1", zone: "a", nodes: 3, busy: 1}, {name: "a2", zone: "a", nodes: 1}, {name: "b1", zone: "b", nodes: 2}, {name: "b2", zone: "b", nodes: 2}},
		gang:  gang{minMember: 4, annotations: preferred(rackLevel), roles: []role{{name: "worker", count: 4, gpus: 8}}},
		steps: []step{{what: "created", bound: 4, where: inRacks("b1", "b2")}},
	},
	{
		name:  "a required zone with a preferred rack",
		racks: []rack{{name: "a1", zone: "a", nodes: 2}, {name: "a2", zone: "a", nodes: 2}, {name: "b1", zone: "b", nodes: 3}},
		gang: gang{minMember: 4, annotations: both(required(zoneLevel), preferred(rackLevel)),
			roles: []role{{name: "worker", count: 4, gpus: 8}}},
		steps: []step{{what: "created", bound: 4, where: inRacks("a1", "a2")}},
	},
	{
		name:  "slices stay whole, ranks in order as numbers, where racks could hold more of them torn",
		racks: []rack{{name: "a1", zone: "a", nodes: 5}, {name: "a2", zone: "a", nodes: 5}, {name: "a3", zone: "a", nodes: 4}},
		gang: gang{minMember: 12, annotations: sliced(rackLevel, 4),
			roles: []role{{name: "worker", count: 12, gpus: 8}}},
		steps: []step{{what: "created", bound: 12, where: all(slicesOf("worker", 4), ranksInOrder("worker", 12), inRacks("a1", "a2", "a3"))}},
	},
	{
		name:  "slices that would have to be torn are refused",
		racks: []rack{{name: "a1", zone: "a", nodes: 6}, {name: "a2", zone: "a", nodes: 6}},
		gang:  gang{minMember: 12, roles: []role{{name: "worker", count: 12, gpus: 8, annotations: sliced(rackLevel, 4)}}},
		steps: []step{
			{what: "created", says: []string{"needs 12 members"}},
			{what: "another rack", do: func(p *performance) { p.add(rack{name: "a3", zone: "a", nodes: 4}) }, bound: 12, where: slicesOf("worker", 4)},
		},
	},
	{
		name:  "a replaced member comes back to its slice, however free other racks are",
		racks: []rack{{name: "a1", zone: "a", nodes: 2}, {name: "a2", zone: "a", nodes: 2}, {name: "a3", zone: "a", nodes: 2}},
		gang:  gang{minMember: 4, annotations: sliced(rackLevel, 2), roles: []role{{name: "worker", count: 4, gpus: 8}}},
		steps: []step{
			{what: "created", bound: 4, where: slicesOf("worker", 2)},
			{what: "rank 3 is replaced", do: func(p *performance) { p.replace("worker", 3) }, bound: 4, where: slicesOf("worker", 2)},
			{what: "rank 0 is replaced after a restart", do: func(p *performance) { p.restart(); p.replace("worker", 0) }, bound: 4, where: slicesOf("worker", 2)},
		},
	},
	{
		name:  "launcher and workers share one rack",
		racks: []rack{{name: "a1", zone: "a", nodes: 2}, {name: "a2", zone: "a", nodes: 3}},
		gang: gang{minMember: 4, annotations: required(rackLevel), roles: []role{
			{name: "launcher", count: 1, gpus: 1, change: outsideJob}, {name: "worker", count: 3, gpus: 7}}},
		steps: []step{{what: "created", bound: 4, where: inOneRack("a2")}},
	},
	{
		name:  "the workers' rack is theirs, the launcher goes beside them where it fits",
		racks: []rack{{name: "a1", zone: "a", nodes: 3}, {name: "a2", zone: "a", nodes: 1}},
		gang: gang{minMember: 4, roles: []role{
			{name: "launcher", count: 1, gpus: 1}, {name: "worker", count: 3, gpus: 8, annotations: required(rackLevel)}}},
		steps: []step{{what: "created", bound: 4, where: all(on("worker-0", "a1"), on("worker-2", "a1"), on("launcher-0", "a2"))}},
	},
	{
		name:  "a late member waits for its rack and says so, and does not spill",
		racks: []rack{{name: "a1", zone: "a", nodes: 3}, {name: "a2", zone: "a", nodes: 2}},
		gang:  gang{minMember: 3, annotations: required(rackLevel), roles: []role{{name: "worker", count: 3, gpus: 8}}},
		steps: []step{
			{what: "created", bound: 3, where: inOneRack("a1")},
			{what: "one more", do: func(p *performance) { p.join(role{name: "worker", from: 3, count: 1, gpus: 8}) }, bound: 3, by: "worker-3", says: []string{"beside 3 placed", "within one rack (" + rackLevel + ")", "rack a1 is full"}},
			{what: "a node for the rack", do: func(p *performance) { p.add(rack{name: "a1", zone: "a", nodes: 1}) }, bound: 4, where: inOneRack("a1")},
		},
	},
	{
		name:  "a required rack is kept by a scheduler that has just started",
		racks: []rack{{name: "a1", zone: "a", nodes: 3}, {name: "a2", zone: "a", nodes: 3}},
		gang:  gang{minMember: 2, annotations: required(rackLevel), roles: []role{{name: "worker", count: 2, gpus: 8}}},
		steps: []step{
			{what: "created", bound: 2, where: inOneRack()},
			{what: "two more after a restart", do: func(p *performance) { p.restart(); p.join(role{name: "worker", from: 2, count: 2, gpus: 8}) },
				bound: 3, where: inOneRack(), by: "worker-3", says: []string{"beside 3 placed", "within one rack (" + rackLevel + ")"}},
		},
	},
	{
		name:  "as many extra members as the rack holds",
		racks: []rack{{name: "a1", zone: "a", nodes: 4}, {name: "a2", zone: "a", nodes: 1}},
		gang:  gang{minMember: 2, annotations: required(rackLevel), roles: []role{{name: "worker", count: 6, gpus: 8}}},
		steps: []step{{what: "created", bound: 4, where: all(inOneRack("a1"), on("worker-3", "a1"))}},
	},
	{
		name:  "nodes without the rack's label are in no rack",
		racks: []rack{{name: "a1", zone: "a", nodes: 1}, {name: "a2", zone: "a", nodes: 3, unlabelled: true}},
		gang:  gang{minMember: 2, annotations: required(rackLevel), roles: []role{{name: "worker", count: 2, gpus: 8}}},
		steps: []step{
			{what: "created", says: []string{"needs 2 members", "the only rack a1 has room for 1", "no label " + rackLevel}},
			{what: "the label", do: func(p *performance) { p.label("a2", map[string]string{rackLevel: "a2"}) }, bound: 2, where: inOneRack("a2")},
		},
	},
	{
		name:  "Kueue's annotations alone",
		racks: []rack{{name: "a1", zone: "a", nodes: 2}, {name: "a2", zone: "a", nodes: 3}},
		gang: gang{minMember: 3, roles: []role{{name: "worker", count: 3, gpus: 8,
			annotations: map[string]string{"kueue.x-k8s.io/podset-required-topology": rackLevel}}}},
		steps: []step{{what: "created", bound: 3, where: inOneRack("a2")}},
	},
	{
		name:  "Kueue's slices and its preferred level",
		racks: []rack{{name: "a1", zone: "a", nodes: 3}, {name: "a2", zone: "a", nodes: 3}},
		gang: gang{minMember: 4, roles: []role{{name: "worker", count: 4, gpus: 8, annotations: map[string]string{
			"kueue.x-k8s.io/podset-preferred-topology":      zoneLevel,
			"kueue.x-k8s.io/podset-slice-required-topology": rackLevel,
			"kueue.x-k8s.io/podset-slice-size":              "2",
		}}}},
		steps: []step{{what: "created", bound: 4, where: slicesOf("worker", 2)}},
	},
	{
		name:  "Kueue's podset group is one set",
		racks: []rack{{name: "a1", zone: "a", nodes: 2}, {name: "a2", zone: "a", nodes: 3}},
		gang: gang{minMember: 3, roles: []role{
			{name: "leader", count: 1, gpus: 8, annotations: podSetGroup}, {name: "worker", count: 2, gpus: 8, annotations: podSetGroup, plain: true}}},
		steps: []step{{what: "created", bound: 3, where: inOneRack("a2")}},
	},
	{
		name:  "an unknown level is refused by name until it is put right",
		racks: twoZones(2),
		gang:  gang{minMember: 2, annotations: required("example.com/rak"), roles: []role{{name: "worker", count: 2, gpus: 8}}},
		steps: []step{
			{what: "created", says: []string{podgroup.RequiredTopologyAnnotation, "the PodGroup", `"example.com/rak"`, zoneLevel + ", " + rackLevel + ", " + hostLevel}},
			{what: "corrected", do: func(p *performance) { p.annotate(required(rackLevel)) }, bound: 2, where: inOneRack()},
		},
	},
	{
		name:  "two dialects that contradict each other",
		racks: twoZones(2),
		gang: gang{minMember: 2, roles: []role{{name: "worker", count: 2, gpus: 8,
			annotations: both(required(rackLevel), map[string]string{"kueue.x-k8s.io/podset-required-topology": zoneLevel})}}},
		steps: []step{
			{what: "created", says: []string{podgroup.RequiredTopologyAnnotation, `pod "worker-0"`, rackLevel, "kueue.x-k8s.io/podset-required-topology", zoneLevel}},
			{what: "corrected", do: func(p *performance) {
				for _, pod := range []string{"worker-0", "worker-1"} {
					p.annotatePod(pod, map[string]string{"kueue.x-k8s.io/podset-required-topology": rackLevel})
				}
			}, bound: 2, where: inOneRack()},
		},
	},
	{
		name:  "a preferred level outside the required one",
		racks: twoZones(2),
		gang:  gang{minMember: 2, annotations: both(required(rackLevel), preferred(zoneLevel)), roles: []role{{name: "worker", count: 2, gpus: 8}}},
		steps: []step{{what: "created", says: []string{podgroup.PreferredTopologyAnnotation, zoneLevel, "not inside", rackLevel}}},
	},
	{
		name:  "a slice level outside the required one",
		racks: twoZones(2),
		gang: gang{minMember: 2, annotations: required(rackLevel),
			roles: []role{{name: "worker", count: 2, gpus: 8, annotations: sliced(zoneLevel, 2)}}},
		steps: []step{{what: "created", says: []string{podgroup.SliceRequiredTopologyAnnotation, `pod "worker-0"`, zoneLevel, "not inside", rackLevel}}},
	},
	{
		name:  "a slice size that does not divide the gang",
		racks: twoZones(2),
		gang:  gang{minMember: 4, annotations: sliced(rackLevel, 3), roles: []role{{name: "worker", count: 4, gpus: 8}}},
		steps: []step{{what: "created", says: []string{podgroup.SliceSizeAnnotation, `"3"`, "minMember, which is 4"}}},
	},
	{
		name:  "a slice size without a slice level",
		racks: twoZones(2),
		gang: gang{minMember: 2, annotations: map[string]string{podgroup.SliceSizeAnnotation: "2"},
			roles: []role{{name: "worker", count: 2, gpus: 8}}},
		steps: []step{
			{what: "created", says: []string{podgroup.SliceSizeAnnotation, podgroup.SliceRequiredTopologyAnnotation}},
			{what: "withdrawn", do: func(p *performance) { p.annotate(map[string]string{podgroup.SliceSizeAnnotation: ""}) }, bound: 2},
		},
	},
	{
		name:  "slices of pods that have no index",
		racks: twoZones(2),
		gang: gang{minMember: 2, annotations: sliced(rackLevel, 2), roles: []role{{name: "worker", count: 2, gpus: 8, plain: true,
			change: func(p *corev1.Pod) { p.Name, p.GenerateName = "", "worker-" }}}},
		steps: []step{{what: "created", says: []string{podgroup.SliceSizeAnnotation, "has no index"}}},
	},
}

var podSetGroup = map[string]string{
	"kueue.x-k8s.io/podset-required-topology": rackLevel,
	"kueue.x-k8s.io/podset-group-name":        "together",
}

// outsideJob makes a pod one without a Job's index.
func outsideJob(p *corev1.Pod) { delete(p.Labels, batchv1.JobCompletionIndexAnnotation) }

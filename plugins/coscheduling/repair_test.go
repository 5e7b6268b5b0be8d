package coscheduling

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// onNode is the member of that number of the gang of the tests, with 8 GPUs on a node.
func onNode(i int, node string) *corev1.Pod {
	return stage.Pod(i, 8).Label(v1alpha1.GroupLabel, testKey.Name).SchedulerName("test").Node(node).Obj()
}

// newRepairPlay is a play with a gang of which member i is on the node of that index. The snapshot is that of after
// the loss of some of them, to which the plugin's informers have yet to come.
func newRepairPlay(t *testing.T, minMember int32, members []string, lost []int, nodes ...*corev1.Node) (*play, []*corev1.Pod) {
	t.Helper()
	var pods, left []*corev1.Pod
	for i, node := range members {
		pods = append(pods, onNode(i, node))
		if !slices.Contains(lost, i) {
			left = append(left, pods[i])
		}
	}
	p := newPlayBeside(t, left, nodes...)
	p.cluster = gangplan.NewCluster([]string{"rack"})
	p.cluster.Sync(p.nodes)
	p.group(minMember)
	for _, pod := range pods {
		p.see(nil, pod)
	}
	p.inLine()
	return p, pods
}

// lose lets a pod go: first from the scheduler's sight, then from the index of members.
func (p *play) lose(pods ...*corev1.Pod) {
	p.t.Helper()
	for _, pod := range pods {
		p.unsee(pod)
		p.podDeleted(p.logger, pod)
	}
}

// unsee lets the scheduler see a pod no more.
func (p *play) unsee(pod *corev1.Pod) {
	p.t.Helper()
	if err := p.handle.SharedInformerFactory().Core().V1().Pods().Informer().GetStore().Delete(pod); err != nil {
		p.t.Fatal(err)
	}
	p.vanished(p.logger, pod)
}

// late is a new member of the gang of the tests.
func (p *play) late(i int) *corev1.Pod {
	p.t.Helper()
	return p.see(nil, stage.Pod(i, 8).Label(v1alpha1.GroupLabel, testKey.Name).SchedulerName("test").Obj())
}

// kept lists the nodes where room is kept for replacements.
func (p *play) kept() []string {
	if h := p.holds.of(holdOwner{testKey, repairHold}); h != nil {
		return nodesOf(h.claims)
	}
	return nil
}

func (p *play) mustKeep(want ...string) {
	p.t.Helper()
	if got := p.kept(); !slices.Equal(got, want) {
		p.t.Fatalf("room is kept on %v, want %v", got, want)
	}
}

func binds(pod *corev1.Pod, node string) *corev1.Pod {
	return with(pod, func(pod *corev1.Pod) { pod.Spec.NodeName = node })
}

func TestRoomOfALostMemberIsForItsReplacement(t *testing.T) {
	p, pods := newRepairPlay(t, 3, []string{"n0", "n1", "n2"}, []int{2}, stage.Nodes(3, 8)...)
	recorder := &events.FakeRecorder{Events: make(chan string, 1)}
	p.report.recorder = recorder
	p.leads.Store(true)
	p.lose(pods[2])
	p.mustKeep("n2")
	if e := <-recorder.Events; !strings.Contains(e, ReasonMemberLost) || !strings.Contains(e, `"m-2" on node "n2"`) {
		t.Errorf("event %q", e)
	}
	newcomer := p.otherGang(1)[0]
	if node, _ := p.turn(newcomer); node != "" {
		t.Fatalf("a newcomer is placed on %s", node)
	}
	if status := p.filter(stage.Pod(50, 8).Obj(), "n2"); status.IsSuccess() {
		t.Error("a pod without a gang may use the room")
	}
	if status := p.Reserve(p.ctx, framework.NewCycleState(), stage.Pod(50, 8).Obj(), "n2"); status.IsSuccess() {
		t.Error("a pod without a gang that was filtered before may take the room")
	}
	if status := p.filter(stage.Pod(51, 8).Priority(1).Obj(), "n2"); !status.IsSuccess() {
		t.Errorf("a pod of higher priority may not: %v", status)
	}
	replacement := p.late(3)
	p.inLine()
	if !p.follow(replacement) {
		t.Fatal("the replacement waits for others")
	}
	p.mustKeep()
	p.mustBeInLine("ns/m-3") // nobody else: the room was handed over, not freed
	p.see(replacement, binds(replacement, "n2"))
	if losses := p.repairs.byGang[testKey]; len(losses) != 0 || p.repairs.any.Load() {
		t.Errorf("%d losses are still known", len(losses))
	}
	p.unsee(pods[2]) // told again, late
	p.mustKeep()
}

// Whoever waits for the room of a lost member hears of its end when the room is kept already.
func TestRoomIsKeptBeforeAnybodyIsPutInLine(t *testing.T) {
	p, pods := newRepairPlay(t, 3, []string{"n0", "n1", "n2"}, []int{2}, stage.Nodes(3, 8)...)
	waiting := p.otherGang(1)[0]
	p.gangs.refuse(types.NamespacedName{Namespace: "ns", Name: "other"}, &refusal{representative: waiting.UID})
	if hint, err := p.podHelps(p.logger, waiting, pods[2], nil); err != nil || hint != fwk.Queue {
		t.Fatalf("%v, %v", hint, err)
	}
	p.mustKeep("n2")
	if node, _ := p.turn(waiting); node != "" {
		t.Errorf("placed on %s", node)
	}
}

func TestWhatIsNoLoss(t *testing.T) {
	now := metav1.Now()
	succeed := func(p *play, pod *corev1.Pod) *corev1.Pod {
		return p.see(pod, with(pod, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }))
	}
	for name, tc := range map[string]struct {
		minMember int32
		happen    func(p *play, pods []*corev1.Pod)
		want      []string
	}{
		"a member that finished":                           {3, func(p *play, pods []*corev1.Pod) { succeed(p, pods[2]); p.unsee(pods[2]) }, nil},
		"a member that finished, as the index shows later": {3, func(p *play, pods []*corev1.Pod) { p.unsee(pods[2]); succeed(p, pods[2]) }, nil},
		"a finished member whose pod is cleaned up": {3, func(p *play, pods []*corev1.Pod) {
			done := succeed(p, pods[2])
			p.unsee(pods[2])
			p.podDeleted(p.logger, done)
		}, nil},
		"a member above the minimum":   {2, func(p *play, pods []*corev1.Pod) { p.lose(pods[2]) }, nil},
		"the second above the minimum": {2, func(p *play, pods []*corev1.Pod) { p.lose(pods[2], pods[1]) }, []string{"n1"}},
		"a member that is still going": {3, func(p *play, pods []*corev1.Pod) {
			p.see(pods[2], with(pods[2], func(pod *corev1.Pod) { pod.DeletionTimestamp = &now }))
		}, nil},
		"all members": {3, func(p *play, pods []*corev1.Pod) { p.lose(pods...) }, nil},
		"a member, and the others are being deleted": {3, func(p *play, pods []*corev1.Pod) {
			p.lose(pods[2])
			for _, pod := range pods[:2] {
				p.see(pod, with(pod, func(pod *corev1.Pod) { pod.DeletionTimestamp = &now }))
			}
		}, nil},
		"a failed member": {3, func(p *play, pods []*corev1.Pod) {
			p.see(pods[2], with(pods[2], func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }))
			p.unsee(pods[2])
		}, []string{"n2"}},
		"two members": {3, func(p *play, pods []*corev1.Pod) { p.lose(pods[0], pods[2]) }, []string{"n0", "n2"}},
		"a member, and the minimum is lowered": {3, func(p *play, pods []*corev1.Pod) {
			p.lose(pods[2])
			p.change(func(g *v1alpha1.PodGroup) { g.Spec.MinMember = 2 })
		}, nil},
		"a member, and the group is deleted": {3, func(p *play, pods []*corev1.Pod) {
			p.lose(pods[2])
			group := p.Coscheduling.group(testKey)
			if err := p.groups.Delete(group); err != nil {
				p.t.Fatal(err)
			}
			p.groupDeleted(p.logger, group)
		}, nil},
		"a member, and somebody else binds another": {3, func(p *play, pods []*corev1.Pod) {
			p.lose(pods[2])
			p.see(nil, onNode(7, "n1"))
		}, nil},
		"a member of a gang that keeps nothing": {3, func(p *play, pods []*corev1.Pod) {
			*p.args.RepairTimeoutSeconds = 0
			p.lose(pods[2])
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p, pods := newRepairPlay(t, tc.minMember, []string{"n0", "n1", "n2"}, nil, stage.Nodes(3, 8)...)
			tc.happen(p, pods)
			p.mustKeep(tc.want...)
			if got := p.repairs.any.Load(); got != (tc.want != nil) {
				t.Errorf("losses are known: %v", got)
			}
		})
	}
}

// change changes the PodGroup of the tests.
func (p *play) change(change func(*v1alpha1.PodGroup)) {
	p.t.Helper()
	old := p.Coscheduling.group(testKey)
	now := old.DeepCopy()
	change(now)
	if err := p.groups.Update(now); err != nil {
		p.t.Fatal(err)
	}
	p.groupChanged(p.logger, old, now)
}

func TestRoomIsKeptForSoLong(t *testing.T) {
	for annotation, want := range map[string]time.Duration{"": 10 * time.Minute, "90s": 90 * time.Second, "0": 10 * time.Minute, "soon": 10 * time.Minute} {
		p, pods := newRepairPlay(t, 3, []string{"n0", "n1", "n2"}, []int{1, 2}, stage.Nodes(3, 8)...)
		if annotation != "" {
			p.change(func(g *v1alpha1.PodGroup) {
				g.Annotations = map[string]string{podgroup.RendezvousTimeoutAnnotation: annotation}
			})
		}
		p.lose(pods[1])
		p.clock.Step(want / 2)
		p.lose(pods[2])
		p.mustKeep("n1", "n2")
		newcomer := p.otherGang(1)[0]
		if _, why := p.turn(newcomer); why == "" {
			t.Fatal("the newcomer is placed")
		}
		p.inLine()
		p.clock.Step(want/2 - time.Second)
		p.mustBeInLine()
		p.clock.Step(time.Second)
		p.mustKeep("n2") // each loss has its own time
		p.mustBeInLine("ns/m-100")
		if node, why := p.turn(newcomer); node != "n1" {
			t.Errorf("%q: the newcomer goes to %q: %s", annotation, node, why)
		}
		p.clock.Step(want / 2)
		p.mustKeep()
	}
}

// A commit in which the replacement has its seat stands for the loss, until it is let go.
func TestRoomIsKeptAgainWhenTheReplacementLetsGo(t *testing.T) {
	p, pods := newRepairPlay(t, 4, []string{"n0", "n1", "n2", "n3"}, []int{2, 3}, stage.Nodes(4, 8)...)
	p.lose(pods[2], pods[3])
	p.mustKeep("n2", "n3")
	first, second := p.late(4), p.late(5)
	p.follow(first)
	p.mustKeep()
	if held := len(p.mustLeave(types.NamespacedName{}, stage.Pod(50, 8).Obj())); held != 1 {
		t.Errorf("%d places are kept beside the reserved one, want 1", held)
	}
	p.podDeleted(p.logger, second)
	p.mustKeep("n2", "n3")
	// The next of its kind takes over.
	p.Unreserve(p.ctx, framework.NewCycleState(), first, "n2")
	third := p.late(6)
	p.clock.Step(firstRetry)
	p.follow(first)
	if !p.follow(third) {
		t.Fatal("the last replacement waits for others")
	}
	p.mustKeep()
	for _, pod := range []*corev1.Pod{first, third} {
		p.see(pod, binds(pod, "n2"))
	}
	if p.repairs.any.Load() {
		t.Error("losses are still known")
	}
}

func TestMemberThatCouldNotBeBound(t *testing.T) {
	p := newPlay(t, stage.Nodes(3, 8)...)
	p.group(3)
	pods := p.wholeNodeMembers(3)
	p.follow(pods[0])
	p.follow(pods[1])
	if !p.follow(pods[2]) {
		t.Fatal("the gang is not committed")
	}
	node := p.gangs.placedNodes(testKey)[pods[1].UID]
	p.Unreserve(p.ctx, framework.NewCycleState(), pods[1], node)
	p.mustKeep(node)
	// The snapshot shows none of the members, and all nodes free.
	if node, _ := p.turn(p.otherGang(3)[0]); node != "" {
		t.Fatalf("a newcomer is placed on %s", node)
	}
	// It is its own replacement.
	if !p.follow(pods[1]) {
		t.Fatal("it waits for others")
	}
	p.mustKeep()
	p.Unreserve(p.ctx, framework.NewCycleState(), pods[1], node)
	p.mustKeep(node)
	p.follow(pods[1])
	p.see(pods[1], binds(pods[1], node))
	p.mustKeep()
	if p.repairs.any.Load() {
		t.Error("losses are still known")
	}
}

func TestNobodyBindsAtAll(t *testing.T) {
	p := newPlay(t, stage.Nodes(3, 8)...)
	p.group(3)
	pods := p.wholeNodeMembers(3)
	for _, pod := range pods {
		p.follow(pod)
	}
	for uid, node := range p.gangs.placedNodes(testKey) {
		i := slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return pod.UID == uid })
		p.Unreserve(p.ctx, framework.NewCycleState(), pods[i], node)
	}
	p.mustKeep() // nothing is held for a gang that has nothing
}

// racked is a node of 8 GPUs in a rack.
func racked(name string, change func(*corev1.Node)) *corev1.Node {
	node := stage.Node(name, 8).Label("rack", name[:1]).Obj()
	if change != nil {
		change(node)
	}
	return node
}

func TestRoomElsewhere(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   string
	}{
		"usable": {nil, "a1"},
		"tainted": {func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}
		}, "a2"},
		"cordoned": {func(n *corev1.Node) { n.Spec.Unschedulable = true }, "a2"},
		"too small now": {func(n *corev1.Node) {
			n.Status.Allocatable = n.Status.Allocatable.DeepCopy()
			n.Status.Allocatable[stage.GPU] = *n.Status.Allocatable.Pods()
			delete(n.Status.Allocatable, stage.GPU)
		}, "a2"},
	} {
		t.Run(name, func(t *testing.T) {
			p, pods := newRepairPlay(t, 2, []string{"a0", "a1"}, []int{1},
				racked("a0", nil), racked("a1", tc.change), racked("a2", nil), racked("b0", nil))
			p.ask(requireTopology("rack"))
			p.lose(pods[1])
			// Whoever comes first finds the room kept, in the gang's rack.
			if _, status := p.PreFilter(p.ctx, framework.NewCycleState(), stage.Pod(50, 8).Obj(), p.nodes); status.Code() == fwk.Error {
				t.Fatal(status.AsError())
			}
			p.mustKeep(tc.want)
			newcomer := p.otherGang(1)[0]
			if node, _ := p.turn(newcomer); node == tc.want {
				t.Errorf("the newcomer is placed on %s", node)
			}
			if node, why := p.turn(p.late(9)); node != tc.want {
				t.Errorf("the replacement goes to %q: %s", node, why)
			}
		})
	}
}

// A member that is being deleted on a node which nobody can use may take for ever.
func TestMemberOnALostNode(t *testing.T) {
	p, pods := newRepairPlay(t, 2, []string{"a0", "a1"}, nil, racked("a0", nil),
		racked("a1", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
		}), racked("a2", nil))
	now := metav1.Now()
	p.see(pods[1], with(pods[1], func(pod *corev1.Pod) { pod.DeletionTimestamp = &now }))
	p.rehouse(p.ctx, p.nodes)
	p.mustKeep("a2")
	p.lose(pods[1])
	p.mustKeep("a2")
}

// Room that is not there yet is kept as soon as it is, and is not sought before.
func TestRoomIsSoughtWhenItMayBeThere(t *testing.T) {
	p, pods := newRepairPlay(t, 2, []string{"a0", "a1"}, []int{1}, racked("a0", nil), racked("a1", func(n *corev1.Node) { n.Spec.Unschedulable = true }))
	p.lose(pods[1])
	if !p.repairs.seeking.Load() {
		t.Fatal("no room is sought")
	}
	p.rehouse(p.ctx, p.nodes)
	p.mustKeep()
	if p.repairs.seeking.Load() {
		t.Fatal("room is sought again at once")
	}
	p.nodeChanged(p.logger, nil, stage.Node("small", 4).Obj())
	p.vanished(p.logger, stage.Pod(60, 1).Node("a0").Obj())
	if p.repairs.seeking.Load() {
		t.Error("sought although nothing helps")
	}
	// Whoever waits for the node hears of it when the room is about to be sought.
	waiting := p.otherGang(1)[0]
	if _, err := p.nodeHelps(p.logger, waiting, nil, racked("a3", nil)); err != nil || !p.repairs.seeking.Load() {
		t.Errorf("not sought although a node came: %v", err)
	}
}

// A change may be told before the snapshot shows it, and once more when it does: it is to be looked for again.
func TestRoomIsSoughtAgainWhenToldAgain(t *testing.T) {
	for name, tell := range map[string]func(*play, *corev1.Node, *corev1.Pod){
		"a node": func(p *play, node *corev1.Node, _ *corev1.Pod) { p.nodeMayHouse(nil, node) },
		"a pod":  func(p *play, _ *corev1.Node, pod *corev1.Pod) { p.vanished(p.logger, pod) },
	} {
		t.Run(name, func(t *testing.T) {
			stays := stage.Pod(60, 8).Node("a2").Obj()
			p := newPlayBeside(t, []*corev1.Pod{onNode(0, "a0"), stays}, racked("a0", nil), racked("a1", func(n *corev1.Node) { n.Spec.Unschedulable = true }), racked("a2", nil))
			p.cluster = gangplan.NewCluster([]string{"rack"})
			p.cluster.Sync(p.nodes)
			p.group(2)
			lost := onNode(1, "a1")
			p.see(nil, onNode(0, "a0"))
			p.see(nil, lost)
			p.lose(lost)
			node := racked("a3", nil)
			losses, changes := p.repairs.byGang[testKey], p.repairs.changes
			tell(p, node, stays)
			if err := p.unhoused(losses, changes, nil, nil); err != nil || !p.repairs.seeking.Load() {
				t.Fatalf("told while room was sought in vain, and it is not sought again: %v", err)
			}
			for again := range 3 {
				p.rehouse(p.ctx, p.nodes)
				if p.repairs.seeking.Load() {
					t.Fatalf("%d: room is sought again at once", again)
				}
				if tell(p, node, stays); !p.repairs.seeking.Load() {
					t.Fatalf("%d: no room is sought", again)
				}
			}
		})
	}
}

func TestRoomMovesWhenItsNodeIsOfNoUse(t *testing.T) {
	nodes := []*corev1.Node{racked("a0", nil), racked("a1", nil), racked("a2", nil)}
	p, pods := newRepairPlay(t, 2, []string{"a0", "a1"}, []int{1}, nodes...)
	p.lose(pods[1])
	p.mustKeep("a1")
	p.nodeChanged(p.logger, nodes[1], nodes[1].DeepCopy())
	p.mustKeep("a1")
	p.nodeChanged(p.logger, nodes[1], nil)
	p.mustKeep()
	p.rehouse(p.ctx, p.nodes)
	if kept := p.kept(); len(kept) != 1 {
		t.Errorf("room is kept on %v", kept)
	}
}

// A node that is not ready for a while takes nobody's place away: taints come and go.
func TestNodeThatBlips(t *testing.T) {
	nodes := stage.Nodes(3, 8)
	p, pods := newRepairPlay(t, 3, []string{"n0", "n1", "n2"}, nil, nodes...)
	waiting := p.otherGang(1)[0]
	if _, why := p.turn(waiting); why == "" {
		t.Fatal("placed on a full node")
	}
	p.inLine()
	for range 3 {
		down := nodes[2].DeepCopy()
		down.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}
		p.showNode(down)
		p.nodeChanged(p.logger, nodes[2], down)
		unready := p.see(pods[2], with(pods[2], func(pod *corev1.Pod) {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
		}))
		p.showNode(nodes[2])
		p.nodeChanged(p.logger, down, nodes[2])
		pods[2] = p.see(unready, with(unready, func(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionTrue }))
	}
	if p.repairs.any.Load() || !p.holds.empty() {
		t.Error("room is kept")
	}
	p.mustBeInLine()
	if p.inRepair(testKey) {
		t.Error("the gang is taken for one in repair")
	}
}

// Whatever happens, no more is kept than a gang lacks, nothing for a gang that has nothing, nothing beyond its time,
// and nothing twice.
func TestRoomKeptIsBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const nodes, timeout = 6, 10 * time.Minute
		p := newPlay(t, stage.Nodes(nodes, 8)...)
		minMember := rapid.IntRange(1, 4).Draw(rt, "minMember")
		p.group(int32(minMember))
		var bound, waiting []*corev1.Pod
		next, lastLoss := 0, time.Duration(-timeout)
		take := func(t *rapid.T, from *[]*corev1.Pod, what string) *corev1.Pod {
			if len(*from) == 0 {
				t.Skip("there is none")
			}
			i := rapid.IntRange(0, len(*from)-1).Draw(t, what)
			pod := (*from)[i]
			*from = slices.Delete(*from, i, i+1)
			return pod
		}
		finished := 0
		rt.Repeat(map[string]func(*rapid.T){
			"bound": func(t *rapid.T) {
				bound = append(bound, p.see(nil, onNode(next, fmt.Sprintf("n%d", next%nodes))))
				next++
			},
			"created": func(t *rapid.T) {
				waiting = append(waiting, p.late(next))
				next++
			},
			"binds": func(t *rapid.T) {
				pod := take(t, &waiting, "waiting")
				bound = append(bound, p.see(pod, binds(pod, fmt.Sprintf("n%d", rapid.IntRange(0, nodes-1).Draw(t, "node")))))
			},
			"deleted": func(t *rapid.T) {
				pod := take(t, &bound, "bound")
				lastLoss = p.clock.now
				if rapid.Bool().Draw(t, "index first") {
					p.podDeleted(p.logger, pod)
					p.unsee(pod)
				} else {
					p.lose(pod)
				}
			},
			"finished": func(t *rapid.T) {
				pod := take(t, &bound, "bound")
				done := with(pod, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
				first := rapid.Bool().Draw(t, "index first")
				if first {
					p.podChanged(p.logger, pod, done)
				}
				p.unsee(pod)
				if !first {
					p.podChanged(p.logger, pod, done)
				}
				finished++
			},
			"time": func(t *rapid.T) { p.clock.Step(time.Duration(rapid.IntRange(1, 700).Draw(t, "seconds")) * time.Second) },
			"": func(t *rapid.T) {
				lacks := max(minMember-len(bound)-finished, 0)
				claims := 0
				if h := p.holds.of(holdOwner{testKey, repairHold}); h != nil {
					claims = len(h.claims)
				}
				switch {
				case claims > lacks:
					t.Fatalf("room is kept for %d members, and %d are missing", claims, lacks)
				case claims > 0 && len(bound) == 0:
					t.Fatal("room is kept for a gang that has none")
				case claims > 0 && p.clock.now-lastLoss >= timeout:
					t.Fatal("room is kept after its time")
				case claims == 0 && p.repairs.any.Load():
					t.Fatal("losses are known, and nothing is kept")
				}
			},
		})
	})
}

// A large gang whose members fail one after another, as they do when one of them is gone.
func BenchmarkCrash(b *testing.B) {
	const members = 1000
	for b.Loop() {
		b.StopTimer()
		pl, _ := waitingGangs(b, 1, 1)
		pl.args, pl.members, pl.groups = &Args{RepairTimeoutSeconds: ptr.To[int64](600)}, podgroup.NewMembership(), cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
		pl.report = &reporter{recorder: &events.FakeRecorder{}}
		group := &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: testKey.Namespace, Name: testKey.Name}}
		group.Spec.MinMember = members
		if err := pl.groups.Add(group); err != nil {
			b.Fatal(err)
		}
		if err := pl.handle.SharedInformerFactory().Core().V1().Nodes().Informer().GetStore().Add(stage.Node("n0", 8).Obj()); err != nil {
			b.Fatal(err)
		}
		pods := make([]*corev1.Pod, members)
		for i := range pods {
			pods[i] = onNode(i, "n0")
			pl.members.Update(pods[i])
		}
		b.StartTimer()
		for _, pod := range pods[1:] {
			pl.vanished(klog.Background(), pod)
			pl.members.Update(with(pod, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }))
			pl.reviewRepair(klog.Background(), testKey)
		}
		if n := len(pl.holds.of(holdOwner{testKey, repairHold}).claims); n != members-1 {
			b.Fatalf("room is kept for %d members", n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*(members-1)), "us/loss")
}

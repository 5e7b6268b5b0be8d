package simulation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/podgroup"
)

// machine is a cluster in the hands of rapid: its methods are what can happen.
type machine struct {
	c *Cluster
	i *inspector
	// steps counts what happened.
	steps int
	// made counts Jobs and nodes, so that names are never used twice.
	jobs, nodes int
	faults      []BindResult
	// hung is how many of the pods that are bound next do not come to run for a long time.
	hung   int
	random *rand.Rand
	// settled is set after a step from which everything followed.
	settled bool
	// declares is set if Jobs say how long they run.
	declares bool
}

// The most that there is at a time.
const (
	mostJobs  = 6
	mostNodes = 6
)

// variants are what is configured besides, mostly nothing.
var variants = []string{
	"", "", "",
	"reservation: {afterSeconds: 15, maxSeconds: 120}",
	fmt.Sprintf("provisioningWindowSeconds: %d", int(window.Seconds())),
}

// window is how long new nodes are held for a gang, in walks in which they are.
const window = 30 * time.Second

// rendezvous is the policy in the simulated clusters.
var rendezvous = podgroup.RendezvousPolicy{Timeout: 2 * time.Minute, Limit: 3, Backoff: 10 * time.Second, MaxBackoff: time.Minute}

func newMachine(t *rapid.T) *machine {
	m := &machine{}
	variant := rapid.SampledFrom(variants).Draw(t, "variant")
	m.declares = strings.HasPrefix(variant, "reservation")
	t.Logf("the plugin is configured like this: %q", variant)
	c, err := New(Options{
		Coscheduling: fmt.Sprintf("{topologyLevels: [block, rack], repairTimeoutSeconds: %d, %s}", int(roomKept.Seconds()), variant),
		GPUTopology:  "topologyLevels: [block, rack]",
		Binds:        m.binds,
		Choose:       m.choose,
		Delays:       m.delays,
		Rendezvous:   rendezvous,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.c = c
	m.i = inspect(c)
	c.Observe(func(e Event) {
		if e.Kind != Said && e.Kind != Reconciled {
			t.Logf("    %s", e)
		}
	})
	for range rapid.IntRange(1, 4).Draw(t, "nodes") {
		m.addNode(t)
	}
	m.settle(t)
	return m
}

// binds hands out the faults that are due.
func (m *machine) binds(pod *corev1.Pod) BindResult {
	if len(m.faults) == 0 {
		return BindSucceeds
	}
	fault := m.faults[0]
	m.faults = m.faults[1:]
	if fault == BindAnswerLost {
		m.i.unanswered.Insert(pod.UID)
		delete(m.i.onWay, pod.UID) // as far as the scheduler knows
	}
	return fault
}

// choose picks what is done next: in order, or at random.
func (m *machine) choose(n int) int {
	if m.random == nil {
		return 0
	}
	return m.random.IntN(n)
}

// delays lets pods hang that are to.
func (m *machine) delays(*corev1.Pod) time.Duration {
	if m.hung == 0 {
		return 0
	}
	m.hung--
	return time.Hour
}

func (m *machine) settle(t *rapid.T) {
	if err := m.c.Settle(); err != nil {
		t.Fatalf("spins: %v", err)
	}
	m.settled = true
}

// advance lets the time pass.
func (m *machine) advance(t *rapid.T, d time.Duration) {
	if err := m.c.Advance(d); err != nil {
		t.Fatalf("spins: %v", err)
	}
	m.settled = true
}

// Check is what must hold after every step.
func (m *machine) Check(t *rapid.T) {
	m.i.note()
	m.i.always()
	if m.settled && m.c.held.Len() == 0 {
		m.i.atRest()
	}
	m.settled = false
	for _, problem := range m.i.problems {
		t.Errorf("%s", problem)
	}
	m.i.problems = nil
}

// follow lets some or all of what a step caused happen.
func (m *machine) follow(t *rapid.T) {
	m.steps++
	n := rapid.SampledFrom([]int{-1, -1, -1, 0, 1, 2, 3, 5, 8, 13}).Draw(t, "then")
	if n < 0 {
		m.settle(t)
		return
	}
	m.settled = false
	for range n {
		m.c.Step()
	}
	t.Logf("  ... only %d things follow at once", n)
}

func (m *machine) addNode(t *rapid.T) {
	m.nodes++
	block := rapid.IntRange(0, 1).Draw(t, "block")
	rack := rapid.IntRange(0, 1).Draw(t, "rack")
	gpus := rapid.SampledFrom([]int64{4, 8}).Draw(t, "gpus")
	node := testNode(fmt.Sprintf("n%d", m.nodes), fmt.Sprintf("b%d", block), fmt.Sprintf("b%d-r%d", block, rack), gpus)
	t.Logf("node %s joins, in rack %s of block %s, with %d GPUs", node.Name, node.Labels["rack"], node.Labels["block"], gpus)
	m.c.AddNode(node)
}

// AddNode adds a node.
func (m *machine) AddNode(t *rapid.T) {
	if len(m.c.api.nodes) >= mostNodes {
		t.Skip("enough")
	}
	m.addNode(t)
	m.follow(t)
}

// actions are all that can happen, some of it more often.
func (m *machine) actions() map[string]func(*rapid.T) {
	actions := rapid.StateMachineActions(m)
	for _, again := range []string{"SubmitGang", "Outrank", "Wait"} {
		actions[again+" again"] = actions[again]
	}
	return actions
}

// someNode draws one of the nodes that are chosen.
func (m *machine) someNode(t *rapid.T, which func(*corev1.Node) bool) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(m.c.api.nodes)) {
		if which(m.c.api.nodes[name]) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		t.Skip("none")
	}
	return rapid.SampledFrom(names).Draw(t, "node")
}

// LoseNode cuts a node off.
func (m *machine) LoseNode(t *rapid.T) {
	name := m.someNode(t, func(node *corev1.Node) bool { return m.c.works(node.Name) })
	t.Logf("node %s is lost", name)
	m.c.LoseNode(name)
	m.follow(t)
}

// ReturnNode brings one back.
func (m *machine) ReturnNode(t *rapid.T) {
	name := m.someNode(t, func(node *corev1.Node) bool { return !m.c.works(node.Name) })
	t.Logf("node %s is back", name)
	m.c.ReturnNode(name)
	m.follow(t)
}

// RemoveNode deletes a node.
func (m *machine) RemoveNode(t *rapid.T) {
	name := m.someNode(t, func(*corev1.Node) bool { return true })
	t.Logf("node %s is deleted", name)
	m.c.RemoveNode(name)
	m.follow(t)
}

// Cordon cordons or uncordons a node.
func (m *machine) Cordon(t *rapid.T) {
	name := m.someNode(t, func(*corev1.Node) bool { return true })
	cordoned := !m.c.api.nodes[name].Spec.Unschedulable
	t.Logf("node %s is cordoned: %v", name, cordoned)
	m.c.Cordon(name, cordoned)
	m.follow(t)
}

// Restart kills the scheduler, and mostly starts another one at once.
func (m *machine) Restart(t *rapid.T) {
	if m.c.process != nil {
		seed := rapid.Uint64Range(0, 3).Draw(t, "bindings on their way")
		t.Logf("the scheduler is killed")
		n := uint64(0)
		m.c.Kill(func(*corev1.Pod) bool { n++; return seed>>(n%2)&1 == 1 })
	}
	if rapid.IntRange(0, 3).Draw(t, "stays dead") == 3 {
		t.Logf("  ... and stays dead")
	} else {
		m.start(t)
	}
	m.follow(t)
}

func (m *machine) start(t *rapid.T) {
	if err := m.c.Start(); err != nil {
		t.Fatal(err)
	}
}

// Hold keeps a kind of work from being done, or lets it go again.
func (m *machine) Hold(t *rapid.T) {
	w := rapid.SampledFrom([]Work{ShowMember, ShowPod, ShowPodGroup, ShowNode, GoOnBinding, MakePod, WriteConditions, Reconcile, Schedule}).Draw(t, "work")
	if m.c.held.Has(w) {
		t.Logf("%v goes on", w)
		m.c.LetGo(w)
	} else {
		t.Logf("%v halts", w)
		m.c.Hold(w)
	}
	m.follow(t)
}

// Relist makes a watch of the scheduler start again.
func (m *machine) Relist(t *rapid.T) {
	if m.c.process == nil {
		t.Skip("dead")
	}
	w := rapid.SampledFrom([]Work{ShowMember, ShowPodGroup}).Draw(t, "watch")
	t.Logf("%v: the watch starts again", w)
	m.c.Relist(w)
	m.follow(t)
}

// FailBindings makes the next bindings fail.
func (m *machine) FailBindings(t *rapid.T) {
	n := rapid.IntRange(1, 3).Draw(t, "bindings")
	fault := rapid.SampledFrom([]BindResult{BindFails, BindAnswerLost}).Draw(t, "how")
	m.faults = nil
	for range n {
		m.faults = append(m.faults, rapid.SampledFrom([]BindResult{fault, BindSucceeds}).Draw(t, "binding"))
	}
	t.Logf("the next bindings end like this: %v (0 succeeds, 1 fails, 2 answer lost)", m.faults)
	m.steps++
}

// Interleave changes the order in which things are done.
func (m *machine) Interleave(t *rapid.T) {
	seed := rapid.Uint64Range(0, 1000).Draw(t, "order")
	if seed == 0 {
		m.random = nil
	} else {
		m.random = rand.New(rand.NewPCG(seed, 0))
	}
	t.Logf("things happen in order %d", seed)
	m.steps++
}

// Wait lets the time pass.
func (m *machine) Wait(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{time.Second, 3 * time.Second, 10 * time.Second, time.Minute, 6 * time.Minute}).Draw(t, "time")
	t.Logf("%v pass", d)
	m.steps++
	m.advance(t, d)
}

// Quiet lets everything go on, waits until all was tried again, and looks whether all is as it should be.
func (m *machine) Quiet(t *rapid.T) {
	t.Logf("all goes on, undisturbed")
	m.steps++
	for w := range Work(works) {
		m.c.LetGo(w)
	}
	m.faults, m.hung = nil, 0
	m.start(t)
	for began := m.c.clock.Now(); ; {
		m.advance(t, retried)
		now := m.c.clock.Now()
		if now.Sub(m.i.lastLoss) > roomKept && !m.i.underWay() && m.i.commitsEnd(now, began) {
			break
		}
		if now.Sub(began) > calm {
			t.Fatalf("pods are lost for ever")
		}
	}
	m.i.quiet()
}

const (
	// slowStop is the longest that pods take to end.
	slowStop = time.Minute
	// retried is how long it takes at most until everything was tried again that failed.
	retried = 30 * time.Second
	// roomKept is how long the room of a lost member is kept.
	roomKept = 20 * time.Second
	// calm is how long it takes at most until nothing is lost any more that nobody disturbs.
	calm = time.Hour
)

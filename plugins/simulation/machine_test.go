package simulation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
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

// SubmitGang submits a Job with a PodGroup.
func (m *machine) SubmitGang(t *rapid.T) {
	if len(m.c.jobs) >= mostJobs {
		t.Skip("enough")
	}
	m.jobs++
	job := Job{
		Name:        fmt.Sprintf("g%d", m.jobs),
		Priority:    rapid.SampledFrom([]int32{0, 0, 5, 10}).Draw(t, "priority"),
		RunTime:     rapid.SampledFrom([]time.Duration{0, 20 * time.Second, 5 * time.Minute}).Draw(t, "run time"),
		Gated:       rapid.IntRange(0, 9).Draw(t, "gated") == 9,
		StopTime:    rapid.SampledFrom([]time.Duration{0, 0, 20 * time.Second, slowStop}).Draw(t, "stop time"),
		Annotations: map[string]string{},
	}
	switch rapid.IntRange(0, 9).Draw(t, "preemption") {
	case 6, 7:
		job.Disruptions = ptr.To(rapid.SampledFrom([]int32{0, 0, 2}).Draw(t, "disruptions"))
	case 8:
		job.PreemptionPolicy = corev1.PreemptNever
	case 9:
		job.Annotations[podgroup.PreemptibleAnnotation] = "false"
	}
	n := rapid.IntRange(1, 6).Draw(t, "members")
	size := rapid.SampledFrom([]int64{1, 2, 4, 8}).Draw(t, "size")
	for range n {
		job.Sizes = append(job.Sizes, size)
	}
	if rapid.IntRange(0, 3).Draw(t, "launcher") == 3 {
		job.Sizes[0] = 1
	}
	job.MinMember = int32(n)
	if rapid.IntRange(0, 3).Draw(t, "elastic") == 3 {
		job.MinMember = int32(rapid.IntRange(1, n).Draw(t, "minMember"))
	}
	maps.Copy(job.Annotations, m.topology(t, n, job.MinMember))
	job.WithoutGroup = rapid.IntRange(0, 9).Draw(t, "without group") == 9
	if m.declares && job.RunTime > 0 {
		job.Annotations[podgroup.RunTimeAnnotation] = (job.RunTime + 2*startTime).String()
	}
	t.Logf("gang %s is submitted: %v GPUs, minMember %d, priority %d %s, run time %v, stop time %v, disruptions %v, gated %v, PodGroup later %v, %v",
		job.Name, job.Sizes, job.MinMember, job.Priority, job.PreemptionPolicy, job.RunTime, job.StopTime, disruptionsOf(job), job.Gated, job.WithoutGroup, job.Annotations)
	m.c.Submit(job)
	m.follow(t)
}

func disruptionsOf(job Job) string {
	if job.Disruptions == nil {
		return "any"
	}
	return fmt.Sprint(*job.Disruptions)
}

func (m *machine) topology(t *rapid.T, n int, minMember int32) map[string]string {
	a := map[string]string{}
	switch rapid.IntRange(0, 7).Draw(t, "topology") {
	case 4:
		a[podgroup.RequiredTopologyAnnotation] = "rack"
	case 5:
		a[podgroup.RequiredTopologyAnnotation] = "block"
	case 6:
		a[podgroup.PreferredTopologyAnnotation] = "rack"
	case 7:
		if n%2 == 0 && minMember%2 == 0 {
			a[podgroup.RequiredTopologyAnnotation] = "block"
			a[podgroup.SliceRequiredTopologyAnnotation] = "rack"
			a[podgroup.SliceSizeAnnotation] = "2"
		}
	}
	return a
}

// Outrank submits a gang that goes before all others and needs much of what there is.
func (m *machine) Outrank(t *rapid.T) {
	if len(m.c.jobs) >= mostJobs+2 {
		t.Skip("enough")
	}
	if rapid.Bool().Draw(t, "calm") {
		t.Logf("for once nothing happens for a while")
		m.advance(t, roomKept+time.Second)
	}
	m.jobs++
	job := Job{Name: fmt.Sprintf("o%d", m.jobs), Priority: 20, RunTime: rapid.SampledFrom([]time.Duration{0, 20 * time.Second}).Draw(t, "run time")}
	size := rapid.SampledFrom([]int64{2, 4, 8}).Draw(t, "size")
	room := int64(0)
	for name, node := range m.c.api.nodes {
		if m.c.works(name) && !node.Spec.Unschedulable {
			room += gpusIn(node) / size
		}
	}
	if room == 0 {
		t.Skip("no room")
	}
	n := rapid.IntRange(1, int(min(room, 8))).Draw(t, "members")
	for range n {
		job.Sizes = append(job.Sizes, size)
	}
	job.MinMember = int32(n)
	job.Annotations = m.topology(t, n, job.MinMember)
	t.Logf("gang %s is submitted: %v GPUs, minMember %d, priority %d, run time %v, %v", job.Name, job.Sizes, job.MinMember, job.Priority, job.RunTime, job.Annotations)
	m.c.Submit(job)
	m.follow(t)
}

func gpusIn(node *corev1.Node) int64 {
	q := node.Status.Allocatable[GPU]
	return q.Value()
}

// actions are all that can happen, some of it more often.
func (m *machine) actions() map[string]func(*rapid.T) {
	actions := rapid.StateMachineActions(m)
	for _, again := range []string{"SubmitGang", "Outrank", "Wait"} {
		actions[again+" again"] = actions[again]
	}
	return actions
}

// SubmitPods submits a Job of single pods.
func (m *machine) SubmitPods(t *rapid.T) {
	if len(m.c.jobs) >= mostJobs {
		t.Skip("enough")
	}
	m.jobs++
	job := Job{
		Name:     fmt.Sprintf("p%d", m.jobs),
		Priority: rapid.SampledFrom([]int32{0, 0, 10}).Draw(t, "priority"),
		RunTime:  rapid.SampledFrom([]time.Duration{0, 30 * time.Second}).Draw(t, "run time"),
	}
	for range rapid.IntRange(1, 3).Draw(t, "pods") {
		job.Sizes = append(job.Sizes, rapid.SampledFrom([]int64{1, 2, 4}).Draw(t, "size"))
	}
	if rapid.IntRange(0, 4).Draw(t, "budget") == 4 {
		job.Disruptions = ptr.To[int32](0)
	}
	t.Logf("single pods %s are submitted: %v GPUs, priority %d, run time %v, disruptions %s", job.Name, job.Sizes, job.Priority, job.RunTime, disruptionsOf(job))
	m.c.Submit(job)
	m.follow(t)
}

// someJob draws one of the Jobs that are chosen.
func (m *machine) someJob(t *rapid.T, which func(*job) bool) *job {
	var names []string
	for _, name := range m.c.names {
		if which(m.c.jobs[name]) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		t.Skip("none")
	}
	return m.c.jobs[rapid.SampledFrom(names).Draw(t, "job")]
}

// somePod draws one of the pods that are chosen.
func (m *machine) somePod(t *rapid.T, which func(*corev1.Pod) bool) *corev1.Pod {
	var pods []*corev1.Pod
	for _, o := range m.c.api.list((*corev1.Pod)(nil)) {
		if pod := o.(*corev1.Pod); which(pod) {
			pods = append(pods, pod)
		}
	}
	if len(pods) == 0 {
		t.Skip("none")
	}
	return pods[rapid.IntRange(0, len(pods)-1).Draw(t, "pod")]
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

// Withdraw deletes a Job.
func (m *machine) Withdraw(t *rapid.T) {
	j := m.someJob(t, func(*job) bool { return true })
	t.Logf("%s is withdrawn", j.Name)
	m.c.Withdraw(j.Name)
	m.follow(t)
}

// DeletePod deletes a pod, which its Job makes again.
func (m *machine) DeletePod(t *rapid.T) {
	pod := m.somePod(t, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil })
	t.Logf("pod %s is deleted", pod.Name)
	m.c.DeletePod(pod.Name)
	m.follow(t)
}

// Interrupt submits a small gang, goes on until members wait for the rest of theirs, and deletes one of them.
func (m *machine) Interrupt(t *rapid.T) {
	if m.c.process == nil || len(m.c.jobs) >= mostJobs+2 {
		t.Skip("dead, or enough")
	}
	m.jobs++
	job := Job{Name: fmt.Sprintf("i%d", m.jobs), Priority: 10, RunTime: 20 * time.Second, Sizes: []int64{1, 1, 1}, MinMember: int32(rapid.IntRange(2, 3).Draw(t, "minMember"))}
	t.Logf("gang %s is submitted: %v GPUs, minMember %d, priority %d, run time %v", job.Name, job.Sizes, job.MinMember, job.Priority, job.RunTime)
	m.c.Submit(job)
	more := true
	for n := 0; n < 100 && more && len(m.c.process.waiting) == 0; n++ {
		_, more = m.c.Step()
	}
	uids := sortedKeys(m.c.process.waiting)
	if len(uids) == 0 {
		t.Logf("  ... and nobody waits at Permit")
		m.follow(t)
		return
	}
	pod := m.c.process.waiting[rapid.SampledFrom(uids).Draw(t, "pod")].pod
	m.i.count("commits interrupted")
	t.Logf("pod %s is deleted while it waits at Permit", pod.Name)
	m.c.DeletePod(pod.Name)
	m.follow(t)
}

func runs(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

// FailPod makes a pod fail, which its Job makes again.
func (m *machine) FailPod(t *rapid.T) {
	pod := m.somePod(t, func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName != "" && (runs(pod) || pod.Status.Phase == corev1.PodPending)
	})
	t.Logf("pod %s fails", pod.Name)
	m.c.EndPod(pod.Name, corev1.PodFailed)
	m.follow(t)
}

// FinishPod makes a pod succeed.
func (m *machine) FinishPod(t *rapid.T) {
	pod := m.somePod(t, runs)
	t.Logf("pod %s succeeds", pod.Name)
	m.c.EndPod(pod.Name, corev1.PodSucceeded)
	m.follow(t)
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

// HangPods makes pods that are bound next not come to run, as if their images could not be pulled.
func (m *machine) HangPods(t *rapid.T) {
	m.hung = rapid.IntRange(1, 3).Draw(t, "pods")
	t.Logf("the next %d pods that are bound hang", m.hung)
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

// EditGroup changes a PodGroup.
func (m *machine) EditGroup(t *rapid.T) {
	j := m.someJob(t, func(j *job) bool { return m.c.api.groups[j.key()] != nil })
	min := int32(rapid.IntRange(1, len(j.Sizes)).Draw(t, "minMember"))
	topology := m.topology(t, len(j.Sizes), min)
	m.i.count("PodGroups edited")
	t.Logf("PodGroup %s is edited: minMember %d, %v", j.Name, min, topology)
	m.c.EditGroup(j.Name, func(group *v1alpha1.PodGroup) {
		group.Spec.MinMember = min
		for _, key := range []string{
			podgroup.RequiredTopologyAnnotation, podgroup.PreferredTopologyAnnotation, podgroup.SliceRequiredTopologyAnnotation, podgroup.SliceSizeAnnotation,
		} {
			delete(group.Annotations, key)
		}
		if group.Annotations == nil {
			group.Annotations = map[string]string{}
		}
		maps.Copy(group.Annotations, topology)
	})
	m.follow(t)
}

// DeleteGroup deletes a PodGroup, or makes it.
func (m *machine) DeleteGroup(t *rapid.T) {
	j := m.someJob(t, func(j *job) bool { return j.MinMember > 0 })
	if m.c.api.groups[j.key()] != nil {
		t.Logf("PodGroup %s is deleted", j.Name)
		m.c.DeleteGroup(j.Name)
	} else {
		t.Logf("PodGroup %s is made", j.Name)
		m.c.CreateGroup(j.Name)
	}
	m.follow(t)
}

// Ungate takes the gates off the pods of a Job.
func (m *machine) Ungate(t *rapid.T) {
	j := m.someJob(t, func(j *job) bool { return j.Gated })
	t.Logf("%s loses its scheduling gates", j.Name)
	m.c.Ungate(j.Name)
	m.follow(t)
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
		if now.Sub(m.i.lastLoss) > roomKept && !m.i.underWay() {
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

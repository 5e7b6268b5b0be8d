package replay

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Settings are what a run assumes besides the trace.
type Settings struct {
	// Rendezvous is how long the members of a job wait for each other from when the first has its place, before they give
	// up and their job starts again.
	Rendezvous time.Duration
	// Checkpoint is how often a job saves its progress; what is newer is lost when a member goes.
	Checkpoint time.Duration
	// Drain is how long a run goes on at most after the last job has come.
	Drain time.Duration
	// Progress, if set, is told now and then which part of the jobs has ended.
	Progress func(part float64)
	// Context, if set, ends the run early.
	Context context.Context
}

// DefaultSettings are a rendezvous of 10 minutes, as torchrun waits for its workers, a checkpoint each 30 minutes and
// 90 days to end in.
var DefaultSettings = Settings{Rendezvous: 10 * time.Minute, Checkpoint: 30 * time.Minute, Drain: 90 * 24 * time.Hour}

// The pause before a job starts again that gave up is that of Kubernetes' Jobs: it doubles.
const (
	firstPause   = 10 * time.Second
	longestPause = 6 * time.Minute
)

// engine is a cluster with a scheduler, as a run sees it. What happens to pods it tells the run.
type engine interface {
	// at calls back at a time from the beginning, or now if that is past.
	at(t time.Duration, do func())
	now() time.Duration
	// submit lets a job come, restart makes pods of it again, giveUp makes all of them again after a pause, finish ends
	// it with all of its pods.
	submit(job int)
	restart(job int, pods []string)
	giveUp(job int, pods []string, pause time.Duration)
	finish(job int, pods []string)
	fail(node int)
	repair(node int)
	// advance lets the time pass.
	advance(d time.Duration) error
	close()
}

// phase is what a job does.
type phase int

const (
	notYet phase = iota
	waiting
	runs
	ended
)

// progress is what became of a job.
type progress struct {
	phase phase
	// nodes are those of the pods that have one, and leaving those of pods on their way out, which others replace.
	nodes, leaving map[string]int
	// up are the pods that run.
	up map[string]bool
	// attempt counts the times at which the pods were made again, and gaveUp those at which the rendezvous failed.
	attempt, gaveUp int
	// left is the work that is not yet done and saved.
	left time.Duration
	// since is when the job began to run or, while it waits, when the first of its pods got its place.
	since time.Duration
	// first is when the job ran first, and end when it ended.
	first, end time.Duration
}

// run is a trace under way.
type run struct {
	trace    *Trace
	settings Settings
	engine   engine
	account  *account
	jobs     []progress
	unended  int
	result   Result

	racks, gangs int
}

func newRun(trace *Trace, settings Settings) *run {
	r := &run{
		trace: trace, settings: settings,
		account: newAccount(trace.Shape, trace.Length),
		jobs:    make([]progress, len(trace.Jobs)), unended: len(trace.Jobs),
	}
	for i, j := range trace.Jobs {
		r.jobs[i] = progress{nodes: map[string]int{}, leaving: map[string]int{}, up: map[string]bool{}, left: j.Duration, first: -1, end: -1}
	}
	return r
}

// step is in which a run advances; more often than that nobody needs to know how far it is.
const step = 6 * time.Hour

// play lets the trace happen.
func (r *run) play() error {
	r.arrive(0)
	r.breakDown(0)
	for end := r.trace.Length + r.settings.Drain; r.unended > 0 && r.engine.now() < end; {
		if err := r.engine.advance(step); err != nil {
			return fmt.Errorf("after %v: %w", r.engine.now(), err)
		}
		if ctx := r.settings.Context; ctx != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		if r.settings.Progress != nil {
			r.settings.Progress(1 - float64(r.unended)/float64(len(r.jobs)))
		}
	}
	r.account.advance(r.trace.Length)
	return nil
}

// arrive lets a job come at its time, and then the next one.
func (r *run) arrive(i int) {
	if i == len(r.trace.Jobs) {
		return
	}
	r.engine.at(r.trace.Jobs[i].Submit, func() {
		r.jobs[i].phase = waiting
		r.engine.submit(i)
		r.arrive(i + 1)
	})
}

// breakDown lets a node fail at its time, and then the next one.
func (r *run) breakDown(i int) {
	if i == len(r.trace.Failures) || r.unended == 0 {
		return
	}
	f := r.trace.Failures[i]
	r.engine.at(f.At, func() {
		if !r.account.down[f.Node] {
			r.fail(f.Node)
			r.engine.at(r.engine.now()+f.Repair, func() { r.repair(f.Node) })
		}
		r.breakDown(i + 1)
	})
}

func (r *run) fail(node int) {
	r.tick()
	r.account.fail(node)
	r.engine.fail(node)
	var hit []int
	for i := range r.jobs {
		if p := &r.jobs[i]; p.phase == waiting || p.phase == runs {
			for _, n := range p.nodes {
				if n == node {
					hit = append(hit, i)
					break
				}
			}
		}
	}
	for _, i := range hit {
		r.stop(i, &r.result.FailureWaste)
		r.engine.restart(i, r.again(i))
	}
}

func (r *run) repair(node int) {
	r.tick()
	r.account.repair(node)
	r.engine.repair(node)
}

func (r *run) tick() { r.account.advance(r.engine.now()) }

// placed is told by the engine of a pod that has a node.
func (r *run) placed(i int, pod string, node int) {
	r.tick()
	p, j := &r.jobs[i], &r.trace.Jobs[i]
	if len(p.nodes) == 0 {
		r.awaitOthers(i)
	}
	r.unhold(i)
	p.nodes[pod] = node
	r.account.take(node, j.GPUs)
	r.hold(i)
}

// leaves is told by the engine of a pod that is being deleted. Its job cannot go on without it.
func (r *run) leaves(i int, pod string) {
	if _, ok := r.jobs[i].nodes[pod]; !ok || r.jobs[i].phase == ended {
		return
	}
	r.tick()
	r.stop(i, &r.result.PreemptionWaste)
	r.engine.restart(i, r.again(i))
}

// released is told by the engine of a pod that has its node no more.
func (r *run) released(i int, pod string) {
	p := &r.jobs[i]
	r.tick()
	r.unhold(i)
	for _, pods := range []map[string]int{p.nodes, p.leaving} {
		if node, ok := pods[pod]; ok {
			delete(pods, pod)
			delete(p.up, pod)
			r.account.take(node, -r.trace.Jobs[i].GPUs)
		}
	}
	r.hold(i)
}

// hold counts the GPUs that a job holds while it lacks members, and unhold takes them out of the sum.
func (r *run) hold(i int)   { r.account.held += r.lacking(i) }
func (r *run) unhold(i int) { r.account.held -= r.lacking(i) }

func (r *run) lacking(i int) int {
	p, j := &r.jobs[i], &r.trace.Jobs[i]
	if p.phase != waiting || len(p.nodes) >= j.Pods {
		return 0
	}
	return len(p.nodes) * j.GPUs
}

// started is told by the engine of a pod that runs. The job runs when all of its pods do.
func (r *run) started(i int, pod string) {
	p, j := &r.jobs[i], &r.trace.Jobs[i]
	if _, ok := p.nodes[pod]; !ok || p.phase != waiting {
		return
	}
	p.up[pod] = true
	if len(p.up) < j.Pods {
		return
	}
	r.tick()
	r.unhold(i)
	p.phase, p.since = runs, r.engine.now()
	r.account.running += j.Size()
	if p.first < 0 {
		p.first = p.since
		if j.Pods > 1 {
			r.gangs++
			r.racks += r.spread(i)
		}
	}
	attempt := p.attempt
	r.engine.at(p.since+p.left, func() {
		if p.phase == runs && p.attempt == attempt {
			r.end(i)
		}
	})
}

// spread is how many racks a job is in.
func (r *run) spread(i int) int {
	racks := map[int]bool{}
	for _, node := range r.jobs[i].nodes {
		racks[r.trace.Shape.rack(node)] = true
	}
	return len(racks)
}

func (r *run) end(i int) {
	r.tick()
	p := &r.jobs[i]
	r.account.running -= r.trace.Jobs[i].Size()
	p.phase, p.end, p.left = ended, r.engine.now(), 0
	r.unended--
	r.engine.finish(i, sorted(p.nodes))
}

// stop ends a job that runs before its time. What it did since its last checkpoint is lost.
func (r *run) stop(i int, waste *float64) {
	p, j := &r.jobs[i], &r.trace.Jobs[i]
	if p.phase != runs {
		return
	}
	done := r.engine.now() - p.since
	lost := done
	if r.settings.Checkpoint > 0 {
		lost = done % r.settings.Checkpoint
	}
	p.left -= done - lost
	*waste += lost.Seconds() * float64(j.Size())
	r.account.running -= j.Size()
	r.unhold(i)
	p.phase = waiting
	r.hold(i)
}

// again counts a job whose members cannot go on as one that starts from the beginning, and returns the pods that must go.
func (r *run) again(i int) []string {
	p := &r.jobs[i]
	r.unhold(i)
	p.attempt++
	r.result.Restarts++
	pods := sorted(p.nodes)
	for _, pod := range pods {
		p.leaving[pod] = p.nodes[pod]
		delete(p.nodes, pod)
		delete(p.up, pod)
	}
	return pods
}

// awaitOthers lets a job give up when the rendezvous takes too long.
func (r *run) awaitOthers(i int) {
	p, j := &r.jobs[i], &r.trace.Jobs[i]
	p.since = r.engine.now()
	attempt, since := p.attempt, p.since
	if j.Pods == 1 || r.settings.Rendezvous <= 0 {
		return
	}
	r.engine.at(since+r.settings.Rendezvous, func() {
		if p.phase == waiting && p.attempt == attempt && p.since == since && len(p.nodes) > 0 {
			r.tick()
			r.result.GaveUp++
			pause := min(firstPause<<min(p.gaveUp, 10), longestPause)
			p.gaveUp++
			r.engine.giveUp(i, r.again(i), pause)
		}
	})
}

func sorted(m map[string]int) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

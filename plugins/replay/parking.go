package replay

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"
	"time"
)

// How long things take where the scheduler is a model; the simulated kubelets take as long.
const (
	podStarts = 2 * time.Second
	podStops  = 5 * time.Second
)

// What the Coscheduling plugin of scheduler-plugins does by default: a member waits at Permit for a minute, and one that
// finds no node rejects those that wait, unless no more than a tenth of the members is missing.
const (
	permitWait    = time.Minute
	rejectAbove   = 0.1
	noReservation = time.Duration(-1)
)

// style is what a model does with the members of a gang that have a place while others have none.
type style int

const (
	// parks is the Coscheduling plugin v0.34.7 of scheduler-plugins: they wait at Permit, for a while.
	parks style = iota
	// binds is the default scheduler, which knows no gangs: they are bound and start.
	binds
	// reverts is the gang scheduling of Kubernetes 1.37: they give their places back in the same cycle, and the group is
	// tried again when its backoff is over, whatever happens meanwhile.
	reverts
	// byAge, bySize and byRunTime give their places back too, and are tried again whenever something changes: the oldest
	// first, the smallest, or those that declare the shortest run time. They show what the order alone does.
	byAge
	bySize
	byRunTime
)

// whole is whether a gang gets all of its places or none.
func (s style) whole() bool { return s >= reverts }

// The backoff of a native group: it doubles, up to the root of the number of pods times the longest of a pod.
const (
	firstBackoff   = time.Second
	longestBackoff = 10 * time.Second
)

// backoff is how long a group of pods waits after a number of refusals.
func backoff(refusals, pods int) time.Duration {
	longest := time.Duration(float64(longestBackoff) * math.Sqrt(float64(pods)))
	return min(firstBackoff<<min(refusals-1, 20), longest)
}

// parking is an engine with a model of a scheduler that schedules pods one after the other. Under Coscheduling members are scheduled one
// after the other and park at Permit, with what they need, until minMember of them do. Gangs are tried by priority, then by the age
// of the PodGroup or of its last failure. A gang that fails frees its members' places at once and is tried again
// whenever something changes.
type parking struct {
	run    *run
	style  style
	packed bool
	time   time.Duration
	events events
	asked  int

	room *room
	// waiting are the gangs to try. Those that back off are not among them.
	waiting []*parked
	gangs   map[int]*parked
	// stranded are the pods of failed nodes, which are gone when the node is back.
	stranded map[int][]leaving
	// stirred is set if gangs are to be tried again, and changes counts the changes of what is free.
	stirred bool
	changes int
	// passes counts how often gangs were tried, and asLast those that came to the end of the line from outside.
	passes, asLast int
}

// parked is a gang.
type parked struct {
	job     int
	attempt int
	since   time.Duration
	// pass and order tell gangs apart that stand in line since the same time.
	pass, order int
	// places are the nodes of members that are reserved or bound, by index; -1 for none.
	places   []int
	reserved int
	// expires is when the first reservation does.
	expires time.Duration
	// backsOff is whether the gang is not to be tried now, after so many refusals in a row; seen is what had changed
	// when it was refused.
	backsOff bool
	refusals int
	seen     int
}

type leaving struct {
	job  int
	pod  string
	node int
}

func newParking(r *run, style style, packed bool) *parking {
	p := &parking{
		run: r, style: style, packed: packed, room: newRoom(r.trace.Shape),
		gangs: map[int]*parked{}, stranded: map[int][]leaving{},
	}
	return p
}

func (p *parking) now() time.Duration { return p.time }

func (p *parking) at(t time.Duration, do func()) {
	p.asked++
	heap.Push(&p.events, &event{at: max(t, p.time), order: p.asked, do: do})
}

func (p *parking) close() {}

// advance does what is to happen, and tries gangs when all of one moment has happened.
func (p *parking) advance(d time.Duration) error {
	end := p.time + d
	for {
		for len(p.events) > 0 && p.events[0].at <= p.time {
			heap.Pop(&p.events).(*event).do()
		}
		if p.stirred {
			p.stirred = false
			p.schedule()
			continue
		}
		if len(p.events) == 0 || p.events[0].at > end {
			p.time = end
			return nil
		}
		p.time = p.events[0].at
	}
}

func podName(job string, index, attempt int) string {
	return fmt.Sprintf("%s-%d-%d", job, index, attempt)
}

func (p *parking) submit(i int) {
	g := &parked{job: i, since: p.time, expires: noReservation, places: make([]int, p.run.trace.Jobs[i].Pods)}
	p.gangs[i] = g
	p.enqueue(g)
}

func (p *parking) enqueue(g *parked) {
	for m := range g.places {
		g.places[m] = -1
	}
	g.reserved, g.refusals, g.backsOff = 0, 0, false
	p.asLast++
	g.pass, g.order = 0, p.asLast
	p.waiting = append(p.waiting, g)
	p.stirred = true
}

// schedule tries all gangs that wait.
func (p *parking) schedule() {
	p.passes++
	if !slices.IsSortedFunc(p.waiting, p.inLine) {
		slices.SortStableFunc(p.waiting, p.inLine)
	}
	still := p.waiting[:0]
	for i, g := range p.waiting {
		stood := g.since < p.time
		if p.try(g) {
			continue
		}
		if stood {
			g.pass, g.order = -p.passes, i
		}
		if !g.backsOff {
			still = append(still, g)
		}
	}
	clear(p.waiting[len(still):])
	p.waiting = still
}

// inLine is the order in which gangs are tried: by priority, then since when they stand in line. Those of a native
// scheduler leave the line and come back; of those that were refused at the same time, the ones of the latest pass come
// first, as they stood before the others.
func (p *parking) inLine(a, b *parked) int {
	jobs := p.run.trace.Jobs
	if c := cmp.Compare(jobs[b.job].Priority, jobs[a.job].Priority); c != 0 {
		return c
	}
	switch p.style {
	case bySize:
		return cmp.Or(cmp.Compare(jobs[a.job].Size(), jobs[b.job].Size()), cmp.Compare(a.job, b.job))
	case byRunTime:
		return cmp.Or(cmp.Compare(jobs[a.job].Limit, jobs[b.job].Limit), cmp.Compare(a.job, b.job))
	case byAge:
		return cmp.Compare(a.job, b.job)
	case reverts:
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.pass, b.pass), cmp.Compare(a.order, b.order))
	}
	return cmp.Compare(a.since, b.since)
}

// try schedules the members of a gang that have no place yet. It reports whether all have one.
func (p *parking) try(g *parked) bool {
	job := p.run.trace.Jobs[g.job]
	var parkedNow []int
	for m, node := range g.places {
		if node >= 0 {
			continue
		}
		node = p.room.best(job.GPUs, p.packed)
		if node < 0 {
			break
		}
		g.places[m] = node
		p.room.take(node, job.GPUs)
		g.reserved++
		parkedNow = append(parkedNow, m)
	}
	if p.style.whole() && g.reserved < len(g.places) {
		p.reject(g, parkedNow)
		if p.style == reverts {
			p.backOff(g)
		}
		return false
	}
	if missing := len(g.places) - g.reserved; p.style == parks && missing > 0 && float64(missing) > rejectAbove*float64(len(g.places)) {
		p.reject(g, parkedNow)
		return false
	}
	for _, m := range parkedNow {
		p.run.placed(g.job, podName(job.Name, m, g.attempt), g.places[m])
	}
	if p.style == binds {
		p.startLater(g, parkedNow)
		return g.reserved == len(g.places)
	}
	if g.reserved < len(g.places) {
		if g.expires == noReservation && g.reserved > 0 {
			g.expires = p.time + permitWait
			attempt, expires := g.attempt, g.expires
			p.at(expires, func() {
				if g.attempt == attempt && g.expires == expires {
					p.reject(g, nil)
					p.stirred = true
				}
			})
		}
		return false
	}
	g.expires = noReservation
	members := make([]int, len(g.places))
	for m := range members {
		members[m] = m
	}
	p.startLater(g, members)
	return true
}

// backOff lets a gang rest that was refused. While nothing has become free it would only be refused again, and rests on.
func (p *parking) backOff(g *parked) {
	g.refusals++
	g.backsOff, g.seen = true, p.changes
	attempt, rest := g.attempt, backoff(g.refusals, len(g.places))
	p.at(p.time+rest, func() {
		switch {
		case g.attempt != attempt:
		case g.seen == p.changes:
			p.backOff(g)
		default:
			g.backsOff, p.stirred = false, true
			p.waiting = append(p.waiting, g)
		}
	})
}

// startLater lets members run that are bound.
func (p *parking) startLater(g *parked, members []int) {
	if len(members) == 0 {
		return
	}
	attempt := g.attempt
	p.at(p.time+podStarts, func() {
		for _, m := range members {
			if g.attempt == attempt {
				p.run.started(g.job, podName(p.run.trace.Jobs[g.job].Name, m, attempt))
			}
		}
	})
}

// reject frees what a gang has reserved. Members that were parked only now were not told of.
func (p *parking) reject(g *parked, untold []int) {
	job := p.run.trace.Jobs[g.job]
	for m, node := range g.places {
		if node < 0 {
			continue
		}
		p.room.take(node, -job.GPUs)
		g.places[m] = -1
		if !slices.Contains(untold, m) {
			p.run.released(g.job, podName(job.Name, m, g.attempt))
		}
	}
	g.reserved, g.expires, g.since = 0, noReservation, p.time
}

func (p *parking) restart(i int, pods []string) {
	g := p.gangs[i]
	p.remove(g, pods)
	p.enqueue(g)
}

func (p *parking) giveUp(i int, pods []string, pause time.Duration) {
	g := p.gangs[i]
	p.remove(g, pods)
	p.at(p.time+pause, func() {
		g.since = p.time
		p.enqueue(g)
	})
}

// remove deletes the pods of a gang.
func (p *parking) remove(g *parked, pods []string) {
	i := g.job
	job := p.run.trace.Jobs[i]
	for _, pod := range pods {
		for m, node := range g.places {
			if node >= 0 && podName(job.Name, m, g.attempt) == pod {
				p.leave(leaving{i, pod, node})
			}
		}
	}
	g.attempt++
	g.expires = noReservation
	p.waiting = slices.DeleteFunc(p.waiting, func(other *parked) bool { return other == g })
}

// leave frees the place of a pod that is being deleted, when its kubelet has stopped it.
func (p *parking) leave(l leaving) {
	if p.room.down[l.node] {
		p.stranded[l.node] = append(p.stranded[l.node], l)
		return
	}
	p.at(p.time+podStops, func() {
		if p.room.down[l.node] {
			p.leave(l)
			return
		}
		p.room.take(l.node, -p.run.trace.Jobs[l.job].GPUs)
		p.run.released(l.job, l.pod)
		p.freed()
	})
}

func (p *parking) finish(i int, pods []string) {
	g := p.gangs[i]
	delete(p.gangs, i)
	for _, node := range g.places {
		p.room.take(node, -p.run.trace.Jobs[i].GPUs)
	}
	for _, pod := range pods {
		p.run.released(i, pod)
	}
	g.attempt++
	p.freed()
}

// freed notes that there is more room than there was.
func (p *parking) freed() {
	p.changes++
	p.stirred = true
}

func (p *parking) fail(node int) { p.room.fail(node) }

func (p *parking) repair(node int) {
	p.room.repair(node)
	for _, l := range p.stranded[node] {
		p.leave(l)
	}
	delete(p.stranded, node)
	p.freed()
}

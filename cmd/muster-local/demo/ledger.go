package demo

import "time"

// podState is what the demo needs to know of a pod.
type podState struct {
	name string
	job  string

	// node is empty while the pod is not bound.
	node string
	gpus int

	running  bool
	finished bool
}

// ledger adds up, over time, the GPUs that pods hold while their gang cannot run. A gang can run once
// as many of its pods as it has members are bound or have finished.
type ledger struct {
	members map[string]int
	pods    map[string]podState // by UID

	at      time.Time
	wasted  float64 // GPU-seconds until at
	changed time.Time
}

// newLedger returns a ledger that starts now, for gangs of the given numbers of members.
func newLedger(now time.Time, members map[string]int) *ledger {
	return &ledger{members: members, pods: map[string]podState{}, at: now, changed: now}
}

// set records that a pod is in a state from now on.
func (l *ledger) set(now time.Time, uid string, pod podState) {
	l.advance(now)
	if l.pods[uid] != pod {
		l.pods[uid] = pod
		l.changed = now
	}
}

// remove records that a pod is gone from now on.
func (l *ledger) remove(now time.Time, uid string) {
	l.advance(now)
	if _, known := l.pods[uid]; known {
		delete(l.pods, uid)
		l.changed = now
	}
}

// advance counts the time that has passed. Events may arrive slightly out of order; time never runs
// backwards.
func (l *ledger) advance(now time.Time) {
	if elapsed := now.Sub(l.at); elapsed > 0 {
		l.wasted += float64(l.wasting()) * elapsed.Seconds()
		l.at = now
	}
}

// wasting returns how many GPUs are held right now by gangs that cannot run.
func (l *ledger) wasting() int {
	gpus := 0
	for _, pod := range l.pods {
		if pod.node != "" && !pod.finished && !l.whole(pod.job) {
			gpus += pod.gpus
		}
	}
	return gpus
}

// bound returns how many pods of a gang are bound or have finished.
func (l *ledger) bound(job string) int {
	count := 0
	for _, pod := range l.pods {
		if pod.job == job && (pod.node != "" || pod.finished) {
			count++
		}
	}
	return count
}

// whole is true when a gang can run.
func (l *ledger) whole(job string) bool { return l.bound(job) >= l.members[job] }

// finished is true when all members of a gang have.
func (l *ledger) finished(job string) bool {
	count := 0
	for _, pod := range l.pods {
		if pod.job == job && pod.finished {
			count++
		}
	}
	return count >= l.members[job]
}

package gangplan

import (
	"slices"
	"sync"

	"github.com/muster-sched/muster/podgroup/planner"
)

// ledger says, for events that come while no scheduling cycle is at hand, how much a node can have left
// at most: what it had when the model was last synced, and what pods on it gave back since. What others
// took since is not in it. It is safe for concurrent use.
type ledger struct {
	mu    sync.Mutex
	syncs int
	left  map[string][]planner.ResourceAmount // by node
	since map[string][]returned               // by node
	// last is the event that was asked about last, and most the answer: it is put to every refused gang.
	last *Freed
	most []planner.ResourceAmount
}

type returned struct {
	sync  int // how many syncs had begun
	freed *Freed
}

// begin starts a sync. Its snapshot is older than it is, but younger than the sync before: what was
// given back before that one is in the snapshot.
func (l *ledger) begin(anew bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncs++
	if anew || l.left == nil {
		l.left, l.since = map[string][]planner.ResourceAmount{}, map[string][]returned{}
	}
	for node, list := range l.since {
		list = slices.DeleteFunc(list, func(r returned) bool { return r.sync <= l.syncs-2 })
		if len(list) == 0 {
			delete(l.since, node)
		} else {
			l.since[node] = list
		}
	}
}

func (l *ledger) set(node string, left []planner.ResourceAmount) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left[node] = left
}

// after counts in what a pod gave back, and returns the most that its node can have left; nil if that is
// not known.
func (l *ledger) after(f *Freed) []planner.ResourceAmount {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == f {
		return l.most
	}
	l.last, l.most = f, nil
	left, known := l.left[f.node]
	if !known {
		return nil
	}
	l.since[f.node] = append(l.since[f.node], returned{l.syncs, f})
	l.most = slices.Clone(left)
	for _, r := range l.since[f.node] {
		for _, a := range r.freed.amounts {
			if i := slices.IndexFunc(l.most, func(m planner.ResourceAmount) bool { return m.Name == a.Name }); i >= 0 {
				l.most[i].Value += a.Value
			}
		}
	}
	return l.most
}

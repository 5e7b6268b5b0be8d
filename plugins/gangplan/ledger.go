package gangplan

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/podgroup/planner"
)

// lateSyncs is for how many syncs it is remembered what a sync found to be gone or in doubt: an event is
// often told after the snapshot that shows it, and by that many syncs at most.
const lateSyncs = 8

// ledger says, for events that come while no scheduling cycle is at hand, how much a node can have left
// at most: what it had when the model was last synced, and what the pods that were on it then gave back
// since. What others took since is not in it. It is safe for concurrent use.
type ledger struct {
	mu    sync.Mutex
	syncs int
	nodes map[string]*account
	// last is the event that was asked about last, and the answer, which holds until the next sync: it is put to
	// every refused gang, and may be told again later.
	last   *Freed
	change planner.Change
}

// account is what is known of a node.
type account struct {
	left []planner.ResourceAmount
	// pods are those that left does not have, and gone those of them that are gone, in the order in which
	// that was told.
	pods []types.UID
	gone []*Freed
	// late are pods that are gone and that left has already, of which that may yet be told.
	late []lateLeaver
	// doubted is the sync after which a pod was told to use less. Whether left has that is not known.
	doubted int
}

type lateLeaver struct {
	pod  types.UID
	sync int
}

// begin starts a sync of these nodes.
func (l *ledger) begin(anew bool, infos []fwk.NodeInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncs++
	l.last = nil
	if !anew {
		return
	}
	before := l.nodes
	l.nodes = make(map[string]*account, len(infos))
	for _, info := range infos {
		name := info.Node().Name
		if l.nodes[name] = before[name]; l.nodes[name] == nil {
			l.nodes[name] = &account{doubted: -lateSyncs}
		}
	}
}

// set notes what a node has left besides the pods on it.
func (l *ledger) set(info fwk.NodeInfo, left []planner.ResourceAmount) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.nodes[info.Node().Name]
	pods := make([]types.UID, 0, len(info.GetPods()))
	for _, p := range info.GetPods() {
		pods = append(pods, p.GetPod().UID)
	}
	known := sets.New(pods...)
	a.late = slices.DeleteFunc(a.late, func(p lateLeaver) bool { return p.sync+lateSyncs < l.syncs })
	for _, uid := range a.pods {
		if !known.Has(uid) {
			a.late = append(a.late, lateLeaver{uid, l.syncs})
		}
	}
	// The snapshot can be older than what was told already.
	a.gone = slices.DeleteFunc(a.gone, func(f *Freed) bool { return !known.Has(f.pod) })
	a.left, a.pods = left, pods
}

// after counts in what a pod gave back, once however often it is told, and returns the change as a Watch
// is to see it.
func (l *ledger) after(f *Freed) planner.Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != f {
		l.last, l.change = f, l.count(f)
	}
	return l.change
}

func (l *ledger) count(f *Freed) planner.Change {
	change := planner.Change{Node: f.node, Freed: f.amounts}
	a, known := l.nodes[f.node]
	if !known {
		return change
	}
	told := slices.IndexFunc(a.gone, func(g *Freed) bool { return g.pod == f.pod })
	switch {
	case !f.gone:
		a.doubted = l.syncs
	case told >= 0:
	case slices.Contains(a.pods, f.pod):
		told = len(a.gone)
		a.gone = append(a.gone, f)
	case slices.ContainsFunc(a.late, func(p lateLeaver) bool { return p.pod == f.pod }):
	default:
		change.Freed = nil // it came after the sync, and what it took was never counted
	}
	if a.doubted+lateSyncs >= l.syncs {
		change.Freed = f.amounts
		return change
	}
	until := len(a.gone)
	if told >= 0 {
		until = told + 1 // who hears of it late has yet to hear of the others
	}
	change.Free = slices.Clone(a.left)
	for _, g := range a.gone[:until] {
		for _, amount := range g.amounts {
			if i := slices.IndexFunc(change.Free, func(m planner.ResourceAmount) bool { return m.Name == amount.Name }); i >= 0 {
				change.Free[i].Value += amount.Value
			}
		}
	}
	return change
}

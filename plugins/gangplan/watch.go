package gangplan

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/podgroup/planner"
)

// Watch tells which events of nodes and pods could let a refused gang in. Every such event since the
// refusal must be shown to it, until it says yes. It is safe for concurrent use.
type Watch struct {
	mu     sync.Mutex
	watch  *planner.Watch
	levels []string
	ledger *ledger
	// claimed are the nodes on which claims were held when the gang was refused.
	claimed sets.Set[string]
	// singles are what the gang asks of a node that only this package counts: an empty node has one.
	singles []planner.ResourceAmount
}

// Watch returns a watch for a gang that Plan just refused with the given explanation. The claims that it was refused
// beside are to be held.
func (c *Cluster) Watch(d *Demand, e *planner.Explanation) *Watch {
	return &Watch{watch: c.Cluster.Watch(&d.Demand, e), levels: c.Levels(), ledger: &c.ledger, singles: c.singlesOf(d), claimed: sets.KeySet(c.claimed)}
}

// singlesOf lists what the members ask of a node that only this package counts, as an empty node has it.
func (c *Cluster) singlesOf(d *Demand) (singles []planner.ResourceAmount) {
	for i := range d.Classes {
		for _, a := range d.Classes[i].Requests {
			if name := c.ResourceName(a.Resource); c.singles.counts(a.Resource) && !slices.ContainsFunc(singles, func(s planner.ResourceAmount) bool { return s.Name == name }) {
				singles = append(singles, planner.ResourceAmount{Name: name, Value: 1})
			}
		}
	}
	return singles
}

// NodeHelps reports whether a node that came (old is nil) or changed could help.
func (w *Watch) NodeHelps(old, node *corev1.Node) bool {
	change := planner.Change{Node: node.Name, Changed: true, Domains: domainsOf(w.levels, node)}
	if old == nil {
		change.Free = append(amountsOf(framework.NewResource(node.Status.Allocatable)), w.singles...)
		change.Free = append(change.Free, planner.ResourceAmount{Name: string(corev1.ResourcePods), Value: node.Status.Allocatable.Pods().Value()})
	}
	return w.could(change)
}

// Freed is what a pod gave back on its node: all that it had if it is gone.
type Freed struct {
	pod     types.UID
	gone    bool
	node    string
	amounts []planner.ResourceAmount
}

// FreedBy is what a pod on a node gave back when it went (now is nil) or changed.
func FreedBy(was, now *corev1.Pod) (*Freed, error) {
	amounts, err := usedBy(was)
	if err != nil {
		return nil, err
	}
	if now != nil {
		still, err := usedBy(now)
		if err != nil {
			return nil, err
		}
		for i := range amounts {
			for _, s := range still {
				if s.Name == amounts[i].Name {
					amounts[i].Value -= s.Value
				}
			}
		}
		amounts = slices.DeleteFunc(amounts, func(a planner.ResourceAmount) bool { return a.Value <= 0 })
	}
	return &Freed{was.UID, now == nil, was.Spec.NodeName, amounts}, nil
}

// LastFreed remembers what the last pod freed: an event is put to every waiting pod, one after another.
type LastFreed struct {
	mu       sync.Mutex
	old, now *corev1.Pod
	freed    *Freed
}

// By is FreedBy.
func (l *LastFreed) By(old, now *corev1.Pod) (*Freed, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.freed == nil || l.old != old || l.now != now {
		freed, err := FreedBy(old, now)
		if err != nil {
			return nil, err
		}
		l.old, l.now, l.freed = old, now, freed
	}
	return l.freed, nil
}

// PodHelps reports whether what a pod gave back could help. Where claims were held the ledger, which does not have them, does
// not tell how much room the gang saw: all counts there that is given back, also by a pod that the model never showed, which
// may have taken what was claimed.
func (w *Watch) PodHelps(f *Freed) bool {
	change := w.ledger.after(f)
	if w.claimed.Has(f.node) {
		change.Free, change.Freed = nil, f.amounts
	}
	return w.could(change)
}

// ClaimHelps reports whether a claim that is held no more could help. No pod ever showed it, so that what
// the node has left is not known.
func (w *Watch) ClaimHelps(c Claim) bool {
	return w.could(planner.Change{Node: c.Node, Freed: c.named})
}

func (w *Watch) could(change planner.Change) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watch.CouldHelp(change)
}

package coscheduling

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup/planner"
)

// adviceAge is how long advice is repeated to a gang that is refused for the same causes again. It
// costs a few plans, and who uses the nodes may have changed since.
const adviceAge = 30 * time.Second

// advised is the explanation of a refusal as it was told, and what it was before advice was added.
type advised struct {
	bare, told string
	at         time.Time
	// futile is set if no new node could let the gang in.
	futile bool
	// nodes are the new nodes that would let it in, nil if that is not known.
	nodes *planner.MoreNodes
	// wouldPreempt says whom a gang that may preempt nobody would, nil if that was not asked.
	wouldPreempt *string
}

// unplaced makes the verdict on a gang that was just found not to fit.
func (pl *Coscheduling) unplaced(key types.NamespacedName, d *gangplan.Demand, e *planner.Explanation) *refusal {
	// The explanation is about the cluster without what other gangs hold.
	defer pl.cluster.Hold(pl.mustLeave(key, d.Pods...))()
	pl.addKept(key, d, e)
	r := &refusal{learned: e.Learned, watch: pl.cluster.Watch(d, e), needs: e.Need}
	r.advice = advised{bare: e.String(), at: pl.clock.Now()}
	if last := pl.gangs.refusalOf(key); last != nil && last.advice.bare == r.advice.bare && r.advice.at.Sub(last.advice.at) < adviceAge {
		r.advice = last.advice
	} else {
		pl.cluster.Advise(&d.Demand, e, pl.cluster.Others(key))
		r.advice.told, r.advice.futile, r.advice.nodes = e.String(), e.Advice.Futile, e.Advice.Nodes
	}
	if group := pl.group(key); group != nil && pl.provisioningWindow(group) > 0 {
		r.newcomers = pl.cluster.Newcomers(d)
	}
	r.message = r.advice.told
	return r
}

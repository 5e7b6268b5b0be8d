package gputopology

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/lru"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/planner"
)

// maxRefusals bounds how many refused pod groups are remembered. Any event queues the others.
const maxRefusals = 8192

// refusals remembers, by the name of the pod group, what could let a refused group in.
type refusals struct {
	groups *lru.Cache
}

func newRefusals() *refusals { return &refusals{lru.New(maxRefusals)} }

// refusal is why a pod group was refused last. Events are put to each of its members.
type refusal struct {
	// watch tells which changes of nodes and pods could help; nil if none could, because the group asks for
	// a topology that cannot be.
	watch *gangplan.Watch
	// learned is set if a Filter plugin had a part in it, so that other changes could help too.
	learned bool

	mu       sync.Mutex
	old, now any
	helps    bool
}

// unplaced notes that the planner has no place for a group, if it was planned on the whole cluster.
func (pl *GPUTopology) unplaced(group fwk.PodGroupInfo, parent *fwk.Placement, d *gangplan.Demand, why *planner.Explanation) {
	nodes, err := pl.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil || len(nodes) != len(parent.Nodes) {
		return
	}
	pl.refusals.groups.Add(nameOf(group), &refusal{watch: pl.cluster.Watch(d, why), learned: why.Learned})
}

// invalid notes that a group asks for what cannot be.
func (r *refusals) invalid(group fwk.PodGroupInfo) { r.groups.Add(nameOf(group), &refusal{}) }

// forget lets any event queue a group if it is refused from now on.
func (r *refusals) forget(group fwk.PodGroupInfo) { r.groups.Remove(nameOf(group)) }

func nameOf(group fwk.PodGroupInfo) types.NamespacedName {
	return types.NamespacedName{Namespace: group.GetNamespace(), Name: group.GetName()}
}

// of returns why the group of a pod was refused, nil if that is not known.
func (r *refusals) of(pod *corev1.Pod) *refusal {
	key, ok := podgroup.NativeKey(pod)
	if !ok {
		return nil
	}
	got, ok := r.groups.Get(key)
	if !ok {
		return nil
	}
	return got.(*refusal)
}

// helpedBy asks about an event once for all members of the group.
func (r *refusal) helpedBy(old, now any, ask func(*gangplan.Watch) bool) bool {
	if r.watch == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.old != old || r.now != now {
		r.old, r.now, r.helps = old, now, ask(r.watch)
	}
	return r.helps
}

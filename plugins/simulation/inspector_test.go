package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// inspector watches a cluster and notes where it breaks the invariants of the design.
type inspector struct {
	c        *Cluster
	problems []string
	// onWay are the pods that may bind, until the API has answered, by the required topology that they were placed
	// under.
	onWay map[types.UID]bool
	// under is the topology of the PodGroup that a pod was placed under.
	under map[types.UID]podgroup.Topology
	// places are the nodes of the pods that were released.
	places map[types.UID]string
	// whole are the gangs that had their minimum at least once, or a commit of which was carried out.
	whole sets.Set[types.NamespacedName]
	// unanswered are pods that are bound although the scheduler was told that they are not.
	unanswered sets.Set[types.UID]
	// since is when each pod began to wait at Permit.
	since map[types.UID]time.Time
	// lastLoss is when a pod was lost last: for a while the plugin may keep its room.
	lastLoss time.Time
	// started is when the scheduler was started or killed last.
	started time.Time
	// withoutNodes is when the cluster had no node last, as far as the scheduler may have noticed.
	withoutNodes time.Time
	// partial are the gangs that have some places and fewer than they need.
	partial map[types.NamespacedName]*partial
	// preemptor is the gang that pods are just being evicted for, and evicted are those that were, by this process.
	preemptor types.NamespacedName
	evicted   sets.Set[types.UID]
	// counts is how often something happened that the checks are about.
	counts map[string]int
}

// count notes that something happened that the checks are about.
func (i *inspector) count(what string) { i.counts[what]++ }

func inspect(c *Cluster) *inspector {
	i := &inspector{
		c: c, onWay: map[types.UID]bool{}, under: map[types.UID]podgroup.Topology{}, places: map[types.UID]string{},
		whole: sets.New[types.NamespacedName](), unanswered: sets.New[types.UID](), since: map[types.UID]time.Time{},
		partial: map[types.NamespacedName]*partial{}, evicted: sets.New[types.UID](), counts: map[string]int{},
	}
	c.postponed = i.postponed
	c.Observe(i.see)
	c.api.watchers = append(c.api.watchers, i.saw)
	return i
}

func (i *inspector) broken(invariant, format string, args ...any) {
	i.problems = append(i.problems, invariant+": "+fmt.Sprintf(format, args...))
}

// saw notes when pods are lost, and which gangs have too few places.
func (i *inspector) saw(old, now object) {
	defer i.recount(old, now)
	if before, ok := old.(*v1alpha1.PodGroup); ok {
		if after, ok := now.(*v1alpha1.PodGroup); ok {
			i.sawGroup(before, after)
		}
	}
	if node, ok := old.(*corev1.Node); ok && node != nil && now == nil && len(i.c.api.nodes) == 0 {
		i.withoutNodes = i.c.clock.Now()
	}
	if node, ok := now.(*corev1.Node); ok && node != nil && len(i.c.api.nodes) == 1 {
		i.withoutNodes = i.c.clock.Now()
	}
	was, _ := old.(*corev1.Pod)
	pod, exists := now.(*corev1.Pod)
	switch {
	case was == nil || was.Spec.NodeName == "" || was.Status.Phase == corev1.PodSucceeded:
	case !exists || pod.DeletionTimestamp != nil && was.DeletionTimestamp == nil || pod.Status.Phase == corev1.PodFailed && was.Status.Phase != corev1.PodFailed:
		i.lastLoss = i.c.clock.Now()
	}
}

// sawGroup counts what begins for a gang.
func (i *inspector) sawGroup(before, after *v1alpha1.PodGroup) {
	if at := after.Annotations[podgroup.ReleasedAtAnnotation]; at != "" && at != before.Annotations[podgroup.ReleasedAtAnnotation] {
		i.count("gangs released")
	}
	for kind, what := range map[string]string{v1alpha1.ConditionReserved: "reservations", v1alpha1.ConditionProvisioning: "provisioning windows"} {
		if meta.IsStatusConditionTrue(after.Status.Conditions, kind) && !meta.IsStatusConditionTrue(before.Status.Conditions, kind) {
			i.count(what)
		}
	}
}

func (i *inspector) see(e Event) {
	switch e.Kind {
	case Released:
		i.released(e.Pods)
	case Bound:
		i.count("pods bound")
		i.bound(e)
	case BindFailed:
		i.count("bindings failed")
		delete(i.onWay, e.Pods[0].UID)
		i.lastLoss = i.c.clock.Now()
	case Reconciled:
		i.looked(e.Object, e.At)
	case Evicted:
		i.preemptor = e.For
	case Restarted:
		i.count("the scheduler killed or started")
		i.evicted.Clear()
		i.started = e.At
		clear(i.since)
		clear(i.onWay)
		i.unanswered.Clear()
	}
}

// released checks I1 and I4 when a commit is carried out, by what the plugin was shown until then.
func (i *inspector) released(pods []*corev1.Pod) {
	key, ok := podgroup.Key(pods[0])
	if !ok {
		return
	}
	obj, exists, _ := i.c.process.groups.indexer.GetByKey(key.String())
	if !exists {
		i.broken("I1", "gang %s binds without a PodGroup", key.Name)
		return
	}
	group := obj.(*v1alpha1.PodGroup)
	placed := map[podgroup.Identity]bool{}
	topology, err := podgroup.ParseTopology(group.Annotations)
	if err != nil {
		i.broken("I4", "gang %s binds although its topology is invalid: %v", key.Name, err)
	}
	for _, pod := range pods {
		i.onWay[pod.UID], i.under[pod.UID], i.places[pod.UID] = true, topology, pod.Spec.NodeName
	}
	members, _ := i.c.process.members.indexer.ByIndex(podgroup.GroupIndex, key.String())
	var present []*corev1.Pod
	for _, m := range members {
		pod := m.(*corev1.Pod)
		gone := pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodSucceeded
		if !gone && (pod.Spec.NodeName != "" || i.onWay[pod.UID]) {
			placed[podgroup.IdentityOf(pod)] = true
			if pod.Status.Phase != corev1.PodSucceeded {
				present = append(present, pod)
			}
		}
	}
	if len(placed) < quorum(group) {
		var names []string
		for _, pod := range pods {
			names = append(names, pod.Name)
		}
		i.broken("I1", "members %s of gang %s bind while %d of %d have a place", strings.Join(names, ", "), key.Name, len(placed), quorum(group))
	}
	i.count("commits carried out")
	i.whole.Insert(key)
	i.checkTopology(key, group, topology, present)
}

// checkTopology checks I4 for members that were placed under the same topology.
func (i *inspector) checkTopology(key types.NamespacedName, group *v1alpha1.PodGroup, topology podgroup.Topology, members []*corev1.Pod) {
	domains, slicesIn := map[string]string{}, map[int]string{}
	for _, pod := range members {
		name := i.places[pod.UID]
		node := i.c.api.nodes[name]
		if node == nil || i.under[pod.UID] != topology {
			continue
		}
		if level := topology.Required.Label; level != "" {
			domain := strings.Join(pathOf(node, level), "/")
			domains[domain] = pod.Name
			if len(domains) > 1 {
				i.broken("I4", "members of gang %s are in more than one %s: %v", key.Name, level, domains)
				return
			}
		}
		if level := topology.SliceLevel.Label; level != "" {
			rank, _ := podgroup.Rank(pod)
			slice := rank / topology.SliceSize
			domain := strings.Join(pathOf(node, level), "/")
			if other, ok := slicesIn[slice]; ok && other != domain {
				i.broken("I4", "slice %d of gang %s is in more than one %s: %s and %s", slice, key.Name, level, other, domain)
				return
			}
			slicesIn[slice] = domain
		}
	}
}

// testLevels are the levels of the simulated clusters, outermost first.
var testLevels = []string{"block", "rack"}

// pathOf is a node's domain at a level, with those around it.
func pathOf(node *corev1.Node, level string) []string {
	var path []string
	for _, l := range append(slices.Clone(testLevels), corev1.LabelHostname) {
		path = append(path, node.Labels[l])
		if l == level {
			break
		}
	}
	return path
}

func gpusOf(pod *corev1.Pod) int64 {
	q := pod.Spec.Containers[0].Resources.Requests[GPU]
	return q.Value()
}

// bound checks what the API says after a binding.
func (i *inspector) bound(e Event) {
	node := i.c.api.nodes[e.Node]
	if node == nil {
		return // it went meanwhile
	}
	room := node.Status.Allocatable[GPU]
	used := int64(0)
	for _, p := range i.c.on(e.Node) {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		if i.unanswered.Has(p.UID) {
			return // the scheduler may not know yet
		}
		used += gpusOf(p)
	}
	if used > room.Value() {
		i.broken("room", "node %s has %d GPUs and pods with %d", e.Node, room.Value(), used)
	}
}

// always checks what holds after every step.
func (i *inspector) always() {
	p := i.c.process
	if p == nil {
		return
	}
	now := i.c.clock.Now()
	for uid := range i.since {
		if p.waiting[uid] == nil {
			delete(i.since, uid)
		}
	}
	for uid := range p.waiting {
		if _, ok := i.since[uid]; !ok || i.c.held.HasAny(Ring, GoOnBinding) {
			i.since[uid] = now
		}
		if waits := now.Sub(i.since[uid]); waits > permitLimit {
			i.broken("I2", "pod %s waits at Permit for %v", p.waiting[uid].pod.Name, waits)
		}
	}
}

// permitLimit is the longest that a commit takes in these tests, with what the plugin adds to it.
const permitLimit = 65 * time.Second

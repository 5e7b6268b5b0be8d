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
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/podgroup/planner"
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
		if p := i.partial[e.Object]; p != nil && p.noticed.IsZero() {
			p.noticed = e.At
			i.count("gangs bound in part")
		}
	case Evicted:
		i.preemptor = e.For
	case Restarted:
		i.count("the scheduler killed or started")
		i.evicted.Clear()
		i.started = e.At
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
	if len(placed) < int(group.Spec.MinMember) {
		var names []string
		for _, pod := range pods {
			names = append(names, pod.Name)
		}
		i.broken("I1", "members %s of gang %s bind while %d of %d have a place", strings.Join(names, ", "), key.Name, len(placed), group.Spec.MinMember)
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

// gangState is a gang as the API shows it, counted anew by the rules of the design.
type gangState struct {
	group           *v1alpha1.PodGroup
	bound, finished int // places
	waiting, gated  []*corev1.Pod
	placed          []*corev1.Pod
	members         []podgroup.Member
}

func (i *inspector) state(key types.NamespacedName) gangState {
	s := gangState{group: i.c.api.groups[key]}
	type place struct{ finished, bound, waiting, gated bool }
	places := map[podgroup.Identity]*place{}
	for _, pod := range i.c.api.podsOf(key) {
		s.members = append(s.members, podgroup.MemberOf(pod))
		id := podgroup.IdentityOf(pod)
		if places[id] == nil {
			places[id] = &place{}
		}
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			places[id].finished = true
		case pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed:
		case pod.Spec.NodeName != "":
			places[id].bound = true
			s.placed = append(s.placed, pod)
		case len(pod.Spec.SchedulingGates) > 0:
			places[id].gated = true
			s.gated = append(s.gated, pod)
		default:
			places[id].waiting = true
			s.waiting = append(s.waiting, pod)
		}
	}
	for _, p := range places {
		switch {
		case p.finished:
			s.finished++
		case p.bound:
			s.bound++
		}
	}
	slices.SortFunc(s.waiting, podgroup.CompareMembers)
	return s
}

// need is how many more members the gang needs at a place, at least one.
func (s *gangState) need() int { return max(int(s.group.Spec.MinMember)-s.bound-s.finished, 1) }

// complete is whether the gang can be planned.
func (s *gangState) complete() bool {
	return s.group != nil && s.group.Spec.MinMember > 0 && s.bound+s.finished+len(s.waiting) >= int(s.group.Spec.MinMember)
}

// note keeps what later checks need to know.
func (i *inspector) note() {
	for key, group := range i.c.api.groups {
		if s := i.state(key); s.bound+s.finished >= int(group.Spec.MinMember) {
			i.whole.Insert(key)
		}
	}
}

// quiet checks what holds when everything was shown, answered and tried again.
func (i *inspector) quiet() {
	p := i.c.process
	i.unanswered.Clear()
	logger := klog.Logger{}
	dump := p.scheduler.Cache.Dump()
	for key := range dump.AssumedPods {
		i.broken("I2", "a place is held for pod %s, which is not bound", key)
	}
	if len(p.waiting)+len(p.bindings) > 0 {
		i.broken("I2", "%d pods wait at Permit, %d are being bound", len(p.waiting), len(p.bindings))
	}
	snapshot := p.framework.SnapshotSharedLister().(*schedcache.Snapshot)
	must(p.scheduler.Cache.UpdateSnapshot(logger, snapshot))
	infos, err := snapshot.NodeInfos().List()
	must(err)
	i.checkCache(infos)
	for _, o := range i.c.api.list((*v1alpha1.PodGroup)(nil)) {
		i.checkGang(nameOf(o), infos)
	}
}

// checkCache compares what the scheduler knows of the nodes with what is there.
func (i *inspector) checkCache(infos []fwk.NodeInfo) {
	for _, info := range infos {
		name := info.Node().Name
		want, got := sets.New[types.UID](), sets.New[types.UID]()
		for _, pod := range i.c.on(name) {
			if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
				want.Insert(pod.UID)
			}
		}
		for _, pod := range info.GetPods() {
			got.Insert(pod.GetPod().UID)
		}
		if !want.Equal(got) {
			i.broken("cache", "node %s has pods %v, and the scheduler thinks %v", name, sets.List(want), sets.List(got))
		}
		for _, pod := range i.c.process.scheduler.SchedulingQueue.NominatedPodsForNode(name) {
			if _, ok := podgroup.Key(pod.GetPod()); ok {
				i.broken("I2", "node %s is kept for pod %s although nothing is under way", name, pod.GetPod().Name)
			}
		}
	}
}

func (i *inspector) checkGang(key types.NamespacedName, infos []fwk.NodeInfo) {
	s := i.state(key)
	min := int(s.group.Spec.MinMember)
	if settings, _ := podgroup.ParseSettings(s.group.Annotations); settings.Record.GivenUp || settings.NotBefore.After(i.c.clock.Now()) {
		if s.bound > 0 {
			i.broken("I8", "gang %s was released and has %d members bound", key.Name, s.bound)
		}
		return
	}
	if s.bound > 0 && s.bound+s.finished < min && !i.whole.Has(key) {
		i.broken("I1", "gang %s has %d members bound, %d finished, needs %d, and never had them", key.Name, s.bound, s.finished, min)
	}
	if !s.complete() || len(s.waiting) == 0 {
		return
	}
	if i.keptOut(&s) {
		return
	}
	for _, pod := range s.placed {
		if i.c.api.nodes[pod.Spec.NodeName] == nil {
			return // about to be removed, and until then neither here nor there
		}
	}
	quorum := s.bound+s.finished >= min
	if topology, _ := podgroup.ParseTopology(s.group.Annotations); quorum && topology.SliceSize > 0 {
		// Members beyond the minimum come by whole slices.
		if plan := i.plan(s, s.waiting, 1, infos); plan != nil {
			i.broken("I3", "surplus members of gang %s wait although some fit", key.Name)
		}
		return
	}
	if quorum {
		for _, pod := range s.waiting {
			if plan := i.plan(s, []*corev1.Pod{pod}, 1, infos); plan != nil {
				i.broken("I3", "surplus member %s of gang %s waits although it fits", pod.Name, key.Name)
			}
		}
		return
	}
	if plan := i.plan(s, s.waiting, min-s.bound-s.finished, infos); plan != nil {
		i.broken("I3", "gang %s waits although it fits: %v", key.Name, plan.Domain)
	} else if i.obviouslyFits(s, infos) {
		i.broken("I3", "gang %s waits and the planner refuses it although it obviously fits", key.Name)
	}
	// Without any node the scheduler asks no plugin.
	if len(infos) > 0 && !meta.IsStatusConditionTrue(s.group.Status.Conditions, v1alpha1.ConditionUnschedulable) {
		i.broken("explained", "gang %s waits and its PodGroup does not say why", key.Name)
	}
	for _, pod := range s.waiting {
		told := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != ""
		})
		if !told {
			i.broken("explained", "pod %s of gang %s waits and does not say why", pod.Name, key.Name)
		}
	}
}

// plan asks a planner that knows nothing yet, twice: I7.
func (i *inspector) plan(s gangState, pods []*corev1.Pod, min int, infos []fwk.NodeInfo) *planner.Plan {
	first, said := i.planOnce(s, pods, min, infos)
	shuffled := slices.Clone(infos)
	slices.Reverse(shuffled)
	second, saidThen := i.planOnce(s, pods, min, shuffled)
	if said != saidThen {
		i.broken("I7", "gang %s is planned in two ways: %s, and then %s", s.group.Name, said, saidThen)
	}
	_ = second
	return first
}

// demand describes pods of a gang to a model of the nodes that is made for that.
func (i *inspector) demand(s *gangState, pods []*corev1.Pod, min int, infos []fwk.NodeInfo) (*gangplan.Cluster, *gangplan.Demand, error) {
	cluster := gangplan.NewCluster(testLevels)
	cluster.Use(i.c.process.framework)
	cluster.Sync(infos)
	arrangement, err := podgroup.Arrange(s.group.Annotations, int(s.group.Spec.MinMember), s.members)
	if err != nil {
		return nil, nil, err
	}
	var placed []gangplan.Placed
	for _, pod := range s.placed {
		placed = append(placed, gangplan.Placed{UID: pod.UID, Node: pod.Spec.NodeName})
	}
	d, err := cluster.NewDemand(klog.Logger{}, pods, min, placed)
	must(err)
	return cluster, d, cluster.Constrain(d, arrangement)
}

func (i *inspector) planOnce(s gangState, pods []*corev1.Pod, min int, infos []fwk.NodeInfo) (*planner.Plan, string) {
	cluster, d, err := i.demand(&s, pods, min, infos)
	if err != nil {
		return nil, err.Error()
	}
	p := i.c.process
	plan, explanation, err := gangplan.Plan(p.ctx, p.framework, cluster, d, nil)
	must(err)
	if plan == nil {
		return nil, explanation.String()
	}
	var nodes []string
	for _, id := range plan.Nodes {
		if id == planner.NoNode {
			nodes = append(nodes, "-")
		} else {
			nodes = append(nodes, cluster.Info(id).Node().Name)
		}
	}
	return plan, strings.Join(nodes, " ")
}

// obviouslyFits is a second opinion without any planner, for gangs of equal members without topology.
func (i *inspector) obviouslyFits(s gangState, infos []fwk.NodeInfo) bool {
	topology, err := podgroup.ParseTopology(s.group.Annotations)
	if err != nil || topology.Required.Label != "" || topology.SliceLevel.Label != "" {
		return false
	}
	size := gpusOf(s.waiting[0])
	for _, pod := range s.waiting {
		if gpusOf(pod) != size {
			return false
		}
	}
	if size == 0 {
		return false
	}
	room := 0
	for _, info := range infos {
		node := info.Node()
		if node.Spec.Unschedulable || len(node.Spec.Taints) > 0 {
			continue
		}
		room += int((info.GetAllocatable().GetScalarResources()[GPU] - info.GetRequested().GetScalarResources()[GPU]) / size)
	}
	return room >= s.need()
}

package simulation

import (
	"slices"
	"strings"

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

// gangState is a gang as the API shows it, counted anew by the rules of the design.
type gangState struct {
	group           *v1alpha1.PodGroup
	bound, finished int // places
	waiting, gated  []*corev1.Pod
	// wanted are those of waiting that take nobody's place: a Job replaces a pod that is told to end, which then may
	// finish all the same.
	wanted  []*corev1.Pod
	placed  []*corev1.Pod
	members []podgroup.Member
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
	for _, pod := range s.waiting {
		if p := places[podgroup.IdentityOf(pod)]; !p.finished && !p.bound {
			s.wanted = append(s.wanted, pod)
		}
	}
	return s
}

// quorum is how many members need a place for one of them to have it.
func quorum(group *v1alpha1.PodGroup) int {
	settings, _ := podgroup.ParseSettings(group.Annotations)
	if settings.MatchPolicy == podgroup.OnceSatisfied && !settings.Record.AdmittedAt.IsZero() {
		return 1
	}
	return int(group.Spec.MinMember)
}

// need is how many more members the gang needs at a place, at least one.
func (s *gangState) need() int { return max(quorum(s.group)-s.bound-s.finished, 1) }

// complete is whether the gang can be planned.
func (s *gangState) complete() bool {
	return s.group != nil && s.group.Spec.MinMember > 0 && s.bound+s.finished+len(s.waiting) >= quorum(s.group)
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
	for _, o := range i.c.api.list((*corev1.Pod)(nil)) {
		i.checkSingle(o.(*corev1.Pod), infos)
	}
}

// checkSingle checks that a pod without a gang does not wait where it fits.
func (i *inspector) checkSingle(pod *corev1.Pod, infos []fwk.NodeInfo) {
	if _, ok := podgroup.Key(pod); ok || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodPending || len(pod.Spec.SchedulingGates) > 0 {
		return
	}
	if names, _ := i.reserved(); len(names) > 0 {
		return
	}
	for _, info := range infos {
		if usable(info.Node()) && freeGPUs(info) >= gpusOf(pod) {
			i.broken("I3", "pod %s waits although it fits on node %s", pod.Name, info.Node().Name)
		}
	}
}

func usable(node *corev1.Node) bool { return !node.Spec.Unschedulable && len(node.Spec.Taints) == 0 }

func freeGPUs(info fwk.NodeInfo) int64 {
	return info.GetAllocatable().GetScalarResources()[GPU] - info.GetRequested().GetScalarResources()[GPU]
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
		if s.bound > 0 && i.c.clock.Now().Sub(settings.Record.ReleasedAt) > i.releaseTime(key) {
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
	if len(s.wanted) < len(s.waiting) {
		return // some take the place of others, and the plugin only promises to place all of them together
	}
	satisfied := s.bound+s.finished >= quorum(s.group)
	if topology, _ := podgroup.ParseTopology(s.group.Annotations); satisfied && topology.SliceSize > 0 {
		// Members beyond the minimum come by whole slices.
		if plan := i.plan(s, s.waiting, 1, infos); plan != nil {
			i.broken("I3", "surplus members of gang %s wait although some fit", key.Name)
		}
		return
	}
	if satisfied {
		for _, pod := range s.waiting {
			if plan := i.plan(s, []*corev1.Pod{pod}, 1, infos); plan != nil {
				i.broken("I3", "surplus member %s of gang %s waits although it fits", pod.Name, key.Name)
			}
		}
		return
	}
	if plan := i.plan(s, s.waiting, s.need(), infos); plan != nil {
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
		if usable(info.Node()) {
			room += int(freeGPUs(info) / size)
		}
	}
	return room >= s.need()
}

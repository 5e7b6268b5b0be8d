package simulation

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// moment is what the scheduler knew when it decided on something: the nodes of its scheduling cycle with their pods, and
// what the plugin was shown of gangs.
type moment struct {
	at      time.Time
	nodes   []fwk.NodeInfo
	groups  map[types.NamespacedName]*v1alpha1.PodGroup
	members map[types.NamespacedName][]*corev1.Pod
	// pods are the members as the scheduler itself sees them.
	pods map[types.UID]*corev1.Pod
	// going are the pods on nodes that are on their way out, and overdue those of which nobody can tell whether they
	// ever will be gone.
	going, overdue sets.Set[types.UID]
	// kept are the pods that a budget keeps from every eviction, and budgets all those that the pods on nodes have.
	kept    sets.Set[types.UID]
	budgets map[types.UID]*policyv1.PodDisruptionBudget
	// nominated are the pods for which room is kept on nodes.
	nominated map[types.UID]nominated
	// current is set if the scheduler had been shown everything, and kept no room that cannot be seen from outside.
	current bool
}

type nominated struct {
	pod  *corev1.Pod
	node string
}

// overdue is how long after their grace period pods on their way out count as room to come.
const overdue = time.Minute

// remember keeps what the scheduler knows now.
func (i *inspector) remember() *moment {
	p := i.c.process
	m := &moment{
		at: i.c.clock.Now(), groups: map[types.NamespacedName]*v1alpha1.PodGroup{}, members: map[types.NamespacedName][]*corev1.Pod{},
		going: sets.New[types.UID](), overdue: sets.New[types.UID](), nominated: map[types.UID]nominated{},
		pods: map[types.UID]*corev1.Pod{}, kept: sets.New[types.UID](), budgets: map[types.UID]*policyv1.PodDisruptionBudget{},
	}
	infos, err := p.framework.SnapshotSharedLister().NodeInfos().List()
	must(err)
	for _, info := range infos {
		m.nodes = append(m.nodes, info.Snapshot())
		for _, on := range info.GetPods() {
			budget := i.c.api.budgetOf(on.GetPod())
			if budget != nil {
				m.budgets[on.GetPod().UID] = budget
			}
			switch pod := on.GetPod(); {
			case pod.DeletionTimestamp != nil && m.at.After(pod.DeletionTimestamp.Add(overdue)):
				m.overdue.Insert(pod.UID)
			case pod.DeletionTimestamp != nil || i.evicted.Has(pod.UID):
				m.going.Insert(pod.UID)
			case budget != nil && budget.Spec.MaxUnavailable.IntValue() == 0:
				m.kept.Insert(pod.UID)
			}
		}
		for _, n := range p.scheduler.SchedulingQueue.NominatedPodsForNode(info.Node().Name) {
			m.nominated[n.GetPod().UID] = nominated{n.GetPod(), info.Node().Name}
		}
	}
	for _, o := range p.groups.indexer.List() {
		group := o.(*v1alpha1.PodGroup)
		m.groups[nameOf(group)] = group
	}
	for _, o := range p.members.indexer.List() {
		pod := o.(*corev1.Pod)
		if key, ok := podgroup.Key(pod); ok {
			m.members[key] = append(m.members[key], pod)
			if full, known, _ := p.pods.indexer.GetByKey(keyOf(pod)); known {
				m.pods[pod.UID] = full.(*corev1.Pod)
			}
		}
	}
	for _, pods := range m.members {
		slices.SortFunc(pods, podgroup.CompareMembers)
	}
	holds := false
	for _, group := range m.groups {
		holds = holds || meta.IsStatusConditionTrue(group.Status.Conditions, v1alpha1.ConditionReserved) || meta.IsStatusConditionTrue(group.Status.Conditions, v1alpha1.ConditionProvisioning)
	}
	m.current = !holds && len(p.pods.pending)+len(p.members.pending)+len(p.groups.pending)+len(p.nodes.pending)+len(p.budgets.pending) == 0 && m.at.Sub(i.lastLoss) > roomKept
	return m
}

// postponed remembers what is known when the plugin leaves something for later, and looks afterwards whether that was
// a preemption.
func (i *inspector) postponed() func() {
	then := i.remember()
	return func() {
		asked := sets.New(i.c.process.evictions...)
		if by := i.preemptor; len(asked) > 0 && by.Name != "" {
			// What was left for later before this was done before it.
			for uid := range i.evicted {
				if !then.overdue.Has(uid) {
					then.going.Insert(uid)
					then.kept.Delete(uid)
				}
			}
			i.preempted(then, by, asked)
			for uid := range asked {
				if i.ends(uid) {
					i.evicted.Insert(uid)
				}
			}
		}
		i.preemptor = types.NamespacedName{}
	}
}

// ends reports whether a pod is being deleted, or was: one that had no node yet is gone at once.
func (i *inspector) ends(uid types.UID) bool {
	for _, pod := range i.c.api.pods {
		if pod.UID == uid {
			return pod.DeletionTimestamp != nil
		}
	}
	return true
}

// victims are the pods of one gang that were asked to go, or a pod without a gang.
type victims struct {
	gang types.NamespacedName
	// all are the pods that the gang had on nodes, in rank order, without those on their way out.
	all, asked []*corev1.Pod
	// needed is how many places the gang needs, without its finished members.
	needed int
}

// whole is set if nobody of the gang stays.
func (v *victims) whole() bool { return len(v.asked) == len(v.all) }

// preempted checks I6: what was known when it was decided that these pods go for a gang.
func (i *inspector) preempted(m *moment, by types.NamespacedName, asked sets.Set[types.UID]) {
	i.count("preemptions")
	units := i.victimsOf(m, asked)
	priority := int32(0)
	for _, pod := range m.members[by] {
		priority = max(priority, *pod.Spec.Priority)
	}
	for _, v := range units {
		i.mayGo(m, by, priority, v)
	}
	if !m.current {
		return
	}
	g := m.preemptor(by)
	if g == nil {
		return
	}
	i.count("preemptions judged by what they free")
	if !i.fits(m, g, asked, nil) {
		i.broken("I6", "%s are evicted for gang %s, which does not fit then", m.names(asked), by.Name)
		return
	}
	claims := m.claims(by, priority)
	if kept := asked.Intersection(m.kept); kept.Len() > 0 {
		i.count("budgets violated")
		if others := m.mayGoWithin(by, priority); i.fits(m, g, others, claims) {
			i.broken("I6", "%s are evicted for gang %s although their budgets forbid it, and others would do: %s", m.names(kept), by.Name, m.names(others))
		}
	}
	for _, stays := range alternatives(units) {
		rest := asked.Clone().Delete(stays...)
		if i.fits(m, g, rest, claims) {
			i.broken("I6", "%s are evicted for gang %s, and %s could stay", m.names(asked), by.Name, m.names(sets.New(stays...)))
		}
	}
}

// mayGo checks that victims are of lower priority, not protected, and a whole gang or what it can do without.
func (i *inspector) mayGo(m *moment, by types.NamespacedName, priority int32, v *victims) {
	for _, pod := range v.asked {
		if corev1helpers.PodPriority(pod) >= priority {
			i.broken("I6", "pod %s of priority %d is evicted for gang %s of priority %d", pod.Name, corev1helpers.PodPriority(pod), by.Name, priority)
		}
	}
	group := m.groups[v.gang]
	switch {
	case v.gang.Name == "":
		i.count("single pods evicted")
	case group != nil && group.Annotations[podgroup.PreemptibleAnnotation] == "false":
		i.broken("I6", "gang %s is evicted for gang %s although nobody may preempt it", v.gang.Name, by.Name)
	case v.whole():
		i.count("gangs evicted whole")
	case len(v.all)-len(v.asked) < v.needed:
		i.broken("I6", "%d of %d members of gang %s are evicted for gang %s, and it needs %d", len(v.asked), len(v.all), v.gang.Name, by.Name, v.needed)
	default:
		i.count("surplus evicted")
	}
}

// victimsOf sorts pods that were asked to go by gang.
func (i *inspector) victimsOf(m *moment, asked sets.Set[types.UID]) []*victims {
	byGang := map[types.NamespacedName]*victims{}
	var all []*victims
	for _, info := range m.nodes {
		for _, on := range info.GetPods() {
			pod := on.GetPod()
			key, member := podgroup.Key(pod)
			if m.going.Has(pod.UID) || m.overdue.Has(pod.UID) || !member && !asked.Has(pod.UID) {
				continue
			}
			v := byGang[key]
			if v == nil || !member {
				v = &victims{gang: key}
				all = append(all, v)
			}
			if member {
				byGang[key] = v
			}
			v.all = append(v.all, pod)
			if asked.Has(pod.UID) {
				v.asked = append(v.asked, pod)
			}
		}
	}
	all = slices.DeleteFunc(all, func(v *victims) bool { return len(v.asked) == 0 })
	for _, v := range all {
		slices.SortFunc(v.all, podgroup.CompareMembers)
		slices.SortFunc(v.asked, podgroup.CompareMembers)
		v.needed = len(v.all)
		if group := m.groups[v.gang]; group != nil {
			finished := sets.New[podgroup.Identity]()
			for _, pod := range m.members[v.gang] {
				if pod.Status.Phase == corev1.PodSucceeded {
					finished.Insert(podgroup.IdentityOf(pod))
				}
			}
			v.needed = int(group.Spec.MinMember) - finished.Len()
		}
	}
	return all
}

// alternatives are the sets of pods of which each would be allowed to stay alone: a pod without a gang, a member that
// its gang can do without, or as many members as a gang needs.
func alternatives(units []*victims) (all [][]types.UID) {
	for _, v := range units {
		surplus := v.asked
		if v.whole() {
			core := min(max(v.needed, 0), len(v.all))
			surplus = v.all[core:]
			if core > 0 {
				var uids []types.UID
				for _, pod := range v.all[:core] {
					uids = append(uids, pod.UID)
				}
				all = append(all, uids)
				continue // its surplus does not stay without it
			}
		}
		for _, pod := range surplus {
			all = append(all, []types.UID{pod.UID})
		}
	}
	return all
}

// mayGoWithin are the pods that a gang may preempt, all of them, without violating a budget.
func (m *moment) mayGoWithin(by types.NamespacedName, priority int32) sets.Set[types.UID] {
	may, protected := sets.New[types.UID](), sets.New[types.NamespacedName]()
	visit := func(do func(types.NamespacedName, bool, *corev1.Pod)) {
		for _, info := range m.nodes {
			for _, on := range info.GetPods() {
				pod := on.GetPod()
				key, member := podgroup.Key(pod)
				if !m.going.Has(pod.UID) && !m.overdue.Has(pod.UID) {
					do(key, member, pod)
				}
			}
		}
	}
	stays := func(pod *corev1.Pod) bool { return corev1helpers.PodPriority(pod) >= priority || m.kept.Has(pod.UID) }
	visit(func(key types.NamespacedName, member bool, pod *corev1.Pod) {
		group := m.groups[key]
		if member && (stays(pod) || group != nil && group.Annotations[podgroup.PreemptibleAnnotation] == "false") {
			protected.Insert(key)
		}
	})
	visit(func(key types.NamespacedName, member bool, pod *corev1.Pod) {
		if !stays(pod) && !(member && (key == by || protected.Has(key))) {
			may.Insert(pod.UID)
		}
	})
	// A budget may let some of a gang go and not all. Whether those would do is not looked into.
	going := map[*policyv1.PodDisruptionBudget]int32{}
	for uid := range may {
		going[m.budgets[uid]]++
	}
	for uid := range may {
		if budget := m.budgets[uid]; budget != nil && going[budget] > budget.Status.DisruptionsAllowed {
			may.Delete(uid)
		}
	}
	return may
}

// names lists pods.
func (m *moment) names(uids sets.Set[types.UID]) string {
	var names []string
	for _, info := range m.nodes {
		for _, on := range info.GetPods() {
			if uids.Has(on.GetPod().UID) {
				names = append(names, on.GetPod().Name)
			}
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// preemptor is the gang that pods are to go for, as it was known; nil if that cannot be told from outside.
func (m *moment) preemptor(key types.NamespacedName) *gangState {
	s := &gangState{group: m.groups[key]}
	if s.group == nil {
		return nil
	}
	onNode := map[types.UID]*corev1.Pod{}
	for _, info := range m.nodes {
		for _, on := range info.GetPods() {
			onNode[on.GetPod().UID] = on.GetPod()
		}
	}
	seen := sets.New[podgroup.Identity]()
	for _, pod := range m.members[key] {
		s.members = append(s.members, podgroup.MemberOf(pod))
		state := podgroup.StateOf(pod)
		if state == podgroup.Gone || state == podgroup.Failed {
			continue
		}
		id := podgroup.IdentityOf(pod)
		if seen.Has(id) {
			return nil
		}
		seen.Insert(id)
		switch placed := onNode[pod.UID]; {
		case state == podgroup.Succeeded:
			s.finished++
		case placed != nil && pod.Spec.NodeName == "":
			return nil // on its way to its node, or back
		case placed != nil:
			s.bound++
			s.placed = append(s.placed, placed)
		case pod.Spec.NodeName != "":
			return nil // on a node that is gone
		case len(pod.Spec.SchedulingGates) == 0:
			s.waiting = append(s.waiting, m.pods[pod.UID])
		}
	}
	if len(s.waiting) == 0 {
		return nil
	}
	return s
}

// claims is the room that is kept for other gangs which the preemptor must leave to them.
func (m *moment) claims(by types.NamespacedName, priority int32) []gangplan.Claim {
	placed := sets.New[types.UID]()
	for _, info := range m.nodes {
		for _, on := range info.GetPods() {
			placed.Insert(on.GetPod().UID)
		}
	}
	var claims []gangplan.Claim
	for _, uid := range sortedKeys(m.nominated) {
		n := m.nominated[uid]
		key, member := podgroup.Key(n.pod)
		if !member || key == by || placed.Has(uid) || corev1helpers.PodPriority(n.pod) < priority {
			continue
		}
		claim, err := gangplan.ClaimOf(n.pod, n.node)
		must(err)
		claims = append(claims, claim)
	}
	return claims
}

// fits reports whether a gang fits, by arithmetic, without some pods and without those on their way out.
func (i *inspector) fits(m *moment, g *gangState, without sets.Set[types.UID], claims []gangplan.Claim) bool {
	var nodes []fwk.NodeInfo
	for _, info := range m.nodes {
		info = info.Snapshot()
		for _, on := range slices.Clone(info.GetPods()) {
			if pod := on.GetPod(); without.Has(pod.UID) || m.going.Has(pod.UID) {
				must(info.RemovePod(klog.Logger{}, pod))
			}
		}
		nodes = append(nodes, info)
	}
	cluster, d, err := i.demand(g, g.waiting, g.need(), nodes)
	if err != nil {
		return false
	}
	defer cluster.Hold(claims)()
	plan, _, err := cluster.Plan(&d.Demand, nil)
	must(err)
	return plan != nil
}

package preemption

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/planner"
)

// overdue is how long after the end of its grace period a pod is still expected to go. One that is there even
// then, on a node that is lost for example, is room that may never come.
const overdue = time.Minute

// Unit is what is evicted as a whole or stays.
type Unit struct {
	planner.Victim
	// Group is the PodGroup that the pods are members of; zero for a pod without one.
	Group types.NamespacedName
	// Native is set if it is one of Kubernetes' own pod groups.
	Native bool
	// Surplus is set for a member that its gang can do without.
	Surplus bool
	// Members are the pods as the snapshot has them, in rank order.
	Members []fwk.PodInfo
}

// Candidates are who could make room for a gang.
type Candidates struct {
	// Units are in the order of their names, the core of a gang before its surplus.
	Units []Unit
	// Going are pods that are on their way out already: their room will come without an eviction.
	Going   []fwk.PodInfo
	budgets budgets
}

// Gang is what decides how a gang of scheduling.x-k8s.io may be preempted.
type Gang struct {
	// MinMember is how many members the gang needs, finished ones counted.
	MinMember, Finished int
	Preemptible         bool
	// LastCheckpoint is when the work was last saved; zero if never.
	LastCheckpoint time.Time
}

// Gangs knows the gangs of scheduling.x-k8s.io. It returns false for one that it does not know, whose
// members are then taken to be all needed.
type Gangs interface {
	Gang(types.NamespacedName) (Gang, bool)
}

// Census is what candidates are counted for.
type Census struct {
	Cluster *gangplan.Cluster
	Gangs   Gangs
	Budgets Budgets
	// Evicted reports whether a pod is being evicted although its object may not show that yet.
	Evicted func(types.UID) bool
	Now     time.Time
}

// Take looks at every pod in the snapshot, and returns the candidates for a preemptor of a priority. Its
// own members, which own tells, are none, but those on their way out make room as any others do.
func (c *Census) Take(priority int32, own func(*corev1.Pod) bool) (*Candidates, error) {
	out := &Candidates{}
	var err error
	if out.budgets, err = c.Budgets.read(); err != nil {
		return nil, err
	}
	groups := map[group][]fwk.PodInfo{}
	for id := range planner.NodeID(c.Cluster.NumNodes()) {
		for _, info := range c.Cluster.Info(id).GetPods() {
			pod := info.GetPod()
			switch {
			case pod.DeletionTimestamp != nil && c.Now.After(pod.DeletionTimestamp.Add(overdue)):
			case pod.DeletionTimestamp != nil || c.Evicted(pod.UID):
				out.Going = append(out.Going, info)
			case own(pod):
			default:
				if g, ok := groupOf(pod); ok {
					groups[g] = append(groups[g], info)
				} else if corev1helpers.PodPriority(pod) < priority && !protected(pod) {
					out.Units = append(out.Units, c.single(info, out.budgets))
				}
			}
		}
	}
	for g, members := range groups {
		if !slices.ContainsFunc(members, func(info fwk.PodInfo) bool {
			return corev1helpers.PodPriority(info.GetPod()) >= priority || protected(info.GetPod())
		}) {
			out.Units = append(out.Units, c.unitsOf(g, members, out.budgets)...)
		}
	}
	slices.SortFunc(out.Units, func(a, b Unit) int { return a.compare(&b) })
	out.tie()
	slices.SortFunc(out.Going, func(a, b fwk.PodInfo) int { return podgroup.CompareMembers(a.GetPod(), b.GetPod()) })
	return out, nil
}

// group tells gangs of both kinds apart.
type group struct {
	types.NamespacedName
	native bool
}

func groupOf(pod *corev1.Pod) (group, bool) {
	if key, ok := podgroup.Key(pod); ok {
		return group{key, false}, true
	}
	if key, ok := podgroup.NativeKey(pod); ok {
		return group{key, true}, true
	}
	return group{}, false
}

// protected reports whether a pod may not be evicted whatever its priority: a kubelet's own, which only seems
// to be deleted, and one whose owner says so.
func protected(pod *corev1.Pod) bool {
	if len(pod.Annotations) == 0 {
		return false
	}
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror || pod.Annotations[podgroup.PreemptibleAnnotation] == "false"
}

func (c *Census) single(info fwk.PodInfo, b budgets) Unit {
	pod := info.GetPod()
	settings, _ := podgroup.ParseSettings(pod.Annotations) // the default for what cannot be read
	u := Unit{Members: []fwk.PodInfo{info}}
	u.Tenant = planner.Tenant{Name: klog.KObj(pod).String(), Pod: true}
	c.fill(&u, settings.LastCheckpoint, b)
	return u
}

// unitsOf divides a gang into its core and the members that it can do without. Those are the last ones in
// rank order. Nothing is known of the quorum of a native group, or of a gang without a PodGroup: they go whole.
func (c *Census) unitsOf(g group, members []fwk.PodInfo, b budgets) []Unit {
	slices.SortFunc(members, func(x, y fwk.PodInfo) int { return podgroup.CompareMembers(x.GetPod(), y.GetPod()) })
	core, gang := len(members), Gang{Preemptible: true}
	if !g.native {
		if known, ok := c.Gangs.Gang(g.NamespacedName); ok {
			gang = known
			core = min(max(gang.MinMember-gang.Finished, 0), len(members))
		}
	}
	if !gang.Preemptible {
		return nil
	}
	var units []Unit
	if core > 0 {
		u := Unit{Group: g.NamespacedName, Native: g.native, Members: members[:core]}
		u.Tenant = planner.Tenant{Name: g.String()}
		c.fill(&u, gang.LastCheckpoint, b)
		units = append(units, u)
	}
	for i := range members[core:] {
		u := Unit{Group: g.NamespacedName, Native: g.native, Surplus: true, Members: members[core+i : core+i+1]}
		u.Tenant = planner.Tenant{Name: klog.KObj(u.Members[0].GetPod()).String(), Pod: true}
		c.fill(&u, gang.LastCheckpoint, b)
		units = append(units, u)
	}
	return units
}

// fill computes what the planner needs to know of a unit.
func (c *Census) fill(u *Unit, checkpoint time.Time, b budgets) {
	u.Pods, u.Priority = len(u.Members), corev1helpers.PodPriority(u.Members[0].GetPod())
	for _, info := range u.Members {
		pod := info.GetPod()
		u.Priority = max(u.Priority, corev1helpers.PodPriority(pod))
		u.Lost += lost(info, checkpoint, c.Now)
		node, known := c.Cluster.Node(pod.Spec.NodeName)
		if !known {
			continue
		}
		at := slices.IndexFunc(u.On, func(o planner.Occupancy) bool { return o.Node == node })
		if at < 0 {
			at = len(u.On)
			u.On = append(u.On, planner.Occupancy{Node: node})
		}
		u.On[at].Used = sum(u.On[at].Used, c.Cluster.UsedBy(info))
	}
	slices.SortFunc(u.On, func(a, b planner.Occupancy) int { return cmp.Compare(a.Node, b.Node) })
	u.Violations = b.exceeded(u.Members)
}

func sum(amounts, more []planner.Amount) []planner.Amount {
	if amounts == nil {
		return more
	}
	for _, a := range more {
		if i := slices.IndexFunc(amounts, func(b planner.Amount) bool { return a.Resource == b.Resource }); i >= 0 {
			amounts[i].Value += a.Value
		} else {
			amounts = append(amounts, a)
		}
	}
	return amounts
}

// lost is the work that is lost with a pod, in device-seconds: what it did since it started or since it was
// saved. A pod without devices counts as one.
func lost(info fwk.PodInfo, checkpoint, now time.Time) int64 {
	start := info.GetPod().Status.StartTime
	if start == nil {
		return 0
	}
	since := start.Time
	if checkpoint.After(since) {
		since = checkpoint
	}
	devices := int64(0)
	for name, value := range info.CalculateResource().Resource.GetScalarResources() {
		if schedutil.IsDRAExtendedResourceName(name) {
			devices += value
		}
	}
	return max(devices, 1) * max(int64(now.Sub(since)/time.Second), 0)
}

// compare orders units by name, numbers compared as numbers where they are ranks.
func (u *Unit) compare(v *Unit) int {
	a, b := u.Members[0].GetPod(), v.Members[0].GetPod()
	return cmp.Or(
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(u.Group.Name, v.Group.Name),
		compareBools(u.Native, v.Native),
		compareBools(u.Surplus, v.Surplus),
		podgroup.CompareMembers(a, b),
	)
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// tie makes the surplus of each gang go before its core does.
func (c *Candidates) tie() {
	for i := range c.Units {
		core := &c.Units[i]
		if core.Surplus || core.Group == (types.NamespacedName{}) {
			continue
		}
		for j := i + 1; j < len(c.Units) && c.Units[j].Group == core.Group && c.Units[j].Native == core.Native; j++ {
			core.With = append(core.With, j)
		}
	}
}

// victims are the units as the planner sees them.
func (c *Candidates) victims() []planner.Victim {
	out := make([]planner.Victim, len(c.Units))
	for i := range c.Units {
		out[i] = c.Units[i].Victim
	}
	return out
}

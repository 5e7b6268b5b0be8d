package coscheduling

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/preemption"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/podgroup/planner"
)

// census is a gang as the scheduling cycle finds it.
type census struct {
	// waiting are the members that this scheduler is to place, in rank order.
	waiting []*corev1.Pod
	// members are all pods of the gang that the census was taken of.
	members []podgroup.Member
	// present counts members that have their place or have finished, and placed are the places.
	present int
	placed  []gangplan.Placed
	// bound are the members that the API server has bound, with their nodes.
	bound []podgroup.Member
	// foreign counts waiting members that name another scheduler.
	foreign int
	// finished counts members that succeeded; they are part of present.
	finished int
	// unseen counts waiting members that the scheduler's own informer does not show yet.
	unseen int
	// paused counts waiting members that could not be bound and whose own turn is still to come.
	paused int
	// doubles counts those of waiting that take the place of another pod of the census, as when an index of a Job
	// succeeded after the Job had replaced its pod: they bring the gang no nearer to its minimum.
	doubles int
	// releases is how often other gangs had given up what they held.
	releases uint64
}

// take counts the gang's members. The given member is the one whose turn it is.
func (pl *Coscheduling) take(key types.NamespacedName, pod *corev1.Pod) census {
	// In this order: a member that arrives in between is counted where it was, not nowhere.
	placed := pl.gangs.placedNodes(key)
	members, counts := pl.members.Counted(key)
	c := census{members: members, present: counts.Bound + counts.Finished, finished: counts.Finished, releases: pl.gangs.releasesSoFar()}
	lister := pl.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(key.Namespace)
	double := doublesOf(members, counts)
	paused := pl.gangs.unboundBeside(key, pod.UID)
	for _, m := range members {
		switch m.State {
		case podgroup.Bound, podgroup.Running:
			c.bound = append(c.bound, m)
		case podgroup.Waiting:
			if node, ok := placed[m.UID]; ok {
				if !double(m) {
					c.present++
				}
				c.placed = append(c.placed, gangplan.Placed{UID: m.UID, Node: node})
				continue
			}
			if m.Gated {
				continue
			}
			if m.SchedulerName != pl.handle.ProfileName() {
				c.foreign++
				continue
			}
			if paused.Has(m.UID) {
				c.paused++
				continue
			}
			member := pod
			if m.UID != pod.UID {
				var err error
				if member, err = lister.Get(m.Name); err != nil || member.UID != m.UID {
					c.unseen++
					continue
				}
			}
			if member.Spec.NodeName != "" {
				// Bound by somebody else, which the index is about to show.
				if !double(m) {
					c.present++
				}
				m.Node = member.Spec.NodeName
				c.bound = append(c.bound, m)
				continue
			}
			c.waiting = append(c.waiting, member)
			if double(m) {
				c.doubles++
			}
		}
	}
	for _, m := range c.bound {
		c.placed = append(c.placed, gangplan.Placed{UID: m.UID, Node: m.Node})
	}
	return c
}

// unshown says that a member has been bound, by somebody else, to a node on which the cycle's snapshot does not show it
// yet: what it takes there would be given away once more. It returns "" if there is none.
func (pl *Coscheduling) unshown(c census) string {
	for _, m := range c.bound {
		if _, known := pl.cluster.Node(m.Node); known && pl.cluster.PodOn(m.Node, m.UID) == nil {
			return fmt.Sprintf("the scheduler is yet to see member %q on its node", m.Name)
		}
	}
	return ""
}

// placed counts the places of the gang that are taken: by members that are bound, have finished, or are on their way
// to their node.
func (pl *Coscheduling) placed(key types.NamespacedName) int {
	onWay := pl.gangs.placedNodes(key)
	places := sets.New[podgroup.Identity]()
	for _, m := range pl.members.Members(key) {
		if m.State > podgroup.Waiting || m.State == podgroup.Waiting && onWay[m.UID] != "" {
			places.Insert(m.Identity)
		}
	}
	return places.Len()
}

// doublesOf returns a function that tells whether a waiting member takes a place that another pod has, or that
// was asked about before.
func doublesOf(members []podgroup.Member, counts podgroup.Counts) func(podgroup.Member) bool {
	if len(members) == counts.Present+counts.Failed+counts.Gone {
		return func(podgroup.Member) bool { return false } // as many places as pods
	}
	taken := sets.New[podgroup.Identity]()
	for _, m := range members {
		if m.State > podgroup.Waiting {
			taken.Insert(m.Identity)
		}
	}
	return func(m podgroup.Member) bool {
		double := taken.Has(m.Identity)
		taken.Insert(m.Identity)
		return double
	}
}

// admit plans the gang of a member and starts its commit, or refuses the gang. It returns the
// member's node, or why it has none.
func (pl *Coscheduling) admit(ctx context.Context, key types.NamespacedName, pod *corev1.Pod, nodes []fwk.NodeInfo) (node, why string, err error) {
	started := pl.clock.Now()
	if why := pl.incomplete(key); why != "" {
		return "", why, nil
	}
	group, c := pl.group(key), pl.take(key, pod)
	if group == nil || !slices.Contains(c.waiting, pod) {
		// The event that shows what changed puts the members in line again.
		return "", fmt.Sprintf("PodGroup %q changed while its turn came", key.Name), nil
	}
	quorum := quorumOf(group)
	need := max(quorum-c.present, 1)
	if len(c.waiting)-c.doubles < need && c.paused > 0 {
		// The first of them whose turn comes finds all of them.
		pl.gangs.cameEarly(key, pod)
		return "", fmt.Sprintf("%d members of PodGroup %q could not be bound and are to be tried again first", c.paused, key.Name), nil
	}
	if len(c.waiting)-c.doubles < need && c.unseen > 0 {
		// The last of them to be seen finds all of them.
		pl.gangs.cameEarly(key, pod)
		return "", fmt.Sprintf("%d members of PodGroup %q are yet to be seen by the scheduler", c.unseen, key.Name), nil
	}
	refuse := func(reason string, r *refusal) (string, string, error) {
		pl.refuse(ctx, key, group, pod.UID, c, reason, r)
		planDuration.WithLabelValues("refused").Observe(pl.clock.Since(started).Seconds())
		return "", r.message, nil
	}
	if why := disagreement(group, c, need); why != "" {
		return refuse(ReasonMembersDisagree, &refusal{message: why})
	}
	if pl.gangs.freeing(key, 0) {
		r := &refusal{reason: ReasonAllocating, message: "devices are being taken back from resource claims of the gang", learned: true}
		pl.turnAway(ctx, key, pod.UID, c, r)
		if !pl.gangs.freeing(key, 0) { // just now, before it was known who tries again
			pl.activateRepresentative(klog.FromContext(ctx), key)
		}
		return "", r.message, nil
	}
	pl.cluster.Sync(nodes)
	if why := pl.unshown(c); why != "" {
		r := &refusal{message: why, learned: true}
		pl.turnAway(ctx, key, pod.UID, c, r)
		pl.tryLater(klog.FromContext(ctx), key) // until it does
		return "", r.message, nil
	}
	d, err := pl.demand(ctx, group, c, c.waiting, min(need+c.doubles, len(c.waiting)))
	switch {
	case errors.As(err, new(*podgroup.TopologyError)):
		return refuse(ReasonInvalidTopology, &refusal{message: err.Error(), invalid: true})
	case err != nil:
		return "", "", err
	}
	d.MinResources = pl.minResources(group, c, key)
	plan, explanation, err := pl.plan(ctx, key, d)
	surplus := c.present >= quorum
	if err == nil && explanation != nil {
		verdict := pl.unplaced(key, d, explanation)
		if surplus {
			d, plan, err = pl.planOthers(ctx, key, group, c, d, verdict)
		}
		if err == nil && plan == nil {
			if c.present == 0 {
				pl.free(klog.FromContext(ctx), key, c.waiting)
			}
			if surplus {
				pl.endPreempting(klog.FromContext(ctx), key, nil, ReasonMembersChanged, "the gang has its minimum without the members that it preempted for", time.Time{})
			} else {
				switch waits, err := pl.makeRoom(ctx, key, group, pod.UID, c, d, verdict); {
				case err != nil:
					return "", "", err
				case waits:
					planDuration.WithLabelValues("refused").Observe(pl.clock.Since(started).Seconds())
					return "", verdict.message, nil
				}
				pl.reserveRoom(klog.FromContext(ctx), key, d, explanation)
			}
			return refuse(ReasonUnschedulable, verdict)
		}
	}
	switch {
	case err != nil:
		return "", "", err
	case len(d.Allocations) > 0:
		if why := tooManyUsers(d.Allocations); why != "" {
			return refuse(ReasonMembersDisagree, &refusal{message: why, learned: true})
		}
		if why, err = pl.allocate(ctx, key, d.Allocations); err == nil {
			pl.turnAway(ctx, key, pod.UID, c, &refusal{reason: ReasonAllocating, message: why, learned: true})
		}
		return "", why, err
	}
	commit := pl.newCommit(d, plan)
	commit.surplus, commit.need = surplus, d.Min
	waited := pl.gangs.preemptingOf(key)
	seats := pl.begin(klog.FromContext(ctx), key, commit)
	pl.preemptedFor(klog.FromContext(ctx), key, group, waited, seats)
	if pl.reserving.now() != nil {
		pl.backfilled(pl.candidate(key, d.Pods...), nodesOfSeats(seats)...)
	}
	planDuration.WithLabelValues("planned").Observe(pl.clock.Since(started).Seconds())
	klog.FromContext(ctx).V(2).Info("Gang is planned", "podGroup", key, "members", len(seats), "placed", c.present, "domain", plan.Domain)
	if t, wait := group.Spec.ScheduleTimeoutSeconds, pl.commitWait(key); t != nil && time.Duration(*t)*time.Second > wait {
		klog.FromContext(ctx).Info("spec.scheduleTimeoutSeconds is longer than members can wait; they wait for the longest time possible",
			"podGroup", key, "scheduleTimeoutSeconds", *t, "wait", wait)
	}
	pl.nominate(ctx, seats)
	pl.checkStillThere(ctx, key, group, seats)
	for _, s := range seats {
		if s.pod.UID == pod.UID {
			return s.Node, "", nil
		}
	}
	return "", "the gang goes on without this member, for which there is no room now", nil
}

// disagreement says why the members cannot be placed as one gang, or returns "".
func disagreement(group *v1alpha1.PodGroup, c census, need int) string {
	if len(c.waiting)-c.doubles < need && c.present < int(group.Spec.MinMember) {
		why := fmt.Sprintf("gang needs %d members, %d are for this scheduler to place", need, len(c.waiting)-c.doubles)
		if c.foreign > 0 {
			why += fmt.Sprintf("; %d name another schedulerName", c.foreign)
		}
		return why
	}
	first := c.waiting[0]
	for _, p := range c.waiting[1:] {
		if a, b := corev1helpers.PodPriority(first), corev1helpers.PodPriority(p); a != b {
			return fmt.Sprintf("all members of a gang need one priority: pod %q has %d, pod %q has %d", first.Name, a, p.Name, b)
		}
		if preemption.Never(first) != preemption.Never(p) {
			return fmt.Sprintf("all members of a gang need one preemptionPolicy: pod %q has %s, pod %q has %s", first.Name, preemption.PolicyOf(first), p.Name, preemption.PolicyOf(p))
		}
	}
	return ""
}

// demand describes pods of the gang, of which at least min must be placed, beside its members that have
// their place already. The error is a *podgroup.TopologyError if nothing in the cluster could help.
func (pl *Coscheduling) demand(ctx context.Context, group *v1alpha1.PodGroup, c census, pods []*corev1.Pod, min int) (*gangplan.Demand, error) {
	arrangement, err := podgroup.Arrange(group.Annotations, int(group.Spec.MinMember), c.members)
	if err != nil {
		return nil, err
	}
	d, err := pl.cluster.NewDemand(klog.FromContext(ctx), pods, min, c.placed)
	if err != nil {
		return nil, err
	}
	return d, pl.cluster.Constrain(d, arrangement)
}

// plan asks for places for the gang beside what other gangs hold.
func (pl *Coscheduling) plan(ctx context.Context, key types.NamespacedName, d *gangplan.Demand) (*planner.Plan, *planner.Explanation, error) {
	for _, pod := range d.Pods {
		// A nomination of an earlier attempt, also of a scheduler that died, would stand in the way of
		// the gang's own members.
		pl.handle.DeleteNominatedPodIfExists(pod)
	}
	return gangplan.Plan(ctx, pl.handle, pl.cluster, d, pl.mustLeave(key, d.Pods...))
}

// minResources is what the PodGroup's minResources still ask for: members that have their place
// have theirs, and a finished member needs its share no more.
func (pl *Coscheduling) minResources(group *v1alpha1.PodGroup, c census, key types.NamespacedName) []planner.Amount {
	if len(group.Spec.MinResources) == 0 || c.present >= quorumOf(group) {
		return nil
	}
	held := map[planner.Resource]int64{}
	for _, info := range pl.placedInfos(key) {
		if info.GetPod().DeletionTimestamp != nil {
			continue // its replacement needs the same again
		}
		for _, a := range pl.cluster.Requests(info) {
			held[a.Resource] += a.Value
		}
	}
	var out []planner.Amount
	for _, name := range sets.List(sets.KeySet(group.Spec.MinResources)) {
		quantity := group.Spec.MinResources[name]
		value := quantity.Value()
		if name == corev1.ResourceCPU {
			value = quantity.MilliValue()
		}
		resource := pl.cluster.Resource(string(name))
		if value > 0 {
			value -= shareOf(value, c.finished, int(group.Spec.MinMember)) + held[resource]
		}
		if value > 0 {
			out = append(out, planner.Amount{Resource: resource, Value: value})
		}
	}
	return out
}

// shareOf returns value * part / whole, rounded down. It takes no detour over numbers that are too
// large or not exact; part is at most whole.
func shareOf(value int64, part, whole int) int64 {
	hi, lo := bits.Mul64(uint64(value), uint64(part))
	share, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(share)
}

// placedInfos returns the gang's members on the nodes that hold any, from the snapshot.
func (pl *Coscheduling) placedInfos(key types.NamespacedName) []fwk.PodInfo {
	var out []fwk.PodInfo
	seen := sets.New[string]()
	visit := func(node string) {
		id, ok := pl.cluster.Node(node)
		if !ok || seen.Has(node) {
			return
		}
		seen.Insert(node)
		for _, info := range pl.cluster.Info(id).GetPods() {
			if k, ok := podgroup.Key(info.GetPod()); ok && k == key {
				out = append(out, info)
			}
		}
	}
	for _, m := range pl.members.Members(key) {
		visit(m.Node)
	}
	for _, node := range pl.gangs.placedNodes(key) {
		visit(node)
	}
	return out
}

func (pl *Coscheduling) newCommit(d *gangplan.Demand, plan *planner.Plan) *commit {
	c := &commit{seats: map[types.UID]*seat{}, priority: corev1helpers.PodPriority(d.Pods[0])}
	for i, node := range plan.Nodes {
		if node != planner.NoNode {
			c.seats[d.Pods[i].UID] = pl.newSeat(d, i, node)
		}
	}
	return c
}

func (pl *Coscheduling) newSeat(d *gangplan.Demand, member int, node planner.NodeID) *seat {
	return &seat{
		pod: d.Pods[member], info: d.Infos[member],
		Claim: pl.cluster.ClaimFor(d, member, node),
	}
}

// refuse turns the gang away and reports why.
func (pl *Coscheduling) refuse(ctx context.Context, key types.NamespacedName, group *v1alpha1.PodGroup, turn types.UID, c census, reason string, r *refusal) {
	if r.ahead = pl.behind(key, corev1helpers.PodPriority(c.waiting[0])); r.ahead.told != "" && reason == ReasonUnschedulable {
		r.message += "; " + r.ahead.told
	}
	r.reason, r.surplus = reason, c.present >= int(group.Spec.MinMember)
	klog.FromContext(ctx).V(2).Info("Gang is refused", "podGroup", key, "reason", reason, "why", r.message)
	pl.turnAway(ctx, key, turn, c, r)
	if reason != ReasonUnschedulable {
		pl.needsNoRoom(klog.FromContext(ctx), key, reason, r.message)
	}
	if !r.surplus {
		pl.report.refused(key, reason, r.message)
		if reason != ReasonPreempting {
			pl.correctPreempting(key, group)
		}
		pl.correctProvisioning(key, group)
		pl.correctReservation(key, group)
	}
}

// turnAway turns the gang away as one. The member whose turn it is stands for all of them: the
// scheduler's queue keeps for it the events that happened while the gang was being planned.
func (pl *Coscheduling) turnAway(ctx context.Context, key types.NamespacedName, turn types.UID, c census, r *refusal) {
	before := pl.gangs.refusalOf(key)
	r.representative, r.members, r.priority = turn, make(map[types.UID]version, len(c.waiting)), corev1helpers.PodPriority(c.waiting[0])
	for _, p := range c.waiting {
		r.members[p.UID] = versionOf(p)
	}
	early := pl.gangs.refuse(key, r)
	if pl.members.Generation(key) == 0 {
		pl.gangs.forget(key) // its last pod went meanwhile
	}
	logger := klog.FromContext(ctx)
	pl.activatePods(logger, early...) // they say the same on their pods
	if before != nil && before.podReason() != r.podReason() {
		pl.retell(logger, key, r)
	}
	if !r.invalid && pl.gangs.releasesSoFar() != c.releases {
		// Another gang gave up what it held since this one was planned around that, and whoever did so
		// did not know of this verdict.
		pl.activateRepresentative(logger, key)
	}
	if pl.sightings.Load() != pl.shown.now {
		pl.tryLater(logger, key)
	}
}

package coscheduling

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup/planner"
)

// refusal is a verdict on a whole gang. Only its representative is tried again; the other members
// share the verdict.
type refusal struct {
	// reason is the kind of the verdict, as the PodGroup's condition has it.
	reason         string
	message        string
	priority       int32
	representative types.UID
	// members are the waiting members that the verdict was passed on.
	members map[types.UID]version
	// aside are those that were told of it since. Unlike the rest it changes, under the lock of the gangs.
	aside map[types.UID]aside
	// watch tells which changes of nodes and pods could help; nil if any could.
	watch *gangplan.Watch
	// advice is what was told of the cluster, if that is what it is about.
	advice advised
	// ahead is who goes first, where that is told.
	ahead ahead
	// surplus is set if the gang has its minimum, and needs are what the members that it lacks request, if that is
	// what the verdict is about.
	surplus bool
	needs   []planner.ClassNeed
	// newcomers is what the gang could use of new nodes, nil if none are to be held for it.
	newcomers *gangplan.Newcomers
	// invalid is set if the gang asks for a topology that cannot be, so that nothing in the cluster could
	// help.
	invalid bool
	// learned is set if a Filter plugin had a part in it, so that other changes could help too.
	learned bool
	// resting is set while a gang that was let go is not to be planned, whatever happens in the
	// cluster: its own members leaving their places would start it again at once.
	resting bool
}

// version tells whether a pod's own rules changed since a verdict: its spec, or the resource claims
// that were made for it.
type version struct {
	generation int64
	claims     int
}

func versionOf(pod *corev1.Pod) version {
	return version{pod.Generation, len(pod.Status.ResourceClaimStatuses)}
}

// passedOn reports whether the verdict was passed on a member.
func (r *refusal) passedOn(uid types.UID) bool {
	_, ok := r.members[uid]
	return ok
}

// forMember reports whether the verdict keeps a member from having its gang planned.
func (r *refusal) forMember(uid types.UID) bool {
	return r.passedOn(uid) && (r.resting || r.representative != uid)
}

// helpedBy reports whether the gang may fit now that others hold some claims no more.
func (r *refusal) helpedBy(claims []gangplan.Claim) bool {
	if r.invalid {
		return false
	}
	return r.watch == nil || slices.ContainsFunc(claims, r.watch.ClaimHelps)
}

// holds reports whether the verdict still holds for a pod that it was passed on. A pod whose own
// rules changed may change it.
func (r *refusal) holds(pod *corev1.Pod) bool {
	return r.resting || r.members[pod.UID] == versionOf(pod)
}

package coscheduling

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup"
)

// commit is a plan and how far its members have followed it. No member binds before all of them
// are reserved.
type commit struct {
	seats    map[types.UID]*seat
	reserved int
	priority int32
	// replanned is how many members were reserved when the commit was last planned anew, plus one; 0
	// if it never was.
	replanned int
	// surplus is set if the gang has its minimum without the members of this commit.
	surplus bool
	// need is how many members it must place; those beyond may go while it is under way.
	need int
}

// seat is the place of one member in a commit.
type seat struct {
	gangplan.Claim
	pod      *corev1.Pod
	info     fwk.PodInfo
	reserved bool
}

// inOrder returns the seats in rank order.
func (c *commit) inOrder() []*seat {
	seats := make([]*seat, 0, len(c.seats))
	for _, s := range c.seats {
		seats = append(seats, s)
	}
	slices.SortFunc(seats, func(a, b *seat) int { return podgroup.CompareMembers(a.pod, b.pod) })
	return seats
}

// nodesOfSeats lists the nodes of seats.
func nodesOfSeats(seats []*seat) []string {
	nodes := make([]string, len(seats))
	for i, s := range seats {
		nodes[i] = s.Node
	}
	return nodes
}

// claimsOf lists what seats claim.
func claimsOf(seats []*seat) []gangplan.Claim {
	claims := make([]gangplan.Claim, len(seats))
	for i, s := range seats {
		claims[i] = s.Claim
	}
	return claims
}

// released is a commit that was let go: its seats in rank order, what to tell their members, and
// how often in a row this happened.
type released struct {
	seats    []*seat
	message  string
	failures int
	surplus  bool
}

func (x *gang) release(message string) *released {
	c := x.commit
	x.failures++
	r := &released{message: message, failures: x.failures, seats: c.inOrder(), surplus: c.surplus}
	members := map[types.UID]version{}
	for uid, s := range c.seats {
		members[uid] = versionOf(s.pod)
		if s.reserved {
			// Its place is as good as lost: nobody may count on it until it comes back.
			delete(x.placed, uid)
			x.leaving.Insert(uid)
		}
	}
	x.commit = nil
	x.refusal = &refusal{reason: ReasonLetGo, message: message, priority: c.priority, representative: r.seats[0].pod.UID, members: members, resting: true, surplus: c.surplus}
	return r
}

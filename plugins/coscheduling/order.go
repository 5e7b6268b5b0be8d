package coscheduling

import (
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-sched/muster/podgroup"
)

// QueueOrder is what decides among gangs, and pods without one, of equal priority.
type QueueOrder string

const (
	// PriorityFIFO lets the oldest go first. It is the default.
	PriorityFIFO QueueOrder = "PriorityFIFO"

	// FairShare lets those of the namespace go first that has the smallest share of the accelerators, and of one
	// share the oldest.
	FairShare QueueOrder = "FairShare"

	// ShortestFirst lets those go first that declare the shortest run time, then those that declare none, and of one run
	// time the oldest.
	ShortestFirst QueueOrder = "ShortestFirst"
)

var queueOrders = []QueueOrder{PriorityFIFO, FairShare, ShortestFirst}

// Less orders the queue by priority, then members that their gang lacks, which goes on without them, then, under
// FairShare, by the share of the namespace and, under ShortestFirst, by the declared run time, then by age, then by gang, then by rank as a number. A gang is as old as its
// PodGroup, whenever its members came, so that they stand in line together; a pod without a gang, and a native pod
// group, is as old as its time in the queue, as under the default
// order.
//
// It runs under the queue's lock, and all that it looks at stays the same while an entity is in the queue: see line.
func (pl *Coscheduling) Less(a, b fwk.QueuedEntityInfo) bool {
	if p, q := a.GetPriority(), b.GetPriority(); p != q {
		return p > q
	}
	x, y := pl.place(a), pl.place(b)
	if x.urgent != y.urgent {
		return x.urgent
	}
	if x.share != y.share {
		return x.share < y.share
	}
	if x.runs != y.runs {
		return x.runs < y.runs
	}
	if c := x.since.Compare(y.since); c != 0 {
		return c < 0
	}
	if c := strings.Compare(x.gang, y.gang); c != 0 {
		return c < 0
	}
	if x.pod == nil || y.pod == nil {
		return x.pod == nil && y.pod != nil
	}
	return podgroup.CompareMembers(x.pod, y.pod) < 0
}

// place is where an entity stands in the queue, among those of its priority.
type place struct {
	standing
	since time.Time
	gang  string // "" if none
	pod   *corev1.Pod
}

func (pl *Coscheduling) place(e fwk.QueuedEntityInfo) place {
	info, ok := e.(*framework.QueuedPodInfo)
	if !ok {
		p := place{since: e.GetTimestamp()}
		if group, ok := e.(*framework.QueuedPodGroupInfo); ok {
			p.standing = pl.line.ofGroup(group)
		}
		return p
	}
	p := place{standing: pl.line.of(info.Pod.UID), since: e.GetTimestamp(), pod: info.Pod}
	if key, ok := podgroup.Key(info.Pod); ok {
		p.gang = key.String()
		// The time in the queue changes with every retry; the group's creation never does.
		p.since = info.Pod.CreationTimestamp.Time
		if group := pl.group(key); group != nil {
			p.since = group.CreationTimestamp.Time
		}
	}
	return p
}

// standingOf is how a pod stands that comes into line now.
func (pl *Coscheduling) standingOf(pod *corev1.Pod, urgent bool) standing {
	s := standing{urgent: urgent}
	if !pl.line.shortest {
		return s
	}
	s.runs = noRunTime
	if key, member := podgroup.Key(pod); !member {
		s.runs = candidateFor(key, nil, pod).runTime
	} else if group := pl.group(key); group != nil {
		s.runs = candidateFor(key, group.Annotations, pod).runTime
	}
	if s.runs == 0 {
		s.runs = noRunTime
	}
	return s
}

// noRunTime stands for a run time that nobody declared.
const noRunTime = time.Duration(math.MaxInt64)

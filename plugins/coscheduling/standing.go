package coscheduling

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"
)

// standing is what the place of a pod in line depends on besides what never changes about it.
type standing struct {
	// share is its namespace's share under the order FairShare, in thousandths; 0 under any other.
	share int
	// urgent is set for a member that its gang lacks: other members have their places, and they are too few.
	urgent bool
	// runs is the run time that it declares under the order ShortestFirst; 0 under any other.
	runs time.Duration
}

// line remembers how the pods in the scheduler's queue stood when they came into line. The queue is a heap: while an
// entity is in it, nothing about its place may change. The scheduler asks PreEnqueue each time before it puts an
// entity there, and only then, so that this is the moment at which a standing is taken.
//
// One line is shared by all profiles of a scheduler: it has one queue, which is ordered by the plugin of one profile
// and entered by way of that of the pod's own. It is safe for concurrent use.
type line struct {
	clock clock.PassiveClock

	// usage is nil unless the order is FairShare.
	usage *usage
	// shortest is whether the order is ShortestFirst.
	shortest bool

	mu        sync.RWMutex
	standings map[types.UID]standing
	gone      []leaver
}

// leaver is a pod that is not in line any more.
type leaver struct {
	pod types.UID
	at  time.Time
}

// forgetAfter is for how long a standing outlives its pod: the scheduler may hear of a pod's end after this plugin.
const forgetAfter = time.Minute

// lines are the lines of the schedulers in this process, by the informers that the profiles of each share.
var lines = struct {
	sync.Mutex
	byFactory map[informers.SharedInformerFactory]*line
}{byFactory: map[informers.SharedInformerFactory]*line{}}

func newLine(clock clock.PassiveClock, args *Args) *line {
	l := &line{clock: clock, standings: map[types.UID]standing{}, shortest: args.QueueOrder == ShortestFirst}
	if args.QueueOrder == FairShare {
		l.usage = newUsage(clock, args.FairShare)
	}
	return l
}

// lineOf returns the line of the scheduler that has these informers, until done is closed. All profiles give it the
// same arguments: the scheduler checks that.
func lineOf(done <-chan struct{}, factory informers.SharedInformerFactory, clock clock.PassiveClock, args *Args) (*line, error) {
	lines.Lock()
	defer lines.Unlock()
	if l, ok := lines.byFactory[factory]; ok {
		return l, nil
	}
	l := newLine(clock, args)
	if l.usage != nil || l.shortest {
		if err := l.watch(factory); err != nil {
			return nil, err
		}
	}
	lines.byFactory[factory] = l
	go func() {
		<-done
		lines.Lock()
		defer lines.Unlock()
		delete(lines.byFactory, factory)
	}()
	return l, nil
}

// watch keeps the use of each namespace up to date, and drops the standings of pods that are gone.
func (l *line) watch(factory informers.SharedInformerFactory) error {
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { l.podChanged(obj.(*corev1.Pod)) },
		UpdateFunc: func(old, obj any) {
			if was, pod := old.(*corev1.Pod), obj.(*corev1.Pod); was.UID != pod.UID {
				l.podGone(was)
			}
			l.podChanged(obj.(*corev1.Pod))
		},
		DeleteFunc: func(obj any) {
			if pod, ok := untombed[*corev1.Pod](obj); ok {
				l.podGone(pod)
			}
		},
	})
	if err != nil || l.usage == nil {
		return err
	}
	_, err = factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { l.usage.setNode(obj.(*corev1.Node)) },
		UpdateFunc: func(_, obj any) { l.usage.setNode(obj.(*corev1.Node)) },
		DeleteFunc: func(obj any) {
			if node, ok := untombed[*corev1.Node](obj); ok {
				l.usage.deleteNode(node)
			}
		},
	})
	return err
}

func (l *line) podChanged(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		return
	}
	if l.usage == nil || l.usage.add(pod) {
		l.leave(pod.UID)
	}
}

func (l *line) podGone(pod *corev1.Pod) {
	if l.usage != nil {
		l.usage.remove(pod)
	}
	l.leave(pod.UID)
}

// enter takes the standing of a pod that is about to come into line. The share is found out here.
func (l *line) enter(pod *corev1.Pod, s standing) {
	if l.usage != nil {
		s.share = l.usage.share(pod.Namespace)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep()
	if s == (standing{}) {
		delete(l.standings, pod.UID)
	} else {
		l.standings[pod.UID] = s
	}
}

// leave notes that a pod does not come into line again.
func (l *line) leave(pod types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.standings[pod]; ok {
		l.gone = append(l.gone, leaver{pod, l.clock.Now()})
	}
}

// sweep forgets pods that left a while ago. The lock is held.
func (l *line) sweep() {
	now, n := l.clock.Now(), 0
	for n < len(l.gone) && now.Sub(l.gone[n].at) >= forgetAfter {
		delete(l.standings, l.gone[n].pod)
		n++
	}
	l.gone = l.gone[n:]
}

// of returns how a pod stands.
func (l *line) of(pod types.UID) standing {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.standings[pod]
}

// ofGroup returns how a native pod group stands: as the first of its pods, or as the worst of those if it is made of
// several groups. It comes into line anew whenever it gets or loses a pod.
func (l *line) ofGroup(info *framework.QueuedPodGroupInfo) standing {
	worst := standing{}
	if l.usage == nil && !l.shortest {
		return worst
	}
	for _, pods := range info.QueuedPodInfos {
		if len(pods) > 0 {
			s := l.of(pods[0].Pod.UID)
			worst.share, worst.runs = max(worst.share, s.share), max(worst.runs, s.runs)
		}
	}
	return worst
}

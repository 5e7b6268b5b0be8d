package preemption

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// Priorities counts the pods on nodes by priority, so that a gang with nothing below it is told so without a
// look at any pod. Pod events keep it up to date. It is safe for concurrent use.
type Priorities struct {
	mu     sync.Mutex
	counts map[int32]int
	of     map[types.UID]int32
}

// NewPriorities returns an index without pods.
func NewPriorities() *Priorities {
	return &Priorities{counts: map[int32]int{}, of: map[types.UID]int32{}}
}

// Update records a pod that was added or changed.
func (p *Priorities) Update(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		return // nobody is taken off a node
	}
	priority := corev1helpers.PodPriority(pod)
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, known := p.of[pod.UID]; known {
		if was == priority {
			return
		}
		p.drop(pod.UID, was)
	}
	p.of[pod.UID] = priority
	p.counts[priority]++
}

// Delete records that a pod is gone.
func (p *Priorities) Delete(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, known := p.of[uid]; known {
		p.drop(uid, was)
	}
}

func (p *Priorities) drop(uid types.UID, priority int32) {
	delete(p.of, uid)
	if p.counts[priority]--; p.counts[priority] == 0 {
		delete(p.counts, priority)
	}
}

// Below reports whether a pod of a lower priority than the given one is on a node.
func (p *Priorities) Below(priority int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for is := range p.counts {
		if is < priority {
			return true
		}
	}
	return false
}

package controller

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// memory stands in for the conditions of groups where the API server does not keep them: what the controller would
// read there about the past. It is lost with the process.
type memory struct {
	lock  sync.Mutex
	known map[types.NamespacedName]remembered
}

type remembered struct {
	uid        types.UID
	conditions []metav1.Condition
}

func newMemory() *memory { return &memory{known: map[types.NamespacedName]remembered{}} }

// recall returns the group with the conditions that it would have if they were kept, or the group itself.
func (m *memory) recall(group *v1alpha1.PodGroup) *v1alpha1.PodGroup {
	m.lock.Lock()
	defer m.lock.Unlock()
	known, ok := m.known[types.NamespacedName{Namespace: group.Namespace, Name: group.Name}]
	if !ok || known.uid != group.UID || len(group.Status.Conditions) > 0 {
		return group
	}
	with := *group
	with.Status.Conditions = known.conditions
	return &with
}

// remember notes the conditions that a group should have.
func (m *memory) remember(group *v1alpha1.PodGroup, conditions []metav1.Condition) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.known[types.NamespacedName{Namespace: group.Namespace, Name: group.Name}] = remembered{group.UID, conditions}
}

// forget drops what is known of a group.
func (m *memory) forget(key types.NamespacedName) {
	m.lock.Lock()
	defer m.lock.Unlock()
	delete(m.known, key)
}

package podgroup

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Membership is an index from gangs to their members. Pod events keep it up to date; it never lists, never
// calls out, and forgets a gang with its last pod. An event costs as much as there are pods in the place
// that the pod takes in its gang, which is one unless a Job retried it. It is safe for concurrent use.
//
// Events of one pod must arrive in order, as one informer delivers them.
type Membership struct {
	lock sync.RWMutex

	groups map[types.NamespacedName]*group

	// groupOf is the gang that a pod, by namespace and name, was last counted in.
	groupOf map[types.NamespacedName]types.NamespacedName

	// generation grows with every change of any gang, so that a gang that was forgotten and came back never
	// repeats one.
	generation uint64
}

// group is one gang in the index.
type group struct {
	members    map[string]Member // by pod name
	places     map[Identity][]string
	counts     Counts
	generation uint64

	// sorted is the answer of Members, nil after a change.
	sorted []Member
}

// NewMembership returns an index without gangs.
func NewMembership() *Membership {
	return &Membership{
		groups:  map[types.NamespacedName]*group{},
		groupOf: map[types.NamespacedName]types.NamespacedName{},
	}
}

// Update records a pod that was added or changed, also one whose label now names another PodGroup or none,
// and one that was deleted and made again under its old name. It reports whether any gang changed in a way
// that matters to gangs.
func (m *Membership) Update(pod *corev1.Pod) bool {
	podKey := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	key, isMember := Key(pod)
	var member Member
	if isMember {
		member = MemberOf(pod)
	}

	m.lock.Lock()
	defer m.lock.Unlock()

	old, known := m.groupOf[podKey]
	if known && old == key {
		if m.groups[key].members[pod.Name] == member {
			return false
		}
	}
	if known {
		m.remove(old, podKey)
	}
	if isMember {
		m.insert(key, podKey, member)
	}
	return known || isMember
}

// Delete records that a pod no longer exists and reports whether that changed a gang. A pod of the same name
// but with another UID, made since, stays.
func (m *Membership) Delete(pod *corev1.Pod) bool {
	podKey := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}

	m.lock.Lock()
	defer m.lock.Unlock()

	key, known := m.groupOf[podKey]
	if !known || m.groups[key].members[pod.Name].UID != pod.UID {
		return false
	}
	m.remove(key, podKey)
	return true
}

// Get returns the counts of a gang; all zero for one without pods.
func (m *Membership) Get(key types.NamespacedName) Counts {
	m.lock.RLock()
	defer m.lock.RUnlock()
	if g, ok := m.groups[key]; ok {
		return g.counts
	}
	return Counts{}
}

// StateOf returns how far a pod has come, false if it is not in the index.
func (m *Membership) StateOf(pod *corev1.Pod) (State, bool) {
	podKey := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	m.lock.RLock()
	defer m.lock.RUnlock()
	key, known := m.groupOf[podKey]
	if !known {
		return Gone, false
	}
	member := m.groups[key].members[pod.Name]
	return member.State, member.UID == pod.UID
}

// Generation returns a number that differs after every change of the gang's members, 0 while it has none.
func (m *Membership) Generation(key types.NamespacedName) uint64 {
	m.lock.RLock()
	defer m.lock.RUnlock()
	if g, ok := m.groups[key]; ok {
		return g.generation
	}
	return 0
}

// Members returns all pods of a gang, also failed ones and those being deleted, in the order of
// CompareMembers. The slice is shared: callers must not change it. It does not change after it was returned.
func (m *Membership) Members(key types.NamespacedName) []Member {
	members, _ := m.Counted(key)
	return members
}

// Counted returns what Members and Get return of one moment.
func (m *Membership) Counted(key types.NamespacedName) ([]Member, Counts) {
	m.lock.Lock()
	defer m.lock.Unlock()
	g, ok := m.groups[key]
	if !ok {
		return nil, Counts{}
	}
	if g.sorted == nil {
		g.sorted = make([]Member, 0, len(g.members))
		for _, member := range g.members {
			g.sorted = append(g.sorted, member)
		}
		slices.SortFunc(g.sorted, Member.Compare)
	}
	return g.sorted, g.counts
}

func (m *Membership) insert(key, podKey types.NamespacedName, member Member) {
	g, ok := m.groups[key]
	if !ok {
		g = &group{members: map[string]Member{}, places: map[Identity][]string{}}
		m.groups[key] = g
	}
	m.groupOf[podKey] = key
	g.changePlace(member.Identity, func(names []string) []string {
		g.members[member.Name] = member
		return append(names, member.Name)
	})
	m.changed(g)
}

func (m *Membership) remove(key, podKey types.NamespacedName) {
	g := m.groups[key]
	g.changePlace(g.members[podKey.Name].Identity, func(names []string) []string {
		delete(g.members, podKey.Name)
		at := slices.Index(names, podKey.Name)
		return slices.Delete(names, at, at+1)
	})
	delete(m.groupOf, podKey)
	m.changed(g)
	if len(g.members) == 0 {
		delete(m.groups, key)
	}
}

func (m *Membership) changed(g *group) {
	m.generation++
	g.generation = m.generation
	g.sorted = nil
}

// changePlace changes the pods that took one place of the gang, and the counts with them.
func (g *group) changePlace(identity Identity, change func(names []string) []string) {
	if speaker, ok := g.speaker(identity); ok {
		g.counts.add(speaker, -1)
	}
	if names := change(g.places[identity]); len(names) > 0 {
		g.places[identity] = names
	} else {
		delete(g.places, identity)
	}
	if speaker, ok := g.speaker(identity); ok {
		g.counts.add(speaker, 1)
	}
}

// speaker returns the member that speaks for a place of the gang, false if no pod took it.
func (g *group) speaker(identity Identity) (Member, bool) {
	var speaker Member
	names := g.places[identity]
	for i, name := range names {
		if member := g.members[name]; i == 0 || member.speaksBefore(speaker) < 0 {
			speaker = member
		}
	}
	return speaker, len(names) > 0
}

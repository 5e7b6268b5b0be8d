package podgroup

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

var gangKey = types.NamespacedName{Namespace: "ns", Name: "gang"}

func TestMembershipFollowsAMember(t *testing.T) {
	m := NewMembership()
	steps := []struct {
		name    string
		change  func() bool
		changed bool
		want    Counts
	}{
		{"created", func() bool { return m.Update(newPod("a")) }, true,
			Counts{Present: 1, Live: 1, Waiting: 1}},
		{"unchanged", func() bool { return m.Update(newPod("a")) }, false,
			Counts{Present: 1, Live: 1, Waiting: 1}},
		{"gated", func() bool { return m.Update(newPod("a", gated())) }, true,
			Counts{Present: 1, Live: 1, Waiting: 1, Gated: 1}},
		{"bound", func() bool { return m.Update(newPod("a", onNode("n"))) }, true,
			Counts{Present: 1, Live: 1, Bound: 1}},
		{"running", func() bool { return m.Update(newPod("a", running())) }, true,
			Counts{Present: 1, Live: 1, Bound: 1, Running: 1}},
		{"succeeded", func() bool { return m.Update(newPod("a", succeeded())) }, true,
			Counts{Present: 1, Finished: 1}},
		{"succeeded and deleted", func() bool { return m.Update(newPod("a", succeeded(), deleting())) }, true,
			Counts{Present: 1, Finished: 1}},
		{"removed", func() bool { return m.Delete(newPod("a")) }, true, Counts{}},
		{"removed again", func() bool { return m.Delete(newPod("a")) }, false, Counts{}},
		{"failed", func() bool { return m.Update(newPod("b", failed())) }, true, Counts{Failed: 1}},
		{"deleting", func() bool { return m.Update(newPod("b", running(), deleting())) }, true, Counts{Gone: 1}},
		{"left the gang", func() bool { return m.Update(newPod("b", inGang(""))) }, true, Counts{}},
		{"never in it", func() bool { return m.Update(newPod("b", inGang(""))) }, false, Counts{}},
	}
	for _, step := range steps {
		before := m.Generation(gangKey)
		if got := step.change(); got != step.changed {
			t.Errorf("%s: reported changed=%v, want %v", step.name, got, step.changed)
		}
		if diff := cmp.Diff(step.want, m.Get(gangKey)); diff != "" {
			t.Errorf("%s: counts (-want +got):\n%s", step.name, diff)
		}
		if moved := m.Generation(gangKey) != before; moved != step.changed {
			t.Errorf("%s: generation moved=%v, want %v", step.name, moved, step.changed)
		}
	}
}

func TestMembershipMovesAPodBetweenGangs(t *testing.T) {
	m := NewMembership()
	m.Update(newPod("a"))
	m.Update(newPod("b"))
	m.Update(newPod("a", inGang("other")))

	if got := m.Get(gangKey).Present; got != 1 {
		t.Errorf("old gang has %d members, want 1", got)
	}
	if got := m.Get(types.NamespacedName{Namespace: "ns", Name: "other"}).Present; got != 1 {
		t.Errorf("new gang has %d members, want 1", got)
	}
}

func TestMembershipKeepsNamespacesApart(t *testing.T) {
	m := NewMembership()
	m.Update(newPod("a"))
	m.Update(newPod("a", inNamespace("ns2"), withUID("other")))
	m.Delete(newPod("a"))

	if got := m.Get(gangKey); got != (Counts{}) {
		t.Errorf("gang of ns has %+v, want nothing", got)
	}
	if got := m.Get(types.NamespacedName{Namespace: "ns2", Name: "gang"}).Present; got != 1 {
		t.Errorf("gang of ns2 has %d members, want 1", got)
	}
}

func TestMembershipIgnoresTheDeletionOfAPredecessor(t *testing.T) {
	m := NewMembership()
	m.Update(newPod("a", withUID("old")))
	m.Update(newPod("a", withUID("new"))) // deletion and creation seen as one update
	m.Delete(newPod("a", withUID("old")))

	members := m.Members(gangKey)
	if len(members) != 1 || members[0].UID != "new" {
		t.Errorf("members are %v, want the new pod alone", members)
	}
}

func TestMembershipKnowsHowFarAPodHasCome(t *testing.T) {
	m := NewMembership()
	pod := newPod("a", running())
	if _, known := m.StateOf(pod); known {
		t.Error("known before it was seen")
	}
	m.Update(pod)
	if state, known := m.StateOf(newPod("a")); state != Running || !known {
		t.Errorf("%v, %v", state, known)
	}
	again := newPod("a")
	again.UID = "another"
	if _, known := m.StateOf(again); known {
		t.Error("taken for another pod of its name")
	}
	m.Delete(pod)
	if _, known := m.StateOf(pod); known {
		t.Error("known after it was deleted")
	}
}

func TestMembershipCountsAPlaceOnce(t *testing.T) {
	for _, test := range []struct {
		name string
		pods []*corev1.Pod
		want Counts
	}{
		{"failed, then retried",
			[]*corev1.Pod{newPod("a", ofJob("job", 3), failed()), newPod("b", ofJob("job", 3))},
			Counts{Present: 1, Live: 1, Waiting: 1}},
		{"failed twice",
			[]*corev1.Pod{newPod("a", ofJob("job", 3), failed()), newPod("b", ofJob("job", 3), failed())},
			Counts{Failed: 1}},
		{"deleted and replaced",
			[]*corev1.Pod{newPod("a", ofJob("job", 3), running(), deleting()), newPod("b", ofJob("job", 3), running())},
			Counts{Present: 1, Live: 1, Bound: 1, Running: 1}},
		{"two places of one Job",
			[]*corev1.Pod{newPod("a", ofJob("job", 3)), newPod("b", ofJob("job", 4))},
			Counts{Present: 2, Live: 2, Waiting: 2}},
		{"the same index of two Jobs",
			[]*corev1.Pod{newPod("a", ofJob("job-0", 0)), newPod("b", ofJob("job-1", 0))},
			Counts{Present: 2, Live: 2, Waiting: 2}},
		{"no index: each pod for itself",
			[]*corev1.Pod{newPod("a", failed()), newPod("b")},
			Counts{Present: 1, Live: 1, Waiting: 1, Failed: 1}},
		{"one of two waiting pods is gated",
			[]*corev1.Pod{newPod("a", ofJob("job", 3), gated()), newPod("b", ofJob("job", 3))},
			Counts{Present: 1, Live: 1, Waiting: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, pods := range [][]*corev1.Pod{test.pods, reversed(test.pods)} {
				m := NewMembership()
				for _, pod := range pods {
					m.Update(pod)
				}
				if diff := cmp.Diff(test.want, m.Get(gangKey)); diff != "" {
					t.Errorf("counts (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestMembershipReturnsSnapshots(t *testing.T) {
	m := NewMembership()
	m.Update(newPod("a"))
	before := m.Members(gangKey)
	m.Update(newPod("a", running()))
	m.Update(newPod("b"))

	if len(before) != 1 || before[0].State != Waiting {
		t.Errorf("members returned earlier changed to %v", before)
	}
}

// randomPod draws a pod out of few names, gangs and places, so that they collide often.
func randomPod(t *rapid.T) *corev1.Pod {
	pod := newPod(fmt.Sprintf("pod-%d", rapid.IntRange(0, 11).Draw(t, "name")))
	pod.Namespace = rapid.SampledFrom([]string{"ns", "ns2"}).Draw(t, "namespace")
	pod.UID = types.UID(fmt.Sprintf("uid-%s-%s-%d", pod.Namespace, pod.Name, rapid.IntRange(0, 1).Draw(t, "incarnation")))
	pod.Labels[v1alpha1.GroupLabel] = rapid.SampledFrom([]string{"gang", "other", ""}).Draw(t, "gang")
	if rapid.Bool().Draw(t, "indexed") {
		job := rapid.SampledFrom([]string{"job-0", "job-1"}).Draw(t, "job")
		ofJob(job, rapid.IntRange(0, 3).Draw(t, "index"))(pod)
	}
	if rapid.Bool().Draw(t, "bound") {
		pod.Spec.NodeName = "node-1"
	} else if rapid.Bool().Draw(t, "gated") {
		gated()(pod)
	}
	pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{
		corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown,
	}).Draw(t, "phase")
	if rapid.Bool().Draw(t, "deleting") {
		pod.DeletionTimestamp = &metav1.Time{}
	}
	return pod
}

func TestMembershipEqualsRecomputation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewMembership()
		cluster := map[types.NamespacedName]*corev1.Pod{}
		t.Repeat(map[string]func(*rapid.T){
			"update": func(t *rapid.T) {
				pod := randomPod(t)
				cluster[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = pod
				m.Update(pod)
			},
			"delete": func(t *rapid.T) {
				pod := randomPod(t)
				key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
				if existing, ok := cluster[key]; ok && existing.UID == pod.UID {
					delete(cluster, key)
				}
				m.Delete(pod)
			},
			"": func(t *rapid.T) {
				want := map[types.NamespacedName][]Member{}
				for _, pod := range cluster {
					if key, ok := Key(pod); ok {
						want[key] = append(want[key], MemberOf(pod))
					}
				}
				for _, namespace := range []string{"ns", "ns2"} {
					for _, name := range []string{"gang", "other"} {
						key := types.NamespacedName{Namespace: namespace, Name: name}
						slices.SortFunc(want[key], Member.Compare)
						previous := m.Members(key)
						if !slices.Equal(want[key], previous) {
							t.Fatalf("%s: members are\n%v\nwant\n%v", key, previous, want[key])
						}
						if got := m.Get(key); got != countOf(want[key]) {
							t.Fatalf("%s: counts are %+v, want %+v", key, got, countOf(want[key]))
						}
					}
				}
				checkInvariants(t, m)
			},
		})
		for _, pod := range cluster {
			m.Delete(pod)
		}
		if len(m.groups) != 0 || len(m.groupOf) != 0 {
			t.Fatalf("an index without pods still holds %d gangs and %d pods", len(m.groups), len(m.groupOf))
		}
	})
}

// checkInvariants checks what Counts promises of every gang, whatever its pods.
func checkInvariants(t *rapid.T, m *Membership) {
	for key, g := range m.groups {
		c := g.counts
		if c.Live != c.Waiting+c.Bound || c.Present != c.Live+c.Finished {
			t.Fatalf("%s: counts do not add up: %+v", key, c)
		}
		if c.Gated > c.Waiting || c.Running > c.Bound {
			t.Fatalf("%s: a part exceeds its whole: %+v", key, c)
		}
		if places := c.Present + c.Failed + c.Gone; places != len(g.places) || places > len(g.members) {
			t.Fatalf("%s: %d places counted, %d known, %d pods", key, places, len(g.places), len(g.members))
		}
	}
}

func TestMembershipIsSafeForConcurrentUse(t *testing.T) {
	m := NewMembership()
	var writers sync.WaitGroup
	for writer := range 4 {
		writers.Go(func() {
			for i := range 200 {
				pod := newPod(fmt.Sprintf("pod-%d-%d", writer, i%10))
				m.Update(pod)
				m.Members(gangKey)
				m.Get(gangKey)
				m.Generation(gangKey)
				if i%3 == 0 {
					m.Delete(pod)
				}
			}
		})
	}
	writers.Wait()
	if got, want := m.Get(gangKey).Present, len(m.Members(gangKey)); got != want {
		t.Errorf("%d members counted, %d listed", got, want)
	}
}

func reversed(pods []*corev1.Pod) []*corev1.Pod {
	pods = slices.Clone(pods)
	slices.Reverse(pods)
	return pods
}

func BenchmarkMembershipUpdate(b *testing.B) {
	m := NewMembership()
	waiting, bound := make([]*corev1.Pod, 10_000), make([]*corev1.Pod, 10_000)
	for i := range waiting {
		waiting[i] = newPod(fmt.Sprintf("pod-%d", i), ofJob("job", i))
		bound[i] = newPod(fmt.Sprintf("pod-%d", i), ofJob("job", i), onNode("node-1"))
		m.Update(waiting[i])
	}
	for i := 0; b.Loop(); i++ {
		pods := bound
		if i/len(pods)%2 == 1 {
			pods = waiting
		}
		m.Update(pods[i%len(pods)])
	}
}

// countOf counts the members of one gang, in any order.
func countOf(members []Member) Counts {
	var counts Counts
	for _, m := range speakers(members) {
		counts.add(m, 1)
	}
	return counts
}

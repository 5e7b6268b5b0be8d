package podgroup

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// ofJobSet makes the pod the one of a completion index of a Job of a JobSet.
func ofJobSet(set, replicatedJob string, global, jobIndex, index int) podOption {
	return func(pod *corev1.Pod) {
		ofJob(fmt.Sprintf("%s-%s-%d", set, replicatedJob, jobIndex), index)(pod)
		pod.Labels[jobset.JobSetNameKey] = set
		pod.Labels[jobset.ReplicatedJobNameKey] = replicatedJob
		pod.Labels[jobset.JobGlobalIndexKey] = strconv.Itoa(global)
		pod.Labels[jobset.JobIndexKey] = strconv.Itoa(jobIndex)
	}
}

// withoutGlobalIndex is what JobSets older than the global index leave.
func withoutGlobalIndex(pod *corev1.Pod) {
	delete(pod.Labels, jobset.JobGlobalIndexKey)
}

func TestCompareMembersOrders(t *testing.T) {
	for _, test := range []struct {
		name   string
		sorted []*corev1.Pod
	}{
		{"completion indices as numbers, whatever the names", []*corev1.Pod{
			newPod("z", ofJob("job", 0)), newPod("y", ofJob("job", 2)), newPod("x", ofJob("job", 9)), newPod("a", ofJob("job", 10)),
			newPod("b", ofJob("job", 100))}},
		{"the Jobs of a JobSet in its own order", []*corev1.Pod{
			newPod("a", ofJobSet("set", "node", 0, 0, 0)), newPod("b", ofJobSet("set", "node", 0, 0, 1)),
			newPod("c", ofJobSet("set", "launcher", 1, 0, 0)), newPod("d", ofJobSet("set", "evaluator", 2, 0, 0)),
			newPod("e", ofJobSet("set", "evaluator", 10, 8, 0))}},
		{"replicated Jobs by name and index where there is no global index", []*corev1.Pod{
			newPod("d", ofJobSet("set", "launcher", 9, 0, 0), withoutGlobalIndex),
			newPod("c", ofJobSet("set", "node", 8, 2, 0), withoutGlobalIndex),
			newPod("b", ofJobSet("set", "node", 7, 10, 0), withoutGlobalIndex),
			newPod("a", ofJobSet("set", "node", 7, 10, 1), withoutGlobalIndex)}},
		{"JobSets apart", []*corev1.Pod{
			newPod("a", ofJobSet("set-a", "node", 5, 5, 0)), newPod("b", ofJobSet("set-b", "node", 0, 0, 0))}},
		{"trailing numbers of names as numbers", []*corev1.Pod{
			newPod("worker-1"), newPod("worker-2"), newPod("worker-9"), newPod("worker-10"), newPod("worker-x")}},
		{"pods without an index last", []*corev1.Pod{
			newPod("z", ofJob("job", 99)), newPod("a")}},
		{"names that are no index", []*corev1.Pod{
			newPod("123"), newPod("a"), newPod("a99999999999999999998"), newPod("a99999999999999999999")}},
		{"equal numbers by name", []*corev1.Pod{newPod("a-01"), newPod("a-1")}},
		{"a pod and its successor of the same name by UID", []*corev1.Pod{newPod("a", withUID("1")), newPod("a", withUID("2"))}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for seed := range uint64(20) {
				shuffled := slices.Clone(test.sorted)
				rand.New(rand.NewPCG(seed, 0)).Shuffle(len(shuffled), func(i, j int) {
					shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
				})
				slices.SortFunc(shuffled, CompareMembers)
				if !slices.Equal(shuffled, test.sorted) {
					t.Fatalf("order is %v, want %v", names(shuffled), names(test.sorted))
				}
			}
		})
	}
}

func TestCompareMembersIsATotalOrder(t *testing.T) {
	draw := rapid.Custom(func(t *rapid.T) *corev1.Pod {
		pod := randomPod(t)
		pod.Name = rapid.SampledFrom([]string{"w-1", "w-10", "w-9", "w-01", "w", "10", ""}).Draw(t, "name")
		for _, key := range []string{jobset.JobGlobalIndexKey, jobset.JobIndexKey} {
			if rapid.Bool().Draw(t, "has "+key) {
				pod.Labels[key] = rapid.SampledFrom([]string{"0", "9", "10", "x"}).Draw(t, key)
			}
		}
		for _, key := range []string{jobset.JobSetNameKey, jobset.ReplicatedJobNameKey} {
			pod.Labels[key] = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, key)
		}
		return pod
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := draw.Draw(t, "a"), draw.Draw(t, "b"), draw.Draw(t, "c")
		if CompareMembers(a, a) != 0 {
			t.Fatal("a pod differs from itself")
		}
		if CompareMembers(a, b) != -CompareMembers(b, a) {
			t.Fatal("swapping the pods does not swap the answer")
		}
		if CompareMembers(a, b) == 0 && (a.Namespace != b.Namespace || a.Name != b.Name || a.UID != b.UID) {
			t.Fatal("two pods are equal")
		}
		if CompareMembers(a, b) <= 0 && CompareMembers(b, c) <= 0 && CompareMembers(a, c) > 0 {
			t.Fatal("a <= b and b <= c, but a > c")
		}
		if got, want := MemberOf(a).Compare(MemberOf(b)), CompareMembers(a, b); got != want {
			t.Fatalf("members compare as %d, their pods as %d", got, want)
		}
	})
}

func names(pods []*corev1.Pod) []string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names
}

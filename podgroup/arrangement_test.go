package podgroup

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// asking sets annotations, given as keys and values in turn.
func asking(keysAndValues ...string) podOption {
	return func(pod *corev1.Pod) {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		for i := 0; i < len(keysAndValues); i += 2 {
			pod.Annotations[keysAndValues[i]] = keysAndValues[i+1]
		}
	}
}

func slicedBy(size int) podOption {
	return asking(SliceRequiredTopologyAnnotation, "rack", SliceSizeAnnotation, strconv.Itoa(size))
}

// ofJobs says of how many Jobs the pod's replicated Job is.
func ofJobs(n int) podOption { return withLabel(jobset.ReplicatedJobReplicas, strconv.Itoa(n)) }

func generated(pod *corev1.Pod) { pod.GenerateName = "worker-" }

// jobSetPods are the pods of so many Jobs of so many indices.
func jobSetPods(replicatedJob string, jobs, indices int, options ...podOption) []*corev1.Pod {
	var pods []*corev1.Pod
	for job := range jobs {
		for index := range indices {
			pod := newPod(fmt.Sprintf("%s-%d-%d", replicatedJob, job, index), ofJobSet("set", replicatedJob, job, job, index), ofJobs(jobs))
			for _, option := range options {
				option(pod)
			}
			pods = append(pods, pod)
		}
	}
	return pods
}

// arranged returns set and slice of every pod, in the order given, as "set/slice".
func arranged(a *Arrangement, pods []*corev1.Pod) string {
	var out []string
	for _, pod := range pods {
		set, slice := a.Place(pod.UID)
		out = append(out, fmt.Sprintf("%d/%d", set, slice))
	}
	return strings.Join(out, " ")
}

func TestArrangeDividesIntoSetsAndSlices(t *testing.T) {
	rack := asking(RequiredTopologyAnnotation, "rack")
	plain := func(options ...podOption) []*corev1.Pod {
		var pods []*corev1.Pod
		for i := range 12 {
			pods = append(pods, newPod(fmt.Sprintf("worker-%d", i), options...))
		}
		return pods
	}
	indexed := func(job string, n int, options ...podOption) []*corev1.Pod {
		var pods []*corev1.Pod
		for i := range n {
			pods = append(pods, newPod(fmt.Sprintf("%s-%d-x", job, i), append([]podOption{generated, ofJob(job, i)}, options...)...))
		}
		return pods
	}
	all := func(lists ...[]*corev1.Pod) (pods []*corev1.Pod) {
		for _, l := range lists {
			pods = append(pods, l...)
		}
		return pods
	}
	for name, test := range map[string]struct {
		gang      map[string]string
		minMember int
		pods      []*corev1.Pod
		sets      int
		want      string
	}{
		"nothing is asked": {pods: indexed("a", 3), want: "0/0 0/0 0/0"},
		"only the gang asks": {gang: map[string]string{RequiredTopologyAnnotation: "rack"}, minMember: 3, pods: indexed("a", 3),
			sets: 1, want: "0/0 0/0 0/0"},
		"Jobs are sets": {minMember: 4, pods: all(indexed("a", 2, rack), indexed("b", 2, rack)), sets: 2, want: "0/0 0/0 1/0 1/0"},
		"replicated Jobs are sets, their Jobs are not": {minMember: 5,
			pods: all(jobSetPods("launcher", 1, 1), jobSetPods("worker", 2, 2, rack)), sets: 2, want: "0/0 1/0 1/0 1/0 1/0"},
		"pods that ask for other things are other sets": {minMember: 2,
			pods: []*corev1.Pod{newPod("worker-0", rack), newPod("worker-1")}, sets: 2, want: "0/0 1/0"},
		"the dialect makes no difference": {minMember: 2,
			pods: []*corev1.Pod{newPod("worker-0", rack), newPod("worker-1", asking(kueueRequired, "rack"))}, sets: 1, want: "0/0 0/0"},
		"a podset group is one set": {minMember: 4,
			pods: all(indexed("a", 2, asking(kueueRequired, "rack", kueueGroup, "g")), indexed("b", 2, asking(kueueRequired, "rack", kueueGroup, "g"))),
			sets: 1, want: "0/0 0/0 0/0 0/0"},
		"slices of a Job by completion index": {minMember: 4, pods: indexed("a", 4, slicedBy(2)), sets: 1, want: "0/0 0/0 0/1 0/1"},
		"slices count indices as numbers": {minMember: 12, pods: plain(slicedBy(4)), sets: 1,
			want: "0/0 0/0 0/0 0/0 0/1 0/1 0/1 0/1 0/2 0/2 0/2 0/2"},
		"slices of the gang are in each of its sets": {gang: map[string]string{SliceRequiredTopologyAnnotation: "rack", SliceSizeAnnotation: "2"},
			minMember: 8, pods: all(indexed("a", 4), indexed("b", 4)), sets: 2, want: "0/0 0/0 0/1 0/1 1/0 1/0 1/1 1/1"},
		"a set's own slices come before the gang's": {gang: map[string]string{SliceRequiredTopologyAnnotation: "rack", SliceSizeAnnotation: "2"},
			minMember: 8, pods: all(indexed("a", 4, slicedBy(4)), indexed("b", 4)), sets: 2, want: "0/0 0/0 0/0 0/0 1/0 1/0 1/1 1/1"},
		"slices across the Jobs of a replicated Job": {minMember: 8, pods: jobSetPods("worker", 4, 2, slicedBy(4)), sets: 1,
			want: "0/0 0/0 0/0 0/0 0/1 0/1 0/1 0/1"},
		"slices inside the Jobs of a replicated Job": {minMember: 8, pods: jobSetPods("worker", 2, 4, slicedBy(2)), sets: 1,
			want: "0/0 0/0 0/1 0/1 0/2 0/2 0/3 0/3"},
		"Jobs of one pod without completion index": {minMember: 4, pods: jobSetPods("worker", 4, 1, slicedBy(2), func(p *corev1.Pod) {
			delete(p.Labels, batchv1.JobCompletionIndexAnnotation)
			generated(p)
		}), sets: 1, want: "0/0 0/0 0/1 0/1"},
		"a StatefulSet's index": {minMember: 2, pods: []*corev1.Pod{
			newPod("x", generated, slicedBy(2), withLabel(appsv1.PodIndexLabel, "2")),
			newPod("y", generated, slicedBy(2), withLabel(appsv1.PodIndexLabel, "3"))}, sets: 1, want: "0/1 0/1"},
		"Kueue's pod index": {minMember: 2, pods: []*corev1.Pod{
			newPod("x", generated, slicedBy(2), withLabel(kueuePodIndexLabel, "0")),
			newPod("y", generated, slicedBy(2), withLabel(kueuePodIndexLabel, "1"))}, sets: 1, want: "0/0 0/0"},
		"extra members make an unfinished slice": {minMember: 4, pods: indexed("a", 5, slicedBy(2)), sets: 1, want: "0/0 0/0 0/1 0/1 0/2"},
		"a pod that is tried again takes the place of the one that failed": {minMember: 2, pods: []*corev1.Pod{
			newPod("a", generated, ofJob("a", 0), slicedBy(2), failed()), newPod("b", generated, ofJob("a", 0), slicedBy(2)),
			newPod("c", generated, ofJob("a", 1), slicedBy(2))}, sets: 1, want: "0/0 0/0 0/0"},
		"what a deleted pod asked is of no matter": {minMember: 1, pods: []*corev1.Pod{
			newPod("a", asking(RequiredTopologyAnnotation, "a b"), deleting()), newPod("b", rack)}, sets: 1, want: "0/0 0/0"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := Arrange(test.gang, test.minMember, membersOf(test.pods...))
			if err != nil {
				t.Fatal(err)
			}
			if got := arranged(a, test.pods); got != test.want || len(a.Sets) != test.sets {
				t.Errorf("%d sets, %s; want %d, %s", len(a.Sets), got, test.sets, test.want)
			}
		})
	}
}

func TestArrangeNamesWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		gang      map[string]string
		minMember int
		pods      []*corev1.Pod
		words     []string
	}{
		"the PodGroup's annotation": {gang: map[string]string{SliceSizeAnnotation: "x"}, words: []string{SliceSizeAnnotation, "of the PodGroup", `"x"`}},
		"a pod's annotation": {pods: []*corev1.Pod{newPod("a"), newPod("b", asking(kueueRequired, "a b"))},
			words: []string{kueueRequired, `of pod "b"`, `"a b"`}},
		"a size that does not divide minMember": {minMember: 4, pods: jobSetPods("worker", 1, 4, slicedBy(3)),
			words: []string{SliceSizeAnnotation, `pod "worker-0-0"`, `"3" does not divide spec.minMember, which is 4`}},
		"a size beyond minMember": {minMember: 2, pods: jobSetPods("worker", 1, 4, slicedBy(4)),
			words: []string{`"4" does not divide spec.minMember, which is 2`}},
		"the gang's size does not divide one of its sets": {minMember: 5, gang: map[string]string{SliceRequiredTopologyAnnotation: "rack", SliceSizeAnnotation: "2"},
			pods:  append(jobSetPods("worker", 1, 4), jobSetPods("launcher", 1, 1)...),
			words: []string{SliceSizeAnnotation, "of the PodGroup", `"2" does not divide the 1 members of the set of pod "launcher-0-0"`}},
		"pods of generated names": {minMember: 2, pods: []*corev1.Pod{newPod("worker-1", generated, slicedBy(2)), newPod("worker-2", generated, slicedBy(2))},
			words: []string{`pod "worker-1" has no index`, "Indexed"}},
		"pods whose names end in no number": {minMember: 2, pods: []*corev1.Pod{newPod("a", slicedBy(2)), newPod("b", slicedBy(2))},
			words: []string{`pod "a" has no index`}},
		"two pods of one index": {minMember: 2, pods: []*corev1.Pod{newPod("a-1", slicedBy(2)), newPod("b-1", slicedBy(2))},
			words: []string{`pod "a-1" and pod "b-1" have the same index 1`}},
		"pods of a Job without indices": {minMember: 2, pods: []*corev1.Pod{
			newPod("x", generated, withLabel(jobset.ReplicatedJobNameKey, "w"), withLabel(jobset.JobIndexKey, "0"), slicedBy(2)),
			newPod("y", generated, withLabel(jobset.ReplicatedJobNameKey, "w"), withLabel(jobset.JobIndexKey, "0"), slicedBy(2))},
			words: []string{"have the same index 0"}},
		"a podset group in disagreement": {minMember: 2, pods: []*corev1.Pod{
			newPod("a", asking(kueueGroup, "g", kueueRequired, "rack")), newPod("b", asking(kueueGroup, "g", kueueRequired, "zone"))},
			words: []string{kueueGroup, `of pod "b"`, `"g"`, `pod "a"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Arrange(test.gang, test.minMember, membersOf(test.pods...))
			if !errors.As(err, new(*TopologyError)) {
				t.Fatalf("error %v", err)
			}
			for _, word := range test.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not contain %q", err, word)
				}
			}
		})
	}
}

// A member's slice depends on its index alone: not on which others exist, in which order they came, or which pod
// has its place now.
func TestSlicesAreStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs, indices := rapid.IntRange(1, 4).Draw(t, "jobs"), rapid.IntRange(1, 6).Draw(t, "indices")
		total := jobs * indices
		var sizes []int
		for size := 1; size <= total; size++ {
			if total%size == 0 {
				sizes = append(sizes, size)
			}
		}
		size := rapid.SampledFrom(sizes).Draw(t, "size")
		pods := rapid.Permutation(jobSetPods("worker", jobs, indices, slicedBy(size))).Draw(t, "order")
		kept := rapid.IntRange(1, total).Draw(t, "kept")
		for _, pod := range pods[:kept] {
			if rapid.Bool().Draw(t, "replaced") {
				pod.UID += types.UID("-again")
			}
		}
		a, err := Arrange(nil, total, membersOf(pods[:kept]...))
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods[:kept] {
			job, _ := strconv.Atoi(pod.Labels[jobset.JobIndexKey])
			index, _ := strconv.Atoi(pod.Labels[batchv1.JobCompletionIndexAnnotation])
			if _, slice := a.Place(pod.UID); slice != (job*indices+index)/size {
				t.Fatalf("%s of %d jobs of %d indices, %d of the pods there: slice %d of size %d", pod.Name, jobs, indices, kept, slice, size)
			}
		}
	})
}

func TestPlaceOfAStranger(t *testing.T) {
	a, err := Arrange(nil, 2, membersOf(jobSetPods("worker", 1, 2, slicedBy(1))...))
	if err != nil {
		t.Fatal(err)
	}
	if set, slice := a.Place("nobody"); set != 0 || slice != 0 {
		t.Errorf("a stranger is in set %d, slice %d", set, slice)
	}
}

package podgroup

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

func TestNativeKey(t *testing.T) {
	name := "gang"
	for _, test := range []struct {
		group *corev1.PodSchedulingGroup
		want  types.NamespacedName
		ok    bool
	}{
		{nil, types.NamespacedName{}, false},
		{&corev1.PodSchedulingGroup{}, types.NamespacedName{}, false},
		{&corev1.PodSchedulingGroup{PodGroupName: &name}, types.NamespacedName{Namespace: "ns2", Name: "gang"}, true},
	} {
		pod := newPod("a", inNamespace("ns2"))
		pod.Spec.SchedulingGroup = test.group
		if got, ok := NativeKey(pod); got != test.want || ok != test.ok {
			t.Errorf("NativeKey is %v, %v; want %v, %v", got, ok, test.want, test.ok)
		}
	}
}

func TestKey(t *testing.T) {
	for _, test := range []struct {
		name string
		pod  *corev1.Pod
		want types.NamespacedName
		ok   bool
	}{
		{"labelled", newPod("a"), types.NamespacedName{Namespace: "ns", Name: "gang"}, true},
		{"another namespace", newPod("a", inNamespace("ns2")), types.NamespacedName{Namespace: "ns2", Name: "gang"}, true},
		{"empty label", newPod("a", inGang("")), types.NamespacedName{}, false},
		{"no labels", &corev1.Pod{}, types.NamespacedName{}, false},
	} {
		if got, ok := Key(test.pod); got != test.want || ok != test.ok {
			t.Errorf("%s: Key is %v, %v; want %v, %v", test.name, got, ok, test.want, test.ok)
		}
	}
	if v1alpha1.GroupLabel != "scheduling.x-k8s.io/pod-group" {
		t.Errorf("the label that existing users set is scheduling.x-k8s.io/pod-group, not %s", v1alpha1.GroupLabel)
	}
}

func TestRank(t *testing.T) {
	const key = batchv1.JobCompletionIndexAnnotation
	for _, test := range []struct {
		name string
		pod  *corev1.Pod
		want int
		ok   bool
	}{
		{"label", newPod("a", withLabel(key, "10")), 10, true},
		{"zero", newPod("a", withLabel(key, "0")), 0, true},
		{"annotation", newPod("a", withAnnotation(key, "7")), 7, true},
		{"the label wins", newPod("a", withLabel(key, "1"), withAnnotation(key, "2")), 1, true},
		{"a broken label leaves the annotation", newPod("a", withLabel(key, "x"), withAnnotation(key, "2")), 2, true},
		{"none", newPod("a"), 0, false},
		{"negative", newPod("a", withLabel(key, "-1")), 0, false},
		{"signed", newPod("a", withLabel(key, "+1")), 0, false},
		{"no number", newPod("a", withLabel(key, "one")), 0, false},
		{"too large", newPod("a", withLabel(key, "99999999999999999999")), 0, false},
	} {
		if got, ok := Rank(test.pod); got != test.want || ok != test.ok {
			t.Errorf("%s: Rank is %d, %v; want %d, %v", test.name, got, ok, test.want, test.ok)
		}
	}
}

func TestIdentityOf(t *testing.T) {
	const key = batchv1.JobCompletionIndexAnnotation
	for _, test := range []struct {
		name string
		pod  *corev1.Pod
		want Identity
	}{
		{"indexed", newPod("a", ofJob("job", 2)), Identity{Owner: "uid-job", Index: 2}},
		{"indexed by annotation", newPod("a", ofJob("job", 2), func(pod *corev1.Pod) { delete(pod.Labels, key) }, withAnnotation(key, "5")),
			Identity{Owner: "uid-job", Index: 5}},
		{"an index without a Job", newPod("a", withLabel(key, "2")), Identity{Owner: "uid-a", Index: -1}},
		{"a Job without indices", newPod("a", ofJob("job", 2), func(pod *corev1.Pod) { delete(pod.Labels, key) }),
			Identity{Owner: "uid-a", Index: -1}},
		{"bare", newPod("a"), Identity{Owner: "uid-a", Index: -1}},
	} {
		if got := IdentityOf(test.pod); got != test.want {
			t.Errorf("%s: identity is %v, want %v", test.name, got, test.want)
		}
	}
}

func TestStateOf(t *testing.T) {
	for _, test := range []struct {
		name string
		pod  *corev1.Pod
		want State
	}{
		{"new", newPod("a"), Waiting},
		{"no phase yet", newPod("a", inPhase("")), Waiting},
		{"bound", newPod("a", onNode("n")), Bound},
		{"its node does not answer", newPod("a", onNode("n"), inPhase(corev1.PodUnknown)), Bound},
		{"running", newPod("a", running()), Running},
		{"succeeded", newPod("a", succeeded()), Succeeded},
		{"failed", newPod("a", failed()), Failed},
		{"failed before it had a node", newPod("a", inPhase(corev1.PodFailed)), Failed},
		{"waiting and deleted", newPod("a", deleting()), Gone},
		{"running and deleted", newPod("a", running(), deleting()), Gone},
		{"failed by its deletion", newPod("a", failed(), deleting()), Gone},
		{"succeeded and deleted", newPod("a", succeeded(), deleting()), Succeeded},
	} {
		if got := StateOf(test.pod); got != test.want {
			t.Errorf("%s: state is %s, want %s", test.name, got, test.want)
		}
	}
}

func TestStateString(t *testing.T) {
	seen := map[string]bool{}
	for state := Gone; state <= Succeeded+1; state++ {
		if name := state.String(); name == "" || seen[name] {
			t.Errorf("state %d is called %q, which is empty or taken", int(state), name)
		} else {
			seen[name] = true
		}
	}
}

func TestMemberOf(t *testing.T) {
	priority := int32(7)
	pod := newPod("a", ofJob("job", 2), running(), deleting(), gated(), func(pod *corev1.Pod) { pod.Spec.Priority = &priority })
	got := MemberOf(pod)
	got.order = order{}
	want := Member{
		UID: "uid-a", Namespace: "ns", Name: "a", Node: "node-1", State: Gone, Phase: corev1.PodRunning, Deleting: true,
		SchedulerName: "muster", Priority: 7, Gated: true, Rank: 2, Identity: Identity{Owner: "uid-job", Index: 2},
		Owner: Owner{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "uid-job"},
		index: 2, topology: got.topology,
	}
	if got != want {
		t.Errorf("member is\n%+v\nwant\n%+v", got, want)
	}
	if bare := MemberOf(newPod("b")); bare.Rank != -1 || bare.Owner != (Owner{}) || bare.Priority != 0 {
		t.Errorf("a bare pod has rank %d, owner %v, priority %d; want -1, none, 0", bare.Rank, bare.Owner, bare.Priority)
	}
}

package gputopology

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/plugins/stage"
)

func newPlugin(t *testing.T, handle framework.Framework, args string) *GPUTopology {
	t.Helper()
	pl, err := New(t.Context(), &runtime.Unknown{Raw: []byte(args)}, handle)
	if err != nil {
		t.Fatal(err)
	}
	return pl.(*GPUTopology)
}

const levelArgs = "topologyLevels: [zone, rack]"

// scores returns each node's score for the pod.
func scores(t *testing.T, pl *GPUTopology, pod *corev1.Pod, infos []fwk.NodeInfo) map[string]int64 {
	t.Helper()
	state := framework.NewCycleState()
	if status := pl.PreScore(t.Context(), state, pod, infos); !status.IsSuccess() {
		t.Fatal(status)
	}
	got := map[string]int64{}
	for _, info := range infos {
		score, status := pl.Score(t.Context(), state, pod, info)
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		if score < fwk.MinScore || score > fwk.MaxScore {
			t.Errorf("node %s has the score %d", info.Node().Name, score)
		}
		got[info.Node().Name] = score
	}
	return got
}

// on returns pods that take so many GPUs each of a node.
func on(node string, gpus ...int) []*corev1.Pod {
	var pods []*corev1.Pod
	for i, n := range gpus {
		pods = append(pods, stage.Pod(i, n).Name(fmt.Sprintf("%s-%d", node, i)).UID(fmt.Sprintf("%s-%d", node, i)).Node(node).Obj())
	}
	return pods
}

// Of two nodes, the first is the better one.
func TestPreferences(t *testing.T) {
	for _, test := range []struct {
		name          string
		request       int
		better, worse []int // GPUs in use there
	}{
		{"whole nodes stay whole", 1, []int{4}, nil},
		{"the block of the request's size", 1, []int{4, 2, 1}, []int{4, 2}},
		{"the smallest block that is broken", 1, []int{4, 2}, []int{4}},
		{"two beside two", 2, []int{4, 2}, []int{4}},
		{"four beside four", 4, []int{4}, nil},
		{"a block of four of a started node", 4, []int{2}, nil},
		{"of two exact blocks the fuller node", 1, []int{4, 2, 1}, []int{1}},
		{"an odd request where it leaves a block whole", 3, []int{1}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			pods := append(on("better", test.better...), on("worse", test.worse...)...)
			fw, infos := stage.NewFramework(t, pods, stage.Node("better", 8).Obj(), stage.Node("worse", 8).Obj())
			got := scores(t, newPlugin(t, fw, levelArgs), stage.Pod(9, test.request).Obj(), infos)
			if got["better"] <= got["worse"] {
				t.Errorf("scores %v", got)
			}
		})
	}
}

func TestStartedDomainsAreFilledFirst(t *testing.T) {
	nodes := []*corev1.Node{
		place("a", "r1", "used", 8), place("a", "r1", "started-rack", 8), place("a", "r2", "started-zone", 8), place("b", "r1", "fresh", 8),
	}
	fw, infos := stage.NewFramework(t, on("used", 8), nodes...)
	got := scores(t, newPlugin(t, fw, levelArgs), stage.Pod(9, 8).Obj(), infos)
	if !(got["started-rack"] > got["started-zone"] && got["started-zone"] > got["fresh"]) {
		t.Errorf("scores %v", got)
	}
}

// A domain counts as started with one GPU of thousands in use.
func TestBigDomainIsStartedByOnePod(t *testing.T) {
	var nodes []*corev1.Node
	for i := range 200 {
		nodes = append(nodes, place("a", "r1", fmt.Sprintf("a%d", i), 8), place("a", "r2", fmt.Sprintf("b%d", i), 8))
	}
	fw, infos := stage.NewFramework(t, on("a0", 1), nodes...)
	got := scores(t, newPlugin(t, fw, "topologyLevels: [rack]"), stage.Pod(9, 8).Obj(), infos)
	if got["a1"] <= got["b1"] {
		t.Errorf("scores %d in the started rack, %d in the other", got["a1"], got["b1"])
	}
}

func TestPodsWithoutAcceleratorsKeepAway(t *testing.T) {
	fw, infos := stage.NewFramework(t, nil, stage.Node("gpu", 8).Obj(), stage.Node("cpu", 0).Obj())
	pl := newPlugin(t, fw, levelArgs)
	got := scores(t, pl, stage.Pod(9, 0).Obj(), infos)
	if got["cpu"] != fwk.MaxScore || got["gpu"] >= got["cpu"] || got["gpu"] == 0 {
		t.Errorf("want the node without GPUs preferred, softly; scores %v", got)
	}
}

// Whatever is free and asked for, the score is in range, and a node that breaks up less is never
// behind one that breaks up more.
func TestShapeIsInRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(1, 1<<40).Draw(t, "capacity")
		free := rapid.Int64Range(1, capacity).Draw(t, "free")
		request := rapid.Int64Range(1, free).Draw(t, "request")
		if got := shape(free, capacity, request); got < 0 || got > shapeScore {
			t.Fatalf("score %d", got)
		}
		if got := shape(request, capacity+1, request); got != shapeScore {
			t.Fatalf("a block of just its size scores %d", got)
		}
	})
}

func TestSignPod(t *testing.T) {
	fw, _ := stage.NewFramework(t, nil)
	pl := newPlugin(t, fw, levelArgs)
	sign := func(pod *corev1.Pod) fwk.SignFragment {
		fragments, status := pl.SignPod(t.Context(), pod)
		if !status.IsSuccess() || len(fragments) != 1 {
			t.Fatalf("%v %v", fragments, status)
		}
		return fragments[0]
	}
	if a, b := sign(stage.Pod(1, 4).Obj()), sign(stage.Pod(2, 4).Obj()); a != b {
		t.Errorf("alike pods have the signatures %v and %v", a, b)
	}
	if a, b := sign(stage.Pod(1, 4).Obj()), sign(stage.Pod(2, 2).Obj()); a == b {
		t.Errorf("pods of different requests have the signature %v", a)
	}
	member := stage.Pod(3, 4).Obj()
	member.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{}
	if _, status := pl.SignPod(t.Context(), member); status.Code() != fwk.Unschedulable {
		t.Errorf("a member of a pod group is signed: %v", status)
	}
}

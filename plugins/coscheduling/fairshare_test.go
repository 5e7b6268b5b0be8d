package coscheduling

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/heap"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/plugins/stage"
)

// fairLine is a line under FairShare in a cluster of a hundred GPUs and ten other devices, with a half-life of an
// hour.
func fairLine(clock *handClock, weights map[string]float64) *line {
	l := newLine(clock, &Args{QueueOrder: FairShare, FairShare: &FairShareArgs{HalfLifeSeconds: ptr.To[int64](3600), Resources: weights}})
	l.usage.setNode(stage.Node("n", 100).Obj())
	l.usage.setNode(st.MakeNode().Name("o").Capacity(map[corev1.ResourceName]string{"example.com/npu-2": "10"}).Obj())
	return l
}

// running is a pod with a node.
func running(namespace, uid string, resource corev1.ResourceName, n int) *corev1.Pod {
	return st.MakePod().Namespace(namespace).Name(uid).UID(uid).Node("n").Req(map[corev1.ResourceName]string{resource: fmt.Sprint(n)}).Obj()
}

func TestShareIsOfWhatIsUsedNowOrWasOfLate(t *testing.T) {
	clock := &handClock{}
	l := fairLine(clock, nil)
	is := func(want int) {
		t.Helper()
		if got := l.usage.share("a"); got != want {
			t.Errorf("share after %v: %d, want %d", clock.now, got, want)
		}
	}
	is(0)
	pod := running("a", "p", stage.GPU, 40)
	l.podChanged(pod)
	is(400)
	l.podChanged(pod) // told twice, counted once
	is(400)
	clock.Step(time.Hour) // the average is at half of it
	is(400)
	l.podGone(pod)
	is(200)
	l.podGone(pod)
	clock.Step(time.Hour)
	is(100)
	clock.Step(2 * time.Hour)
	is(25)
	clock.Step(24 * time.Hour)
	is(0)
	if len(l.usage.namespaces) != 0 || len(l.usage.pods) != 0 {
		t.Errorf("kept although nothing is used: %v, %v", l.usage.namespaces, l.usage.pods)
	}
}

func TestShareIsTheDominantOne(t *testing.T) {
	for name, tc := range map[string]struct {
		weights map[string]float64
		want    int
	}{
		"known accelerators alone":     {nil, 200},
		"the largest part":             {map[string]float64{stage.GPU: 1, "example.com/npu-*": 1}, 500},
		"weighed":                      {map[string]float64{stage.GPU: 1, "example.com/npu-*": 0.2}, 200},
		"the longest pattern holds":    {map[string]float64{"example.com/*": 1, "example.com/npu*": 0.1}, 50},
		"an exact name before pattern": {map[string]float64{"example.com/*": 1, "example.com/npu-2": 0.3}, 150},
	} {
		t.Run(name, func(t *testing.T) {
			l := fairLine(&handClock{}, tc.weights)
			l.podChanged(running("a", "p", stage.GPU, 20))
			l.podChanged(running("a", "q", "example.com/npu-2", 5))
			if got := l.usage.share("a"); got != tc.want {
				t.Errorf("share %d, want %d", got, tc.want)
			}
		})
	}
}

func TestShareFollowsTheCluster(t *testing.T) {
	l := fairLine(&handClock{}, nil)
	l.podChanged(running("a", "p", stage.GPU, 20))
	l.usage.setNode(stage.Node("n", 50).Obj())
	if got := l.usage.share("a"); got != 400 {
		t.Errorf("share of a smaller cluster %d, want 400", got)
	}
	l.usage.setNode(stage.Node("m", 150).Obj())
	if got := l.usage.share("a"); got != 100 {
		t.Errorf("share of a larger cluster %d, want 100", got)
	}
	l.usage.deleteNode(stage.Node("m", 150).Obj())
	l.usage.deleteNode(stage.Node("n", 50).Obj())
	if got := l.usage.share("a"); got != 1000 {
		t.Errorf("share without nodes %d, want all", got)
	}
}

// queued is a pod in the scheduler's queue, and what it is known by there.
func queued(t interface{ Fatal(...any) }, namespace, name, group string, seconds int) *framework.QueuedPodInfo {
	info := queuedPod{name: name, group: group, rank: -1, queued: seconds}.info(t)
	info.Pod.Namespace, info.Pod.UID = namespace, types.UID(namespace+"/"+name)
	return info
}

func TestSmallerShareGoesFirst(t *testing.T) {
	pl := orderPlugin(t, nil)
	pl.line = fairLine(&handClock{}, nil)
	pl.line.podChanged(running("rich", "p", stage.GPU, 30))
	rich, poor, poorToo := queued(t, "rich", "old", "", 1), queued(t, "poor", "new", "", 9), queued(t, "poor", "newer", "", 10)
	for _, e := range []*framework.QueuedPodInfo{rich, poor, poorToo} {
		pl.line.enter(e.Pod, standing{})
	}
	if !pl.Less(poor, rich) || pl.Less(rich, poor) {
		t.Error("the namespace with the larger share goes first")
	}
	if !pl.Less(poor, poorToo) || pl.Less(poorToo, poor) {
		t.Error("within a namespace the younger goes first")
	}
	urgent := queued(t, "rich", "urgent", "", 20)
	urgent.Pod.Spec.Priority = ptr.To[int32](5)
	pl.line.enter(urgent.Pod, standing{})
	if !pl.Less(urgent, poor) {
		t.Error("a share goes before priority")
	}
	// What happens while they are in line changes nothing until they come into line again.
	pl.line.podChanged(running("poor", "q", stage.GPU, 60))
	if !pl.Less(poor, rich) {
		t.Error("the order changed under the queue")
	}
	pl.line.enter(poor.Pod, standing{})
	pl.line.enter(rich.Pod, standing{})
	if !pl.Less(rich, poor) {
		t.Error("the order never follows what is used")
	}
}

func TestNativeGroupsStandByTheirNamespace(t *testing.T) {
	pl := orderPlugin(t, nil)
	pl.line = fairLine(&handClock{}, nil)
	pl.line.podChanged(running("rich", "p", stage.GPU, 30))
	group := func(namespace string, seconds int) *framework.QueuedPodGroupInfo {
		pod := queued(t, namespace, "m", "", seconds)
		pl.line.enter(pod.Pod, standing{})
		return &framework.QueuedPodGroupInfo{
			PodGroupInfo:   &framework.PodGroupInfo{Namespace: namespace},
			QueueingParams: pod.QueueingParams,
			QueuedPodInfos: map[fwk.EntityKey][]*framework.QueuedPodInfo{fwk.PodGroupKey(namespace, "g"): {pod}},
		}
	}
	if rich, poor := group("rich", 1), group("poor", 2); !pl.Less(poor, rich) || pl.Less(rich, poor) {
		t.Error("the namespace with the larger share goes first")
	}
}

// TestQueueStaysInOrder drives the scheduler's own heap as the scheduler does: a pod's standing is taken each time
// that it comes into line, while pods start and end, time passes, and pods leave from anywhere in the line.
func TestQueueStaysInOrder(t *testing.T) {
	pl := orderPlugin(t, map[string]int{"g": 3, "h": 3})
	rapid.Check(t, func(t *rapid.T) {
		clock := &handClock{}
		pl.line = fairLine(clock, nil)
		q := heap.New(func(e *framework.QueuedPodInfo) string { return string(e.Pod.UID) },
			func(a, b *framework.QueuedPodInfo) bool { return pl.Less(a, b) })
		in := map[string]*framework.QueuedPodInfo{}
		namespace := rapid.SampledFrom([]string{"a", "b", "c"})
		steps := rapid.IntRange(1, 60).Draw(t, "steps")
		for i := range steps {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1:
				e := queued(t, namespace.Draw(t, "ns"), fmt.Sprintf("p-%d", rapid.IntRange(0, 15).Draw(t, "pod")),
					rapid.SampledFrom([]string{"", "g", "h"}).Draw(t, "group"), rapid.IntRange(0, 3).Draw(t, "since"))
				if _, there := in[string(e.Pod.UID)]; there {
					continue
				}
				e.Pod.Spec.Priority = ptr.To(rapid.Int32Range(0, 1).Draw(t, "priority"))
				pl.line.enter(e.Pod, standing{})
				in[string(e.Pod.UID)] = e
				q.AddOrUpdate(e)
			case 2:
				pl.line.podChanged(running(namespace.Draw(t, "user"), fmt.Sprintf("r-%d", i), stage.GPU, rapid.IntRange(1, 50).Draw(t, "gpus")))
			case 3:
				pl.line.podGone(running("a", fmt.Sprintf("r-%d", rapid.IntRange(0, i).Draw(t, "ended")), stage.GPU, 1))
			case 4:
				clock.Step(time.Duration(rapid.IntRange(0, 7200).Draw(t, "seconds")) * time.Second)
			case 5:
				if len(in) == 0 {
					continue
				}
				first, err := q.Pop()
				if err != nil {
					t.Fatal(err)
				}
				delete(in, string(first.Pod.UID))
				for _, e := range in {
					if pl.Less(e, first) {
						t.Fatalf("%s was popped before %s", first.Pod.UID, e.Pod.UID)
					}
				}
			}
			for _, x := range in {
				for _, y := range in {
					if x != y && pl.Less(x, y) == pl.Less(y, x) {
						t.Fatalf("%s and %s have no order", x.Pod.UID, y.Pod.UID)
					}
				}
			}
		}
	})
}

func TestStandingOutlivesItsPodForAWhile(t *testing.T) {
	clock := &handClock{}
	l := fairLine(clock, nil)
	l.podChanged(running("a", "p", stage.GPU, 30))
	pod := queued(t, "a", "waiting", "", 0).Pod
	l.enter(pod, standing{})
	l.podGone(pod)
	if got := l.of(pod.UID).share; got != 300 {
		t.Errorf("its share changed to %d while it may be in the queue", got)
	}
	clock.Step(forgetAfter)
	l.enter(queued(t, "a", "other", "", 0).Pod, standing{})
	if _, kept := l.standings[pod.UID]; kept || len(l.gone) != 0 {
		t.Errorf("kept for ever: %v, %v", l.standings, l.gone)
	}
}

func TestProfilesShareALine(t *testing.T) {
	fw, _ := stage.NewFramework(t, nil)
	other, _ := stage.NewFramework(t, nil)
	done := make(chan struct{})
	args := &Args{QueueOrder: FairShare}
	a, err := lineOf(done, fw.SharedInformerFactory(), &handClock{}, args)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := lineOf(done, fw.SharedInformerFactory(), &handClock{}, args)
	c, _ := lineOf(done, other.SharedInformerFactory(), &handClock{}, args)
	if a != b || a == c {
		t.Error("a line is for all profiles of one scheduler")
	}
	close(done)
}

func TestFairShareArgs(t *testing.T) {
	for raw, want := range map[string]string{
		`{"queueOrder": "FairShare"}`: "",
		`{"queueOrder": "FairShare", "fairShare": {"halfLifeSeconds": 60, "resources": {"example.com/gpu*": 0.5}}}`: "",
		`{"queueOrder": "Fair"}`: `queueOrder: Unsupported value: "Fair": supported values: "PriorityFIFO", "FairShare", "ShortestFirst"`,
		`{"fairShare": {}}`:      "fairShare: Forbidden: only with queueOrder FairShare",
		`{"queueOrder": "FairShare", "fairShare": {"halfLifeSeconds": 0}}`:                 "fairShare.halfLifeSeconds: Invalid value: 0: must be from 1 to 31536000",
		`{"queueOrder": "FairShare", "fairShare": {"resources": {"cpu": 1}}}`:              "fairShare.resources[cpu]: Invalid value",
		`{"queueOrder": "FairShare", "fairShare": {"resources": {"example.com/*x*": 1}}}`:  "fairShare.resources[example.com/*x*]: Invalid value",
		`{"queueOrder": "FairShare", "fairShare": {"resources": {"example.com/gpu": -1}}}`: "fairShare.resources[example.com/gpu]: Invalid value: -1: must be more than 0",
	} {
		args, err := decodeArgs(&runtime.Unknown{Raw: []byte(raw)})
		switch {
		case want == "" && (err != nil || args.QueueOrder != FairShare):
			t.Errorf("%s: %v", raw, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
	}
	if args, err := decodeArgs(nil); err != nil || args.QueueOrder != PriorityFIFO {
		t.Errorf("without arguments: %v", err)
	}
}

func TestRefusalSaysWhoGoesFirst(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	p.line = fairLine(p.clock, nil)
	p.line.podChanged(running("ns", "own", stage.GPU, 40))
	p.line.podChanged(running("b", "p", stage.GPU, 12))
	refuse := func(namespace string, priority int32, names ...string) {
		for _, name := range names {
			p.gangs.refuse(types.NamespacedName{Namespace: namespace, Name: name}, &refusal{priority: priority})
		}
	}
	refuse("a", 0, "x", "y")
	refuse("b", 0, "x")
	refuse("b", 7, "other-priority")
	p.line.podChanged(running("rich", "r", stage.GPU, 60))
	refuse("rich", 0, "x")
	p.group(2)
	pods := p.wholeNodeMembers(2)
	_, why := p.turn(pods[0])
	if want := "; waits behind 3 gangs of namespaces with a smaller share: a 0.000, b 0.120; own share 0.400"; !strings.HasSuffix(why, want) {
		t.Errorf("refused with %q, want it to end with %q", why, want)
	}
	if got := p.gangs.refusalOf(testKey).message; got != why {
		t.Errorf("the other members are told %q", got)
	}
}

// A share that moves is no news by itself: the condition is not written again for it all the time.
func TestRefusalIsNotReworded(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	p.line = fairLine(p.clock, nil)
	p.line.podChanged(running("ns", "own", stage.GPU, 40))
	other := types.NamespacedName{Namespace: "a", Name: "x"}
	p.gangs.refuse(other, &refusal{})
	p.group(2)
	pods := p.wholeNodeMembers(2)
	_, first := p.turn(pods[0])
	p.line.podChanged(running("ns", "more", stage.GPU, 1))
	if _, why := p.turn(pods[0]); why != first {
		t.Errorf("after a share moved: %q", why)
	}
	p.clock.Step(adviceAge)
	if _, why := p.turn(pods[0]); !strings.HasSuffix(why, "a 0.000; own share 0.410") {
		t.Errorf("after a while: %q", why)
	}
	p.gangs.forget(other)
	if _, why := p.turn(pods[0]); !strings.Contains(why, "no gang of a namespace") {
		t.Errorf("after nobody else waits: %q", why)
	}
}

func TestRefusalSaysThatNobodyGoesFirst(t *testing.T) {
	p := newPlay(t, stage.Nodes(1, 8)...)
	p.line = fairLine(p.clock, nil)
	p.group(2)
	if _, why := p.turn(p.wholeNodeMembers(2)[0]); !strings.HasSuffix(why, "; no gang of a namespace with a smaller share waits; own share 0.000") {
		t.Error(why)
	}
}

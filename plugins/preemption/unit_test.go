package preemption

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
)

func describe(c *Candidates) []string {
	var out []string
	for i := range c.Units {
		u := &c.Units[i]
		text := fmt.Sprintf("%v: %d pods", u.Tenant, u.Pods)
		if u.Surplus {
			text += " surplus"
		}
		if len(u.With) > 0 {
			text += fmt.Sprint(" with ", u.With)
		}
		out = append(out, text)
	}
	return out
}

func TestUnits(t *testing.T) {
	low := inGang("low")
	for name, test := range map[string]struct {
		pods  []*corev1.Pod
		gangs map[string]Gang
		want  []string
		going int
	}{
		"a pod without a gang": {
			pods: []*corev1.Pod{on("n0", 0, 8).Obj()},
			want: []string{"pod ns/m-0: 1 pods"},
		},
		"a gang is one": {
			pods:  []*corev1.Pod{low(on("n0", 0, 8)).Obj(), low(on("n1", 1, 8)).Obj()},
			gangs: map[string]Gang{"low": {MinMember: 2, Preemptible: true}},
			want:  []string{"ns/low: 2 pods"},
		},
		"the last ranks of a gang above its minimum go before it": {
			pods:  []*corev1.Pod{low(on("n0", 10, 2)).Obj(), low(on("n1", 9, 2)).Obj(), low(on("n1", 2, 2)).Obj(), low(on("n0", 1, 2)).Obj()},
			gangs: map[string]Gang{"low": {MinMember: 2, Preemptible: true}},
			want:  []string{"ns/low: 2 pods with [1 2]", "pod ns/m-9: 1 pods surplus", "pod ns/m-10: 1 pods surplus"},
		},
		"finished members are part of the minimum": {
			pods:  []*corev1.Pod{low(on("n0", 0, 2)).Obj(), low(on("n1", 1, 2)).Obj()},
			gangs: map[string]Gang{"low": {MinMember: 3, Finished: 2, Preemptible: true}},
			want:  []string{"ns/low: 1 pods with [1]", "pod ns/m-1: 1 pods surplus"},
		},
		"members of a gang of which nothing is known are all needed": {
			pods: []*corev1.Pod{low(on("n0", 0, 8)).Obj(), low(on("n1", 1, 8)).Obj()},
			want: []string{"ns/low: 2 pods"},
		},
		"a native group is one": {
			pods: stage.InGroup("low", on("n0", 0, 8).Obj(), on("n1", 1, 8).Obj()),
			want: []string{"ns/low: 2 pods"},
		},
		"groups of both kinds with one name are two": {
			pods: append(stage.InGroup("low", on("n0", 0, 8).Obj()), low(on("n1", 1, 8)).Obj()),
			want: []string{"ns/low: 1 pods", "ns/low: 1 pods"},
		},
		"one member of the preemptor's priority protects its gang": {
			pods:  []*corev1.Pod{low(on("n0", 0, 8)).Obj(), low(on("n1", 1, 8).Priority(100)).Obj()},
			gangs: map[string]Gang{"low": {MinMember: 1, Preemptible: true}},
		},
		"a gang may say that it is not preemptible": {
			pods:  []*corev1.Pod{low(on("n0", 0, 8)).Obj()},
			gangs: map[string]Gang{"low": {MinMember: 1}},
		},
		"so may a pod": {
			pods: []*corev1.Pod{on("n0", 0, 8).Annotation(podgroup.PreemptibleAnnotation, "false").Obj()},
		},
		"and a member for its gang": {
			pods: []*corev1.Pod{low(on("n0", 0, 8)).Obj(), low(on("n1", 1, 8)).Annotation(podgroup.PreemptibleAnnotation, "false").Obj()},
		},
		"a kubelet's own pods cannot be evicted": {
			pods: []*corev1.Pod{on("n0", 0, 8).Annotation(corev1.MirrorPodAnnotationKey, "x").Obj()},
		},
		"the preemptor's own members are none": {
			pods: []*corev1.Pod{inGang("preemptor")(on("n0", 0, 8)).Obj()},
		},
		"those of them that are ending make room": {
			pods:  []*corev1.Pod{inGang("preemptor")(on("n0", 0, 8)).Terminating().Obj(), on("n1", 1, 8).Obj()},
			want:  []string{"pod ns/m-1: 1 pods"},
			going: 1,
		},
		"pods that are ending make room by themselves": {
			pods:  []*corev1.Pod{low(on("n0", 0, 4)).Terminating().Obj(), low(on("n1", 1, 4)).Obj(), low(on("n1", 2, 4)).Obj()},
			gangs: map[string]Gang{"low": {MinMember: 1, Preemptible: true}},
			want:  []string{"ns/low: 1 pods with [1]", "pod ns/m-2: 1 pods surplus"},
			going: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, pod := range test.pods {
				if pod.DeletionTimestamp != nil {
					pod.DeletionTimestamp = &metav1.Time{Time: noon.Add(10 * time.Second)}
				}
			}
			s := newScene(t, nil, test.pods, stage.Nodes(2, 8)...)
			for name, gang := range test.gangs {
				s.known[types.NamespacedName{Namespace: "ns", Name: name}] = gang
			}
			c := s.candidates(100)
			if got := describe(c); !reflect.DeepEqual(got, test.want) {
				t.Errorf("units %q, want %q", got, test.want)
			}
			if len(c.Going) != test.going {
				t.Errorf("%d pods are going, want %d", len(c.Going), test.going)
			}
		})
	}
}

func TestPodsThatAreLongOverdueAreNeitherRoomNorVictims(t *testing.T) {
	for age, going := range map[time.Duration]int{overdue - time.Second: 1, overdue + time.Second: 0} {
		pod := on("n0", 0, 8).Terminating().Obj()
		pod.DeletionTimestamp = &metav1.Time{Time: noon.Add(-age)}
		c := newScene(t, nil, []*corev1.Pod{pod}, stage.Nodes(1, 8)...).candidates(100)
		if len(c.Units) != 0 || len(c.Going) != going {
			t.Errorf("%v after its grace period: %d units, %d going, want %d", age, len(c.Units), len(c.Going), going)
		}
	}
}

// Between the request to delete a pod and the snapshot that shows it, the pod is no victim again.
func TestPodsBeingEvictedAreGoing(t *testing.T) {
	s := newScene(t, nil, []*corev1.Pod{on("n0", 0, 8).Obj()}, stage.Nodes(1, 8)...)
	s.evicted[stage.UID(0)] = true
	if c := s.candidates(100); len(c.Units) != 0 || len(c.Going) != 1 {
		t.Errorf("%d units, %d going", len(c.Units), len(c.Going))
	}
}

func TestLostWork(t *testing.T) {
	for name, test := range map[string]struct {
		pod        *st.PodWrapper
		checkpoint time.Time
		want       int64
	}{
		"devices times seconds":        {on("n0", 0, 8), time.Time{}, 8 * 3600},
		"since the last checkpoint":    {on("n0", 0, 8), noon.Add(-time.Minute), 8 * 60},
		"one that is older than it":    {on("n0", 0, 8), noon.Add(-2 * time.Hour), 8 * 3600},
		"a checkpoint to come":         {on("n0", 0, 8), noon.Add(time.Hour), 0},
		"no devices count as one":      {on("n0", 0, 0), time.Time{}, 3600},
		"not started":                  {stage.Pod(0, 8).Node("n0").Priority(0), time.Time{}, 0},
		"started later than the clock": {on("n0", 0, 8).StartTime(metav1.NewTime(noon.Add(time.Second))), time.Time{}, 0},
	} {
		s := newScene(t, nil, []*corev1.Pod{inGang("low")(test.pod).Obj()}, stage.Nodes(1, 8)...)
		s.known[types.NamespacedName{Namespace: "ns", Name: "low"}] = Gang{MinMember: 1, Preemptible: true, LastCheckpoint: test.checkpoint}
		if c := s.candidates(100); len(c.Units) != 1 || c.Units[0].Lost != test.want {
			t.Errorf("%s: %+v, want %d", name, c.Units, test.want)
		}
	}
}

func TestPodsWithoutAGangHaveCheckpointsToo(t *testing.T) {
	pod := on("n0", 0, 8).Annotation(podgroup.LastCheckpointTimeAnnotation, noon.Add(-time.Second).Format(time.RFC3339)).Obj()
	if c := newScene(t, nil, []*corev1.Pod{pod}, stage.Nodes(1, 8)...).candidates(100); c.Units[0].Lost != 8 {
		t.Errorf("%d device-seconds, want 8", c.Units[0].Lost)
	}
}

func TestUnitsAreTheSameWhateverTheOrderOfPods(t *testing.T) {
	var want []string
	for turn := range 5 {
		var pods []*corev1.Pod
		for i := range 5 {
			n := (i + turn) % 5
			pods = append(pods, on("n0", n, 1).Obj(), inGang(fmt.Sprintf("gang-%d", n))(on("n0", 10+n, 1)).Obj(), inGang("big")(on("n0", 20+n, 1)).Obj())
		}
		s := newScene(t, nil, pods, stage.Nodes(1, 16)...)
		s.gang("big", 3)
		got := describe(s.candidates(100))
		if want == nil {
			want = got
		} else if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q, then %q", want, got)
		}
	}
}

func TestPriorities(t *testing.T) {
	p := NewPriorities()
	pod := on("n0", 0, 1).Priority(5).Obj()
	below := func(priority int32, want bool, when string) {
		t.Helper()
		if got := p.Below(priority); got != want {
			t.Errorf("%s: something below %d: %v", when, priority, got)
		}
	}
	below(1000, false, "no pods")
	waits := pod.DeepCopy()
	waits.Spec.NodeName = ""
	p.Update(waits)
	below(1000, false, "a pod that waits")
	p.Update(pod)
	p.Update(pod)
	below(5, false, "one of 5")
	below(6, true, "one of 5")
	raised := pod.DeepCopy()
	*raised.Spec.Priority = 7
	p.Update(raised)
	below(6, false, "raised to 7")
	p.Delete(pod.UID)
	p.Delete(pod.UID)
	below(1000, false, "gone")
}

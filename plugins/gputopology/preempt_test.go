package gputopology

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/muster-sched/muster/plugins/preemption"
	"github.com/muster-sched/muster/plugins/stage"
	"github.com/muster-sched/muster/podgroup"
)

// raid is the cycle of a group of priority 100, which was refused beside pods of lower priority.
type raid struct {
	*cycle
	// evicted are the pods that the API server was told to delete, and announced those that were told before.
	evicted, announced []string
}

func newRaid(t *testing.T, minCount int32, low []*corev1.Pod, nodes ...*corev1.Node) *raid {
	t.Helper()
	waiting := stage.Pods(int(minCount), 8, nil)
	for _, pod := range waiting {
		pod.Spec.Priority = ptr.To[int32](100)
	}
	r := &raid{cycle: newCycle(t, levelArgs, minCount, waiting, low, nodes...)}
	r.group.Spec.Priority = ptr.To[int32](100)
	r.pl.evictor = preemption.NewEvictor(r.pl.handle, func(do func()) { do() })
	client := r.pl.handle.ClientSet().(*clientsetfake.Clientset)
	for _, pod := range low {
		r.pl.priorities.Update(pod)
		if err := client.Tracker().Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if a := action.(clienttesting.DeleteActionImpl); len(a.DeleteOptions.DryRun) == 0 {
			r.evicted = append(r.evicted, a.Name)
		}
		return true, nil, nil
	})
	client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if a := action.(clienttesting.PatchActionImpl); a.Subresource == "status" && strings.Contains(string(a.Patch), "DisruptionTarget") {
			r.announced = append(r.announced, a.Name)
		}
		return false, nil, nil
	})
	return r
}

// ask asks for room, and returns where members are nominated, in their order.
func (r *raid) ask() (nominated []string, status *fwk.Status) {
	r.Helper()
	result, status := r.pl.PodGroupPostFilter(r.Context(), nil, stage.GroupInfo(r.group, r.waiting...), nil)
	if result != nil {
		for key, info := range result.NominatingInfos {
			nominated = append(nominated, key.Name+" on "+info.NominatedNodeName)
		}
	}
	slices.Sort(nominated)
	slices.Sort(r.evicted)
	slices.Sort(r.announced)
	return nominated, status
}

// full are pods of priority 0 that fill the nodes one by one.
func full(nodes []*corev1.Node) []*corev1.Pod {
	var pods []*corev1.Pod
	for i, node := range nodes {
		pods = append(pods, stage.Pod(100+i, 8).Node(node.Name).Priority(0).Obj())
	}
	return pods
}

func TestPodGroupPostFilter(t *testing.T) {
	never := ptr.To(schedulingv1beta1.PreemptNever)
	ending := func(pod *corev1.Pod) {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(time.Now().Add(time.Minute))), ptr.To[int64](60)
		pod.Finalizers = []string{"example.com/wait"}
	}
	for name, test := range map[string]struct {
		minCount  int32
		free      int                     // nodes in a third rack that are free
		low       func(low []*corev1.Pod) // changes the pods that run
		gang      func(r *raid)           // changes the group and its members
		code      fwk.Code
		words     string
		nominated []string
		evicted   []string
	}{
		"one victim where one suffices": {
			minCount: 1, code: fwk.Success, words: "preempting pod ns/m-100 (priority 0), the least that makes room in rack r0",
			nominated: []string{"m-0 on r0-n0"}, evicted: []string{"m-100"},
		},
		"free and freed room": {
			minCount: 2, free: 1, code: fwk.Success, words: "preempting pod ns/m-",
			nominated: []string{"m-0 on r0-n0", "m-1 on r2-n0"}, evicted: []string{"m-100"},
		},
		"the lowest priority": {
			minCount: 1, low: func(low []*corev1.Pod) {
				for _, pod := range low[:3] {
					pod.Spec.Priority = ptr.To[int32](50)
				}
			},
			code: fwk.Success, words: "preempting pod ns/m-103 (priority 0)", nominated: []string{"m-0 on r1-n1"}, evicted: []string{"m-103"},
		},
		"the domain and the victims together": {
			minCount: 2, gang: func(r *raid) {
				r.group.Annotations = map[string]string{podgroup.RequiredTopologyAnnotation: "rack"}
			},
			low: func(low []*corev1.Pod) {
				low[0].Annotations = map[string]string{podgroup.PreemptibleAnnotation: "false"}
			},
			code: fwk.Success, words: "the least that makes room in rack r1",
			nominated: []string{"m-0 on r1-n0", "m-1 on r1-n1"}, evicted: []string{"m-102", "m-103"},
		},
		"a native group goes whole": {
			minCount: 1, low: func(low []*corev1.Pod) {
				stage.InGroup("other", low[:2]...)
				low[2].Annotations = map[string]string{podgroup.PreemptibleAnnotation: "false"}
				low[3].Annotations = low[2].Annotations
			},
			code: fwk.Success, words: "preempting ns/other (priority 0, 2 pods)", nominated: []string{"m-0 on r0-n0"}, evicted: []string{"m-100", "m-101"},
		},
		"pods on their way out are waited for": {
			minCount: 1, low: func(low []*corev1.Pod) { ending(low[2]) },
			code: fwk.Success, words: "waiting for 1 pod on its way out already", nominated: []string{"m-0 on r1-n0"},
		},
		"nothing for a group that would not fit": {
			minCount: 5, code: fwk.UnschedulableAndUnresolvable, words: "preempting pods of lower priority would not make room",
		},
		"it has a place": {minCount: 1, free: 1, code: fwk.Unschedulable},
		"the group has preemptionPolicy Never": {
			minCount: 1, gang: func(r *raid) { r.group.Spec.PreemptionPolicy = never },
			code:  fwk.UnschedulableAndUnresolvable,
			words: "preemptionPolicy Never: nobody of lower priority is preempted; it would fit by preempting pod ns/m-100 (priority 0), the least that makes room in rack r0",
		},
		"a member has preemptionPolicy Never": {
			minCount: 1, gang: func(r *raid) { r.waiting[0].Spec.PreemptionPolicy = ptr.To(corev1.PreemptNever) },
			code: fwk.UnschedulableAndUnresolvable, words: "preemptionPolicy Never",
		},
		"nobody has a lower priority": {
			minCount: 1, gang: func(r *raid) { r.group.Spec.Priority = ptr.To[int32](0) },
			code: fwk.UnschedulableAndUnresolvable,
		},
		"an unknown level": {
			minCount: 1, gang: func(r *raid) {
				r.group.Annotations = map[string]string{podgroup.RequiredTopologyAnnotation: "row"}
			},
			code: fwk.UnschedulableAndUnresolvable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := racks(2, 2)
			low := full(nodes)
			for i := range test.free {
				nodes = append(nodes, place("a", "r2", fmt.Sprintf("r2-n%d", i), 8))
			}
			if test.low != nil {
				test.low(low)
			}
			r := newRaid(t, test.minCount, low, nodes...)
			if test.gang != nil {
				test.gang(r)
			}
			nominated, status := r.ask()
			if status.Code() != test.code || !strings.Contains(status.Message(), test.words) {
				t.Errorf("%v %q, want %v %q", status.Code(), status.Message(), test.code, test.words)
			}
			if !slices.Equal(nominated, test.nominated) {
				t.Errorf("nominated: %v, want %v", nominated, test.nominated)
			}
			if !slices.Equal(r.evicted, test.evicted) || !slices.Equal(r.announced, test.evicted) {
				t.Errorf("evicted: %v, announced: %v, want %v", r.evicted, r.announced, test.evicted)
			}
			for _, info := range r.infos {
				if n := len(info.GetPods()); n != 1 && !strings.HasPrefix(info.Node().Name, "r2-") {
					t.Errorf("%d pods are left on %s in the snapshot", n, info.Node().Name)
				}
			}
		})
	}
}

// A group that preempts nobody is told who would go, anew every half minute.
func TestWouldPreempt(t *testing.T) {
	nodes := racks(1, 1)
	r := newRaid(t, 1, full(nodes), nodes...)
	r.group.Spec.PreemptionPolicy = ptr.To(schedulingv1beta1.PreemptNever)
	clock := testingclock.NewFakePassiveClock(time.Now())
	r.pl.clock = clock
	told := func(want string) {
		t.Helper()
		const never = "preemptionPolicy Never: nobody of lower priority is preempted"
		if _, status := r.ask(); status.Message() != never+want || len(r.evicted) != 0 {
			t.Errorf("told %q, want %q; evicted: %v", status.Message(), never+want, r.evicted)
		}
	}
	told("; it would fit by preempting pod ns/m-100 (priority 0), the least that makes room in rack r0")
	r.infos[0].GetPods()[0].GetPod().Annotations = map[string]string{podgroup.PreemptibleAnnotation: "false"}
	told("; it would fit by preempting pod ns/m-100 (priority 0), the least that makes room in rack r0")
	clock.SetTime(clock.Now().Add(wouldAge))
	told("")
}

// Composite groups are left to Kubernetes, and victims that are being evicted are not evicted a second time.
func TestPodGroupPostFilterStandsAside(t *testing.T) {
	nodes := racks(1, 2)
	r := newRaid(t, 1, full(nodes), nodes...)
	if nominated, status := r.ask(); !status.IsSuccess() || len(r.evicted) != 1 {
		t.Fatalf("nominated: %v, evicted: %v: %v", nominated, r.evicted, status)
	}
	nominated, status := r.ask()
	if !status.IsSuccess() || status.Message() != "waiting for 1 pod on its way out already" || len(r.evicted) != 1 {
		t.Errorf("the second time: %v, evicted %v: %v", nominated, r.evicted, status)
	}
	result, status := r.pl.PodGroupPostFilter(t.Context(), nil, &framework.PodGroupInfo{
		Name: "root", Namespace: "ns", Type: fwk.CompositePodGroupKeyType, CompositePodGroup: &schedulingv1alpha3.CompositePodGroup{},
	}, nil)
	if result != nil || status.Code() != fwk.Unschedulable {
		t.Errorf("a composite group: %v, %v", result, status)
	}
}

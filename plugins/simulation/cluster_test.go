package simulation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// testNode is a node in a rack of a block, with so many GPUs.
func testNode(name, block, rack string, gpus int64) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100"), corev1.ResourceMemory: resource.MustParse("100Gi"), corev1.ResourcePods: resource.MustParse("110"),
		GPU: *resource.NewQuantity(gpus, resource.DecimalSI),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"block": block, "rack": rack, corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Capacity: room, Allocatable: room},
	}
}

func newCluster(t testing.TB, options Options) *Cluster {
	t.Helper()
	options.Coscheduling = "topologyLevels: [block, rack]"
	options.GPUTopology = "topologyLevels: [block, rack]"
	c, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// lines returns what happened, one line each, as far as it is chosen.
func lines(c *Cluster, kinds ...Kind) *[]string {
	var all []string
	c.Observe(func(e Event) {
		if slices.Contains(kinds, e.Kind) {
			all = append(all, e.String())
		}
	})
	return &all
}

func advance(t *testing.T, c *Cluster, d time.Duration) {
	t.Helper()
	if err := c.Advance(d); err != nil {
		t.Fatal(err)
	}
}

func TestGangRunsAndTheNextFollows(t *testing.T) {
	c := newCluster(t, Options{})
	for i := range 4 {
		c.AddNode(testNode(fmt.Sprintf("n%d", i), "b", fmt.Sprintf("r%d", i/2), 8))
	}
	seen := lines(c, Released, Ended)
	c.Submit(Job{Name: "a", Sizes: []int64{8, 8, 8}, MinMember: 3, RunTime: time.Minute})
	c.Submit(Job{Name: "b", Sizes: []int64{8, 8}, MinMember: 2, RunTime: time.Minute})
	advance(t, c, 10*time.Second)
	a, b := c.api.groups[types.NamespacedName{Namespace: Namespace, Name: "a"}], c.api.groups[types.NamespacedName{Namespace: Namespace, Name: "b"}]
	if a.Status.Phase != "Running" || b.Status.Phase != "Pending" || !meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionUnschedulable) {
		t.Errorf("a is %s, b is %s with %+v", a.Status.Phase, b.Status.Phase, b.Status.Conditions)
	}
	advance(t, c, 3*time.Minute)
	want := []string{
		"Released a-1-0 a-0-0 a-2-0",
		"Ended a-0-0 node n0 Succeeded", "Ended a-1-0 node n1 Succeeded", "Ended a-2-0 node n2 Succeeded",
		"Released b-0-0 b-1-0",
		"Ended b-0-0 node n0 Succeeded", "Ended b-1-0 node n1 Succeeded",
	}
	if !slices.Equal(*seen, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(*seen, "\n"), strings.Join(want, "\n"))
	}
}

// A commit is carried out, and told of, also when that follows from the end of the one member that it waited for.
func TestGangStartsWhenASurplusMemberGoes(t *testing.T) {
	for name, goes := range map[string]func(*Cluster){
		"seen":                   func(c *Cluster) { c.LetGo(ShowMember) },
		"the watch starts again": func(c *Cluster) { c.Relist(ShowMember) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, Options{})
			c.AddNode(testNode("n0", "b", "r", 8))
			c.Hold(Schedule)
			c.Submit(Job{Name: "a", Sizes: []int64{2, 2, 2}, MinMember: 2})
			advance(t, c, time.Second)
			for range 2 {
				c.process.schedule()
			}
			c.Hold(ShowMember)
			c.Hold(MakePod)
			seen := lines(c, Released)
			c.DeletePod("a-2-0")
			advance(t, c, time.Second)
			if len(*seen) > 0 {
				t.Fatalf("before it was shown: %v", *seen)
			}
			goes(c)
			advance(t, c, time.Second)
			if want := []string{"Released a-0-0 a-1-0"}; !slices.Equal(*seen, want) {
				t.Errorf("got %v, want %v", *seen, want)
			}
		})
	}
}

// A gang that lost two of three nodes has room for one member again. Whether that one starts is up to its match policy.
func TestMatchPolicyOfAGangThatLostMembers(t *testing.T) {
	for policy, want := range map[podgroup.MatchPolicy]int{podgroup.WaitingAndRunning: 1, podgroup.OnceSatisfied: 2} {
		t.Run(string(policy), func(t *testing.T) {
			c := newCluster(t, Options{Rendezvous: podgroup.RendezvousPolicy{Timeout: time.Hour}})
			for i := range 3 {
				c.AddNode(testNode(fmt.Sprintf("n%d", i), "b", "r", 8))
			}
			c.Submit(Job{Name: "a", Sizes: []int64{8, 8, 8}, MinMember: 3, Annotations: map[string]string{podgroup.MatchPolicyAnnotation: string(policy)}})
			advance(t, c, 10*time.Second)
			c.RemoveNode("n1")
			c.RemoveNode("n2")
			advance(t, c, time.Minute)
			c.AddNode(testNode("n3", "b", "r", 8))
			advance(t, c, 11*time.Minute)
			if got := len(c.on("n0")) + len(c.on("n3")); got != want {
				t.Errorf("%d members have a node, want %d", got, want)
			}
		})
	}
}

// A binding that the API server always refuses is tried again with pauses, also where another member waits for the
// room.
func TestBindingThatAlwaysFails(t *testing.T) {
	for name, job := range map[string]Job{
		"all are needed":         {Sizes: []int64{2, 2, 2}, MinMember: 3},
		"one has no room":        {Sizes: []int64{4, 4, 4}, MinMember: 2},
		"two have no room":       {Sizes: []int64{4, 4, 4, 4}, MinMember: 1},
		"the last one is needed": {Sizes: []int64{8, 8}, MinMember: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, Options{Binds: func(pod *corev1.Pod) BindResult {
				if pod.Name == "a-0-0" {
					return BindFails
				}
				return BindSucceeds
			}})
			c.AddNode(testNode("n0", "b", "r", 8))
			failed := lines(c, BindFailed)
			job.Name = "a"
			c.Submit(job)
			advance(t, c, time.Minute)
			if n := len(*failed); n < 1 || n > 12 {
				t.Errorf("tried to bind %d times in a minute", n)
			}
			bound := 0
			for _, pod := range c.on("n0") {
				bound += int(gpusOf(pod))
			}
			if len(job.Sizes) > int(job.MinMember) && bound != 8 {
				t.Errorf("%d of 8 GPUs are used, although others could have them", bound)
			}
		})
	}
}

// Two members that cannot be bound, and of which the gang needs one, do not take turns without a pause.
func TestBindingsThatAlwaysFail(t *testing.T) {
	c := newCluster(t, Options{Binds: func(pod *corev1.Pod) BindResult {
		if pod.Name == "a-0-0" || pod.Name == "a-1-0" {
			return BindFails
		}
		return BindSucceeds
	}})
	for i := range 2 {
		c.AddNode(testNode(fmt.Sprintf("n%d", i), "b", "r", 8))
	}
	failed := lines(c, BindFailed)
	c.Submit(Job{Name: "a", Sizes: []int64{4, 4, 4, 4}, MinMember: 3})
	advance(t, c, time.Minute)
	if n := len(*failed); n < 4 || n > 24 {
		t.Errorf("tried to bind %d times in a minute", n)
	}
}

// The scheduler binds a pod that is gone, and is not told so for a while. It tries again, but not all the time.
func TestPodThatGoesUnseen(t *testing.T) {
	c := newCluster(t, Options{})
	failed := lines(c, BindFailed)
	c.Submit(Job{Name: "a", Sizes: []int64{4, 4}, MinMember: 2})
	advance(t, c, time.Second)
	c.Hold(ShowMember)
	c.Hold(ShowPod)
	c.DeletePod("a-1-0")
	c.AddNode(testNode("n0", "b", "r", 8))
	advance(t, c, time.Minute)
	if n := len(*failed); n < 1 || n > 20 {
		t.Errorf("bound %d times in a minute", n)
	}
	c.LetGo(ShowMember)
	c.LetGo(ShowPod)
	advance(t, c, time.Minute)
	for _, pod := range c.api.podsOf(types.NamespacedName{Namespace: Namespace, Name: "a"}) {
		if pod.Spec.NodeName == "" {
			t.Errorf("%s has no node", pod.Name)
		}
	}
}

// What a scheduler said of a preemption is taken back by the next one, if that waits for nobody.
func TestPreemptionOfASchedulerThatDied(t *testing.T) {
	c := newCluster(t, Options{})
	for i := range 2 {
		c.AddNode(testNode(fmt.Sprintf("n%d", i), "b", "r", 8))
	}
	c.Submit(Job{Name: "low", Sizes: []int64{8, 8}, MinMember: 2})
	advance(t, c, 10*time.Second)
	c.Submit(Job{Name: "high", Sizes: []int64{8, 8}, MinMember: 2, Priority: 10})
	advance(t, c, time.Second)
	preempts := func() bool {
		group := c.api.groups[types.NamespacedName{Namespace: Namespace, Name: "high"}]
		return meta.IsStatusConditionTrue(group.Status.Conditions, v1alpha1.ConditionPreempting)
	}
	if !preempts() {
		t.Fatal("it does not preempt")
	}
	c.Kill(func(*corev1.Pod) bool { return false })
	c.RemoveNode("n1")
	advance(t, c, time.Minute)
	if !preempts() {
		t.Fatal("it preempts no more before anybody could say so")
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	advance(t, c, time.Second)
	if preempts() {
		t.Error("it still preempts")
	}
}

// Members of a gang that preempted ask for no node any more when it waits for nobody: each change of theirs would keep
// others from it anew. So also if the scheduler hears late of what it wrote to them.
func TestNominationsEndWithThePreemption(t *testing.T) {
	for name, test := range map[string]struct {
		ends func(*Cluster)
		late bool
	}{
		"PodGroup deleted":             {func(c *Cluster) { c.DeleteGroup("high") }, false},
		"PodGroup deleted, shown late": {func(c *Cluster) { c.DeleteGroup("high") }, true},
		"in vain":                      {func(c *Cluster) { c.RemoveNode("n1") }, false},
		"in vain, shown late":          {func(c *Cluster) { c.RemoveNode("n1") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, Options{})
			for i := range 2 {
				c.AddNode(testNode(fmt.Sprintf("n%d", i), "b", "r", 8))
			}
			c.Submit(Job{Name: "low", Sizes: []int64{8, 8}, MinMember: 2, StopTime: 30 * time.Second})
			advance(t, c, 10*time.Second)
			c.Hold(Schedule)
			c.Submit(Job{Name: "high", Sizes: []int64{8, 8}, MinMember: 2, Priority: 10})
			advance(t, c, time.Second)
			if test.late {
				c.Hold(ShowPod)
			}
			c.LetGo(Schedule)
			advance(t, c, time.Second)
			if n := askForNodes(c, "high"); n != 2 {
				t.Fatalf("%d members are nominated, want 2", n)
			}
			test.ends(c)
			advance(t, c, 3*time.Minute)
			c.LetGo(ShowPod)
			advance(t, c, 5*time.Second)
			if n := askForNodes(c, "high"); n != 0 {
				t.Errorf("%d members are nominated still", n)
			}
			for node := range c.api.nodes {
				if kept := c.process.scheduler.SchedulingQueue.NominatedPodsForNode(node); len(kept) > 0 {
					t.Errorf("node %s is kept for %d pods", node, len(kept))
				}
			}
		})
	}
}

// askForNodes counts the pods of a gang that say a node is kept for them.
func askForNodes(c *Cluster, gang string) (n int) {
	for _, pod := range c.api.podsOf(types.NamespacedName{Namespace: Namespace, Name: gang}) {
		if pod.Status.NominatedNodeName != "" {
			n++
		}
	}
	return n
}

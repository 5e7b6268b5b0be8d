package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
)

// inNativeMode makes this binary's cluster one whose Kubernetes' own PodGroups Muster schedules. Feature
// gates are one set for a process, so such a cluster gets a process of its own.
const inNativeMode = "MUSTER_TEST_NATIVE_MODE"

// TestNativeMode runs every test of the name TestInNativeMode on the other cluster, and passes if they do.
func TestNativeMode(t *testing.T) {
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), executable, "-test.v", "-test.run=^TestInNativeMode")
	cmd.Env = append(os.Environ(), inNativeMode+"=true")
	if log := os.Getenv("MUSTER_TEST_LOG"); log != "" {
		cmd.Env = append(cmd.Env, "MUSTER_TEST_LOG="+log+".native-mode")
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	report := regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): .*(\n\s+\S+_test\.go:.*)*`).FindAllString(out.String(), -1)
	t.Logf("in native mode:\n%s", strings.Join(report, "\n"))
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, out.String())
	case len(report) < 5:
		t.Errorf("only %d tests ran:\n%s", len(report), out.String())
	}
}

// newNativeScene is a scene in the process for native tests; elsewhere the test is skipped.
func newNativeScene(t *testing.T) *scene {
	t.Helper()
	if os.Getenv(inNativeMode) == "" {
		t.Skip("runs as part of TestNativeMode")
	}
	return newScene(t)
}

// withLevels gives the shared scheduler the two levels of the scenarios until the test ends.
func (s *scene) withLevels() {
	s.Helper()
	s.Cleanup(func() { scheduler.Stop(); s.restartScheduler() })
	s.restartWithLevels()
}

func (s *scene) restartWithLevels() {
	s.Helper()
	scheduler.Stop()
	var err error
	scheduler, err = startSchedulerWith(context.Background(), func(c *configv1.KubeSchedulerConfiguration) {
		for _, plugin := range []string{"Coscheduling", "GPUTopology"} {
			setPluginArgs(&c.Profiles[0], plugin, fmt.Sprintf(`{"topologyLevels": [%q, %q]}`, zoneLevel, rackLevel))
		}
	})
	s.must(err)
}

// nativeGroup makes a native pod group; change may be nil.
func (s *scene) nativeGroup(name string, minCount int32, change func(*schedulingv1beta1.PodGroup)) *schedulingv1beta1.PodGroup {
	s.Helper()
	g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace}}
	g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: minCount}
	if change != nil {
		change(g)
	}
	s.must(kube.Create(s.ctx, g))
	return g
}

// oneDomainOf is the native constraint that the group be in one domain of a level.
func oneDomainOf(level string) func(*schedulingv1beta1.PodGroup) {
	return func(g *schedulingv1beta1.PodGroup) {
		g.Spec.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{Topology: []schedulingv1beta1.TopologyConstraint{{Key: level}}}
	}
}

// inGroup makes a pod a member of a native pod group.
func inGroup(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name} }
}

// nativeMembers returns n pods of a native pod group, named after it.
func (s *scene) nativeMembers(group string, n, gpus int, change ...func(*corev1.Pod)) []*corev1.Pod {
	return s.pods(group, "", n, gpus, append(change, inGroup(group))...)
}

// nativeBound returns the nodes of a native pod group's bound members, by pod.
func (s *scene) nativeBound(group string) map[string]string {
	s.Helper()
	pods := &corev1.PodList{}
	s.must(kube.List(s.ctx, pods, client.InNamespace(s.namespace)))
	nodes := map[string]string{}
	for _, p := range pods.Items {
		if g := p.Spec.SchedulingGroup; g != nil && *g.PodGroupName == group && p.Spec.NodeName != "" {
			nodes[p.Name] = p.Spec.NodeName
		}
	}
	return nodes
}

func (s *scene) awaitNativeBound(group string, n int) map[string]string {
	s.Helper()
	var nodes map[string]string
	s.await("pod group "+group, func() string {
		if nodes = s.nativeBound(group); len(nodes) != n {
			return fmt.Sprintf("%d members bound, want %d; the group says %q", len(nodes), n, s.nativeRefusal(group))
		}
		return ""
	})
	return nodes
}

// nativeRefusal returns why the group is not scheduled, "" if it is or was not tried yet.
func (s *scene) nativeRefusal(group string) string {
	g := &schedulingv1beta1.PodGroup{}
	if err := kube.Get(s.ctx, client.ObjectKey{Namespace: s.namespace, Name: group}, g); err != nil {
		return err.Error()
	}
	c := meta.FindStatusCondition(g.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled)
	if c == nil || c.Status != metav1.ConditionFalse {
		return ""
	}
	return c.Message
}

// awaitNativeRefusal waits until the group is refused with all of these words.
func (s *scene) awaitNativeRefusal(group string, words ...string) {
	s.Helper()
	s.await("refusal of pod group "+group, func() string {
		said := s.nativeRefusal(group)
		for _, part := range words {
			if !strings.Contains(said, part) {
				return fmt.Sprintf("%q does not contain %q", said, part)
			}
		}
		return ""
	})
}

// A native gang that does not fit holds nothing, says why in the planner's words, and starts whole when
// the node that it lacks is there.
func TestInNativeModeGangWaitsThenStarts(t *testing.T) {
	s := newNativeScene(t)
	s.nodes(3, controlplane.NodeShape{})
	s.nativeGroup("gang", 4, nil)
	s.create(s.nativeMembers("gang", 4, 8)...)

	s.awaitNativeRefusal("gang", "gang needs 4 members (with nvidia.com/gpu 8", "room for 3", "nvidia.com/gpu: needed 32, free 24 of 24")
	s.await("words of a member", func() string {
		pod := &corev1.Pod{}
		s.must(kube.Get(s.ctx, client.ObjectKey{Namespace: s.namespace, Name: "gang-0"}, pod))
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable && strings.Contains(c.Message, "room for 3") {
				return ""
			}
		}
		return fmt.Sprint(pod.Status.Conditions)
	})
	if n := len(s.nativeBound("gang")); n != 0 {
		t.Fatalf("%d of 4 members are bound", n)
	}
	s.create(s.singles(3, 8)...)
	s.awaitBound("", 3)
	for i := range 3 {
		s.remove(fmt.Sprintf("single-%d", i))
	}
	s.nodes(1, controlplane.NodeShape{})
	s.awaitNativeBound("gang", 4)
}

// Members of both kinds of gangs and single pods share a scheduler, and neither kind needs the other.
func TestInNativeModeAndClassicGangsSideBySide(t *testing.T) {
	s := newNativeScene(t)
	s.nodes(4, controlplane.NodeShape{})
	s.group("classic", 2)
	s.nativeGroup("native", 2, nil)
	s.create(s.members("classic", 2, 8)...)
	s.create(s.nativeMembers("native", 2, 4)...)
	s.create(s.singles(1, 8)...)
	s.awaitBound("classic", 2)
	native := s.awaitNativeBound("native", 2)
	if native["native-0"] != native["native-1"] {
		t.Errorf("two members of 4 GPUs break two nodes: %v", native)
	}
	s.awaitPodOn("single-0", "")

	// A classic gang that does not fit beside the native one is refused by its own plan.
	s.group("late", 2)
	s.create(s.members("late", 2, 8)...)
	s.awaitRefused("late")
	s.remove("native-0", "native-1", "single-0")
	s.awaitBound("late", 2)
}

// Ranks, compared as numbers, run through the nodes of the group in topology order.
func TestInNativeModeRanksRunInTopologyOrder(t *testing.T) {
	s := newNativeScene(t)
	s.withLevels()
	for _, r := range []string{"r10", "r2"} {
		s.nodes(6, controlplane.NodeShape{NamePrefix: r, Labels: map[string]string{rackLevel: r, zoneLevel: "a"}})
	}
	s.nativeGroup("gang", 12, nil)
	s.create(s.nativeMembers("gang", 12, 8, func(p *corev1.Pod) {
		p.Labels = map[string]string{"batch.kubernetes.io/job-completion-index": p.Name[strings.LastIndex(p.Name, "-")+1:]}
	})...)
	nodes := s.awaitNativeBound("gang", 12)
	for rank := range 12 {
		want := fmt.Sprintf("r2-%d", rank)
		if rank >= 6 {
			want = fmt.Sprintf("r10-%d", rank-6)
		}
		if got := nodes[fmt.Sprintf("gang-%d", rank)]; got != want {
			t.Errorf("rank %d is on %s, want %s", rank, got, want)
		}
	}
}

// The constraint of the native API means what the annotation means; the inner one of the two counts.
func TestInNativeModeConstraint(t *testing.T) {
	s := newNativeScene(t)
	s.withLevels()
	s.nodes(2, controlplane.NodeShape{NamePrefix: "a1", Labels: map[string]string{zoneLevel: "a", rackLevel: "a1"}})
	s.nodes(3, controlplane.NodeShape{NamePrefix: "a2", Labels: map[string]string{zoneLevel: "a", rackLevel: "a2"}})

	s.nativeGroup("one-rack", 3, func(g *schedulingv1beta1.PodGroup) {
		oneDomainOf(rackLevel)(g)
		g.Annotations = required(zoneLevel)
	})
	s.create(s.nativeMembers("one-rack", 3, 4)...)
	for pod, node := range s.awaitNativeBound("one-rack", 3) {
		if !strings.HasPrefix(node, "a1-") {
			t.Errorf("%s is on %s: the tightest rack that holds all is a1", pod, node)
		}
	}

	// One more member keeps the rack, of which half a node is left.
	s.create(s.pod("late", "", 8, inGroup("one-rack")))
	s.await("words of the late member", func() string {
		pod := &corev1.Pod{}
		s.must(kube.Get(s.ctx, client.ObjectKey{Namespace: s.namespace, Name: "late"}, pod))
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && strings.Contains(c.Message, "the gang's rack a1 is full") {
				return ""
			}
		}
		return fmt.Sprint(pod.Status.Conditions)
	})
	s.nodes(1, controlplane.NodeShape{NamePrefix: "a1", Labels: map[string]string{zoneLevel: "a", rackLevel: "a1"}})
	s.awaitPodOn("late", "a1-2")

	s.nativeGroup("unknown", 1, oneDomainOf("example.com/row"))
	s.create(s.nativeMembers("unknown", 1, 1)...)
	s.awaitNativeRefusal("unknown", "spec.schedulingConstraints.topology", `"example.com/row"`, zoneLevel+", "+rackLevel+", "+hostLevel)
	if n := len(s.nativeBound("unknown")); n != 0 {
		t.Errorf("%d members with an unknown level are bound", n)
	}
}

// Members beyond the minimum go as far as there is room, the others wait without holding anything.
func TestInNativeModeSurplus(t *testing.T) {
	s := newNativeScene(t)
	s.nodes(3, controlplane.NodeShape{})
	s.nativeGroup("gang", 2, nil)
	// Gated until all are there, so that one cycle sees all of them.
	gate := corev1.PodSchedulingGate{Name: "muster.dev/test"}
	members := s.nativeMembers("gang", 5, 8, func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{gate} })
	s.create(members...)
	for _, p := range members {
		patch := client.MergeFrom(p.DeepCopy())
		p.Spec.SchedulingGates = nil
		s.must(kube.Patch(s.ctx, p, patch))
	}
	s.awaitNativeBound("gang", 3)
	s.nodes(2, controlplane.NodeShape{})
	s.awaitNativeBound("gang", 5)
}

// A group of higher priority takes the room of pods of lower priority, all of it or nothing, by
// Kubernetes' own preemption for pod groups, which asks our plan where.
func TestInNativeModeGroupPreempts(t *testing.T) {
	s := newNativeScene(t)
	s.withLevels()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Value: 1000}
	s.createClass(class)
	s.nodes(2, controlplane.NodeShape{NamePrefix: "a1", Labels: map[string]string{zoneLevel: "a", rackLevel: "a1"}})
	s.nodes(1, controlplane.NodeShape{NamePrefix: "a2", Labels: map[string]string{zoneLevel: "a", rackLevel: "a2"}})
	s.create(s.singles(3, 8)...)
	s.awaitBound("", 3)

	s.nativeGroup("urgent", 2, func(g *schedulingv1beta1.PodGroup) {
		oneDomainOf(rackLevel)(g)
		g.Spec.PriorityClassName = class.Name
	})
	s.create(s.nativeMembers("urgent", 2, 8, func(p *corev1.Pod) { p.Spec.PriorityClassName = class.Name })...)
	for pod, node := range s.awaitNativeBound("urgent", 2) {
		if !strings.HasPrefix(node, "a1-") {
			t.Errorf("%s is on %s, outside the one rack that can hold the group", pod, node)
		}
	}
	s.awaitPodOn("single-2", "")
}

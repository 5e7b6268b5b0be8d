package integration

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

func TestGangThatDoesNotFitHoldsNothing(t *testing.T) {
	s := newScene(t)
	s.nodes(7, controlplane.NodeShape{})
	s.group("gang", 8)
	s.create(s.members("gang", 8, 8)...)

	why := s.awaitRefused("gang").Message
	for _, part := range []string{"gang needs 8 members (with nvidia.com/gpu 8", "room for 7", "nvidia.com/gpu: needed 64, free 56 of 56"} {
		if !strings.Contains(why, part) {
			t.Errorf("explanation %q does not contain %q", why, part)
		}
	}
	if n := len(s.bound(s.namespace, "gang")); n != 0 {
		t.Fatalf("%d of 8 members are bound", n)
	}
	// Nothing is held: the room the gang would need is there for others.
	s.create(s.singles(7, 8)...)
	s.awaitBound("", 7)
	for i := range 7 {
		s.remove(fmt.Sprintf("single-%d", i))
	}
	s.nodes(1, controlplane.NodeShape{})
	s.awaitBound("gang", 8)
	s.awaitCondition(s.namespace, "gang", podgroups.ConditionUnschedulable, "False")
	s.awaitCondition(s.namespace, "gang", podgroups.ConditionScheduled, "True")
}

// Two gangs that each need three quarters of the cluster come with their pods interleaved: one
// starts whole, the other when the first ends. Many lanes, each a cluster of its own, go through
// many random orders side by side.
func TestInterleavedGangsNeverShareTheCluster(t *testing.T) {
	const lanes, rounds = 10, 20
	s := newScene(t)
	var wg sync.WaitGroup
	for lane := range lanes {
		name := fmt.Sprintf("lane%d", lane)
		s.nodes(4, controlplane.NodeShape{NamePrefix: name, Labels: map[string]string{laneLabel: name}})
		wg.Add(1)
		go func() {
			defer wg.Done()
			for round := range rounds {
				s.interleave(name, rand.New(rand.NewPCG(uint64(lane), uint64(round))))
			}
		}()
	}
	wg.Wait()
}

func (s *scene) interleave(lane string, random *rand.Rand) {
	prefix := fmt.Sprintf("%s-%d", lane, random.Uint32())
	gangs := []string{prefix + "-a", prefix + "-b"}
	var objects []client.Object
	for _, g := range gangs {
		group := &podgroups.PodGroup{}
		group.Name, group.Namespace, group.Spec.MinMember = g, s.namespace, 3
		objects = append(objects, group)
		for _, p := range s.members(g, 3, 8, inLane(lane)) {
			objects = append(objects, p)
		}
	}
	random.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	for _, o := range objects {
		if err := kube.Create(s.ctx, o); err != nil {
			s.Error(err)
			return
		}
	}
	first := ""
	s.await(lane+": one gang whole, the other refused", func() string {
		counts := map[string]int{}
		for _, g := range gangs {
			counts[g] = len(s.bound(s.namespace, g))
		}
		for i, g := range gangs {
			other := gangs[1-i]
			if counts[g] == 3 && counts[other] > 0 {
				s.Errorf("%s: %v: both gangs hold nodes", lane, counts)
			}
			if counts[g] == 3 {
				first = g
				return ""
			}
		}
		return fmt.Sprint(counts)
	})
	second := gangs[0]
	if second == first {
		second = gangs[1]
	}
	if n := len(s.bound(s.namespace, second)); n != 0 {
		s.Errorf("%s: %d members of the second gang are bound beside the first", lane, n)
	}
	for i := range 3 {
		s.remove(fmt.Sprintf("%s-%d", first, i))
	}
	s.awaitBound(second, 3)
	for i := range 3 {
		s.remove(fmt.Sprintf("%s-%d", second, i))
	}
}

// A thousand pods of twenty gangs come before, after and among their PodGroups. Fourteen gangs fit.
func TestThousandPodsOfTwentyGangs(t *testing.T) {
	const gangs, size, fit = 20, 50, 14
	s := newScene(t)
	s.nodes(fit*size/8+1, controlplane.NodeShape{}) // 8 GPUs each, 1 a member: room for 14 gangs and a bit
	var objects []client.Object
	for g := range gangs {
		name := fmt.Sprintf("gang%d", g)
		group := &podgroups.PodGroup{}
		group.Name, group.Namespace, group.Spec.MinMember = name, s.namespace, size
		pods := s.members(name, size, 1)
		at := []int{0, size, size / 2}[g%3]
		for i, p := range pods {
			if i == at {
				objects = append(objects, group)
			}
			objects = append(objects, p)
		}
		if at == size {
			objects = append(objects, group)
		}
	}
	s.createAtOnce(objects...)
	count := func() (whole, broken int, all map[string]int) {
		pods := &corev1.PodList{}
		s.must(kube.List(s.ctx, pods, client.InNamespace(s.namespace)))
		all = map[string]int{}
		for _, p := range pods.Items {
			if p.Spec.NodeName != "" {
				all[p.Labels[podgroups.GroupLabel]]++
			}
		}
		for _, n := range all {
			if n == size {
				whole++
			} else {
				broken++
			}
		}
		return whole, broken, all
	}
	s.await("fourteen gangs whole, none in part", func() string {
		if whole, broken, all := count(); whole != fit || broken != 0 {
			return fmt.Sprintf("%d whole, %d in part: %v", whole, broken, all)
		}
		return ""
	})
	// The others have been told so.
	refused := 0
	s.await("six gangs refused", func() string {
		groups := &podgroups.PodGroupList{}
		s.must(kube.List(s.ctx, groups, client.InNamespace(s.namespace)))
		refused = 0
		for _, g := range groups.Items {
			for _, c := range g.Status.Conditions {
				if c.Type == podgroups.ConditionUnschedulable && c.Status == "True" {
					refused++
				}
			}
		}
		if refused != gangs-fit {
			return fmt.Sprintf("%d refused", refused)
		}
		return ""
	})
	if whole, broken, all := count(); whole != fit || broken != 0 {
		t.Errorf("%d whole, %d in part: %v", whole, broken, all)
	}
}

func TestSameNameInTwoNamespaces(t *testing.T) {
	s := newScene(t)
	s.nodes(4, controlplane.NodeShape{})
	other := s.newNamespace()
	s.group("gang", 3)
	s.groupIn(other, "gang", 3)
	s.create(s.members("gang", 2, 8)...)
	for _, p := range s.members("gang", 1, 8) {
		p.Namespace = other
		s.create(p)
	}
	// Three pods carry the name, but neither gang has three members.
	for _, ns := range []string{s.namespace, other} {
		c := s.awaitCondition(ns, "gang", podgroups.ConditionScheduled, "False")
		if !strings.Contains(c.Message, "of 3") {
			t.Errorf("in %s: %s: %q", ns, c.Reason, c.Message)
		}
		if n := len(s.bound(ns, "gang")); n != 0 {
			t.Errorf("in %s: %d members bound", ns, n)
		}
	}
	s.create(s.pod("gang-2", "gang", 8))
	s.awaitBound("gang", 3)
	if n := len(s.bound(other, "gang")); n != 0 {
		t.Errorf("%d members of the other gang bound", n)
	}
}

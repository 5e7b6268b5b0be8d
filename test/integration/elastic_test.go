package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	"github.com/muster-sched/muster/podgroup"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// An elastic Indexed Job of at least two members grows, waits with what has no room, and shrinks. Those that run stay
// what and where they are, later ones join them in the required rack, and the gang never falls back.
func TestElasticJobGrowsAndShrinks(t *testing.T) {
	s := newScene(t)
	classic{}.start(s)
	for _, rack := range []string{"r1", "r2"} {
		s.nodes(3, controlplane.NodeShape{NamePrefix: rack, Labels: map[string]string{rackLevel: rack}})
	}
	group := &podgroups.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "gang", Annotations: map[string]string{podgroup.RequiredTopologyAnnotation: rackLevel}}}
	group.Spec.MinMember = 2
	s.must(kube.Create(s.ctx, group))
	phases := s.phasesOf("gang")
	template := s.pod("", "gang", 8)
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: s.namespace},
		Spec: batchv1.JobSpec{
			CompletionMode: ptr.To(batchv1.IndexedCompletion), Completions: ptr.To[int32](2), Parallelism: ptr.To[int32](2),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: template.Labels}, Spec: template.Spec},
		},
	}
	s.must(kube.Create(s.ctx, job))
	s.awaitBound("gang", 2)
	s.awaitCondition(s.namespace, "gang", podgroups.ConditionScheduled, metav1.ConditionTrue)
	started := len(phases())
	first := s.standing("gang")

	t.Log("grows by one, into the same rack")
	s.resize(job, 3)
	s.awaitBound("gang", 3)

	t.Log("grows by two that have no room")
	s.resize(job, 5)
	s.awaitReasonsOf("gang", 2)
	grown := s.standing("gang")

	t.Log("room comes for another gang, in the other rack")
	s.group("other", 3)
	s.create(s.members("other", 3, 8)...)
	s.awaitBound("other", 3)

	t.Log("shrinks to its minimum")
	s.resize(job, 2)
	s.await("shrunk", func() string {
		if n := len(s.standing("gang")); n != 2 {
			return fmt.Sprintf("%d members left", n)
		}
		return ""
	})
	for uid, node := range s.standing("gang") {
		if first[uid] != node || grown[uid] != node {
			t.Errorf("member %s is on %s, it was on %q when the gang started and on %q after it grew", uid, node, first[uid], grown[uid])
		}
	}
	racks := map[string]bool{}
	for _, node := range grown {
		if node != "" {
			rack, _, _ := strings.Cut(node, "-")
			racks[rack] = true
		}
	}
	if len(racks) != 1 {
		t.Errorf("the gang was spread over racks %v", racks)
	}
	s.awaitCondition(s.namespace, "gang", podgroups.ConditionScheduled, metav1.ConditionTrue)
	for _, phase := range phases()[started:] {
		if !strings.HasPrefix(phase, "Scheduled=True") {
			t.Errorf("the gang fell back: %q", phases())
			break
		}
	}

	t.Log("grows again: the room is there")
	s.resize(job, 3)
	s.awaitBound("gang", 3)
}

// resize sets how many members an elastic Job has.
func (s *scene) resize(job *batchv1.Job, n int32) {
	s.Helper()
	patch := fmt.Sprintf(`{"spec":{"parallelism":%d,"completions":%d}}`, n, n)
	s.must(kube.Patch(s.ctx, job, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// standing returns the nodes of a gang's live members by UID, "" for those that wait.
func (s *scene) standing(group string) map[types.UID]string {
	s.Helper()
	pods := &corev1.PodList{}
	s.must(kube.List(s.ctx, pods, client.InNamespace(s.namespace), client.MatchingLabels{podgroups.GroupLabel: group}))
	out := map[types.UID]string{}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed {
			out[p.UID] = p.Spec.NodeName
		}
	}
	return out
}

// awaitReasonsOf waits until so many members of a gang have been refused a place, as surplus that nodes could help.
func (s *scene) awaitReasonsOf(group string, n int) {
	s.Helper()
	s.await("surplus of gang "+group, func() string {
		pods := &corev1.PodList{}
		s.must(kube.List(s.ctx, pods, client.InNamespace(s.namespace), client.MatchingLabels{podgroups.GroupLabel: group}))
		refused := 0
		for i := range pods.Items {
			if reasonOf(&pods.Items[i]) == corev1.PodReasonUnschedulable {
				refused++
			}
		}
		if refused != n {
			return fmt.Sprintf("%d of %d are refused, want %d", refused, len(pods.Items), n)
		}
		return ""
	})
}

// phasesOf watches a PodGroup and returns what tells how it stood, each time that it changed: its condition Scheduled
// and its phase.
func (s *scene) phasesOf(group string) func() []string {
	s.Helper()
	watcher, err := client.NewWithWatch(cluster.REST(), client.Options{Scheme: kube.Scheme()})
	s.must(err)
	watch, err := watcher.Watch(s.ctx, &podgroups.PodGroupList{}, client.InNamespace(s.namespace))
	s.must(err)
	s.Cleanup(watch.Stop)
	var mu sync.Mutex
	var phases []string
	go func() {
		for event := range watch.ResultChan() {
			g, ok := event.Object.(*podgroups.PodGroup)
			if !ok || g.Name != group {
				continue
			}
			scheduled := "unknown"
			if c := meta.FindStatusCondition(g.Status.Conditions, podgroups.ConditionScheduled); c != nil {
				scheduled = string(c.Status)
			}
			mu.Lock()
			phases = append(phases, fmt.Sprintf("Scheduled=%s %s", scheduled, g.Status.Phase))
			mu.Unlock()
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(phases)
	}
}

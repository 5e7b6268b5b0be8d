package integration

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// Under FairShare the gang of the namespace that uses less goes first, although it came later, and each is told how
// that stands.
func TestFairShareLetsTheNamespaceThatUsesLessGoFirst(t *testing.T) {
	s := newScene(t)
	scheduler.Stop()
	s.Cleanup(func() { scheduler.Stop(); s.restartScheduler() })
	s.startWithLevels(`{"queueOrder": "FairShare"}`)
	s.nodes(2, controlplane.NodeShape{})
	poor, other := s.newNamespace(), s.newNamespace()
	in := func(namespace string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Namespace = namespace } }
	s.create(s.pod("running", "", 8), s.pod("ends", "", 8, in(other)))
	s.awaitBound("", 1)
	s.awaitBoundIn(other, "", 1)

	s.group("older", 1)
	s.create(s.pod("older-0", "older", 8))
	s.awaitRefused("older")
	s.groupIn(poor, "younger", 1)
	s.create(s.pod("younger-0", "younger", 8, in(poor)))
	c := s.awaitCondition(poor, "younger", podgroups.ConditionUnschedulable, metav1.ConditionTrue)
	if want := "no gang of a namespace with a smaller share waits; own share 0.000"; !strings.HasSuffix(c.Message, want) {
		t.Errorf("the younger gang is told %q, want it to end with %q", c.Message, want)
	}

	// Asked again, now that somebody with a smaller share waits.
	s.patch(s.pod("older-0", "", 0), map[string]any{"labels": map[string]any{"example.com/again": "yes"}})
	want := "waits behind 1 gang of namespaces with a smaller share: " + poor + " 0.000; own share 0.500"
	s.await("the older gang is told who goes first", func() string {
		if c := s.awaitRefused("older"); !strings.HasSuffix(c.Message, want) {
			return c.Message
		}
		return ""
	})

	ends := s.pod("ends", "", 0, in(other))
	s.must(kube.Delete(s.ctx, ends, client.GracePeriodSeconds(0)))
	s.awaitBoundIn(poor, "younger", 1)
	if n := len(s.bound(s.namespace, "older")); n != 0 {
		t.Fatal("both gangs are placed on one node")
	}
	s.must(kube.Delete(s.ctx, s.pod("younger-0", "", 0, in(poor)), client.GracePeriodSeconds(0)))
	s.awaitBound("older", 1)
}

package integration

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	"github.com/muster-sched/muster/manifests"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

func TestFinishedMembersCount(t *testing.T) {
	s := newScene(t)
	s.nodes(3, controlplane.NodeShape{})
	s.group("gang", 3)
	s.create(s.members("gang", 3, 8)...)
	s.awaitBound("gang", 3)

	s.finish("gang-0")
	s.remove("gang-1")
	s.create(s.pod("gang-3", "gang", 8))
	s.await("the replacement", func() string {
		if s.bound(s.namespace, "gang")["gang-3"] == "" {
			return s.conditions(s.namespace, "gang")
		}
		return ""
	})
}

func TestMembersBeingDeletedDoNotCount(t *testing.T) {
	s := newScene(t)
	s.nodes(3, controlplane.NodeShape{})
	s.group("gang", 3)
	doomed := s.pod("gang-0", "gang", 8)
	doomed.Finalizers = []string{"example.com/keep"}
	// A scheduling gate keeps the gang from starting before the deletion.
	doomed.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
	s.create(doomed)
	s.must(kube.Delete(s.ctx, doomed))
	s.create(s.pod("gang-1", "gang", 8), s.pod("gang-2", "gang", 8))
	s.await("two of three members", func() string {
		c := s.awaitCondition(s.namespace, "gang", podgroups.ConditionScheduled, metav1.ConditionFalse)
		if !strings.Contains(c.Message, "2 of 3") {
			return c.Message
		}
		return ""
	})
	if n := len(s.bound(s.namespace, "gang")); n != 0 {
		t.Fatalf("%d members bound", n)
	}
	s.create(s.pod("gang-3", "gang", 8))
	s.awaitBound("gang", 3)
}

func TestPodGroupDeletedWhileMembersWait(t *testing.T) {
	s := newScene(t)
	s.nodes(2, controlplane.NodeShape{})
	group := s.group("gang", 3)
	s.create(s.members("gang", 3, 8)...)
	s.awaitRefused("gang")
	s.must(kube.Delete(s.ctx, group))
	s.nodes(1, controlplane.NodeShape{})
	// Nothing is held, and nothing starts without the group.
	s.create(s.singles(3, 8)...)
	s.awaitBound("", 3)
	if n := len(s.bound(s.namespace, "gang")); n != 0 {
		t.Fatalf("%d members of a gang without a PodGroup bound", n)
	}
	s.remove("single-0", "single-1", "single-2")
	s.group("gang", 3)
	s.awaitBound("gang", 3)
}

// A member that is deleted while its gang is being placed takes the plan with it, not the gang's
// future.
func TestMemberReplacedWhileTheGangWaits(t *testing.T) {
	s := newScene(t)
	s.nodes(2, controlplane.NodeShape{})
	s.group("gang", 3)
	s.create(s.members("gang", 3, 8)...)
	s.awaitRefused("gang")
	s.remove("gang-0") // the first in rank, which tries for the others
	s.nodes(1, controlplane.NodeShape{})
	s.create(s.pod("gang-9", "gang", 8))
	s.awaitBound("gang", 3)
}

func TestMinMemberLowered(t *testing.T) {
	s := newScene(t)
	s.nodes(2, controlplane.NodeShape{})
	group := s.group("gang", 3)
	s.create(s.members("gang", 3, 8)...)
	s.awaitRefused("gang")
	patch := client.MergeFrom(group.DeepCopy())
	group.Spec.MinMember = 2
	s.must(kube.Patch(s.ctx, group, patch))
	s.awaitBound("gang", 2)
}

// The scheduler is killed between the first and the last bind of a gang. Whoever comes after it
// finds part of the gang bound, and makes it whole.
func TestSchedulerKilledBetweenBinds(t *testing.T) {
	const size = 24
	s := newScene(t)
	scheduler.Stop()
	s.Cleanup(s.restartScheduler)
	s.nodes(size/8, controlplane.NodeShape{})
	s.group("gang", size)
	s.createAtOnce(asObjects(s.members("gang", size, 1))...)

	// Slow enough to be caught in the act: five requests a second.
	kill := s.runScheduler(5)
	s.await("the first bind", func() string {
		if len(s.bound(s.namespace, "gang")) == 0 {
			return "none"
		}
		return ""
	})
	kill()
	n := len(s.bound(s.namespace, "gang"))
	if n == 0 || n == size {
		t.Fatalf("%d of %d members bound when the scheduler died: not between the first and the last", n, size)
	}
	t.Logf("killed with %d of %d members bound", n, size)

	defer s.runScheduler(1000)()
	s.awaitBound("gang", size)
}

// restartScheduler starts the shared scheduler again after a test that had to do without it.
func (s *scene) restartScheduler() {
	var err error
	scheduler, err = startScheduler(context.Background())
	s.must(err)
}

// runScheduler runs a bare scheduler as a process of its own, and returns what kills it.
func (s *scene) runScheduler(qps int) (kill func()) {
	s.Helper()
	dir := s.TempDir()
	config, err := manifests.SchedulerConfig(nil)
	s.must(err)
	document := map[string]any{}
	s.must(yaml.Unmarshal(config, &document))
	document["leaderElection"] = map[string]any{"leaderElect": false}
	document["clientConnection"] = map[string]any{"kubeconfig": cluster.Kubeconfig(), "qps": qps, "burst": qps}
	config, err = yaml.Marshal(document)
	s.must(err)
	file := filepath.Join(dir, "config.yaml")
	s.must(os.WriteFile(file, config, 0o600))

	cmd := exec.Command(os.Args[0], "--config="+file, "--controllers=", "--secure-port=0", "--v=2")
	cmd.Env = append(os.Environ(), asScheduler+"=true")
	out, err := cmd.StderrPipe()
	s.must(err)
	s.must(cmd.Start())
	done := make(chan struct{})
	var last []string
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			last = append(last, lines.Text())
			if len(last) > 100 {
				last = last[1:]
			}
		}
	}()
	killed := false
	kill = func() {
		if killed {
			return
		}
		killed = true
		s.must(cmd.Process.Kill())
		<-done
		_ = cmd.Wait()
		if s.Failed() {
			s.Logf("the scheduler's last words:\n%s", strings.Join(last, "\n"))
		}
	}
	s.Cleanup(kill)
	return kill
}

func asObjects(pods []*corev1.Pod) []client.Object {
	objects := make([]client.Object, len(pods))
	for i, p := range pods {
		objects[i] = p
	}
	return objects
}

// Pods without a gang share the profile, and are scored as ever.
func TestPlainPodsAreScheduledAsByDefault(t *testing.T) {
	s := newScene(t)
	s.nodes(4, controlplane.NodeShape{})
	s.create(s.singles(8, 2)...)
	s.awaitBound("", 8)
	used := map[string]int{}
	for _, node := range s.bound(s.namespace, "") {
		used[node]++
	}
	// The default profile spreads: no node may have taken them all.
	if len(used) < 2 {
		t.Errorf("8 pods on %d node: %v", len(used), used)
	}
}

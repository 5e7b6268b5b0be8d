package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

const (
	schedulerName = "muster-scheduler"
	gpuResource   = controlplane.GPUResource
	// patience bounds every wait for something that must happen.
	patience = 60 * time.Second
	// laneLabel splits the nodes of a scene into clusters that do not share nodes.
	laneLabel = "muster.dev/test-lane"
)

// scene is a test's own namespaces and nodes. Everything is removed when the test ends.
type scene struct {
	*testing.T
	ctx       context.Context
	namespace string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{T: t, ctx: t.Context()}
	s.namespace = s.newNamespace()
	t.Cleanup(s.removeNodes)
	return s
}

func (s *scene) newNamespace() string {
	s.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	s.must(kube.Create(s.ctx, ns))
	s.Cleanup(func() { s.empty(ns.Name) })
	return ns.Name
}

// empty removes the pods of a namespace at once; the namespace goes in its own time.
func (s *scene) empty(namespace string) {
	ctx := context.Background()
	s.must(client.IgnoreNotFound(kube.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})))
	s.must(wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if err := kube.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), client.GracePeriodSeconds(0)); err != nil {
			return false, err
		}
		pods := &corev1.PodList{}
		if err := kube.List(ctx, pods, client.InNamespace(namespace)); err != nil {
			return false, err
		}
		for i := range pods.Items {
			if pod := &pods.Items[i]; len(pod.Finalizers) > 0 {
				pod.Finalizers = nil
				if err := client.IgnoreNotFound(kube.Update(ctx, pod)); err != nil && !apierrors.IsConflict(err) {
					return false, err
				}
			}
		}
		return len(pods.Items) == 0, nil
	}))
}

func (s *scene) removeNodes() {
	ctx := context.Background()
	s.must(kube.DeleteAllOf(ctx, &corev1.Node{}))
	s.must(wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		nodes := &corev1.NodeList{}
		err := kube.List(ctx, nodes)
		return len(nodes.Items) == 0, err
	}))
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// await polls until the condition says "" and fails with its last words if it never does.
func (s *scene) await(what string, condition func() string) {
	s.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(s.ctx, 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = condition()
		return last == "", nil
	})
	if err != nil {
		s.Fatalf("%s: %s (%v)", what, last, err)
	}
}

// nodes adds nodes of 8 GPUs and waits until they take pods.
func (s *scene) nodes(n int, shape controlplane.NodeShape) []string {
	s.Helper()
	shape.Count = n
	if shape.GPUs == 0 {
		shape.GPUs = 8
	}
	names, err := cluster.AddNodes(s.ctx, shape)
	s.must(err)
	s.must(cluster.WaitNodesReady(s.ctx, names...))
	return names
}

func (s *scene) group(name string, minMember int32) *podgroups.PodGroup {
	s.Helper()
	return s.groupIn(s.namespace, name, minMember)
}

func (s *scene) groupIn(namespace, name string, minMember int32) *podgroups.PodGroup {
	s.Helper()
	g := &podgroups.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	g.Spec.MinMember = minMember
	s.must(kube.Create(s.ctx, g))
	return g
}

// pod returns a pod of a gang ("" for none) that requests GPUs as a limit, as people do.
func (s *scene) pod(name, group string, gpus int, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace},
		Spec: corev1.PodSpec{
			SchedulerName: schedulerName,
			RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "node", Image: "example", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{gpuResource: *resource.NewQuantity(int64(gpus), resource.DecimalSI)},
			}}},
		},
	}
	if group != "" {
		p.Labels = map[string]string{podgroups.GroupLabel: group}
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func (s *scene) create(pods ...*corev1.Pod) {
	s.Helper()
	for _, p := range pods {
		s.must(kube.Create(s.ctx, p))
	}
}

// createAtOnce creates objects with many requests in flight.
func (s *scene) createAtOnce(objects ...client.Object) {
	s.Helper()
	var wg sync.WaitGroup
	errs := make([]error, len(objects))
	slots := make(chan struct{}, 16)
	for i, o := range objects {
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer wg.Done()
			errs[i] = kube.Create(s.ctx, o)
			<-slots
		}()
	}
	wg.Wait()
	for _, err := range errs {
		s.must(err)
	}
}

// members returns n pods of a gang, named after it.
func (s *scene) members(group string, n, gpus int, change ...func(*corev1.Pod)) []*corev1.Pod {
	return s.pods(group, group, n, gpus, change...)
}

// singles returns n pods without a gang.
func (s *scene) singles(n, gpus int, change ...func(*corev1.Pod)) []*corev1.Pod {
	return s.pods("single", "", n, gpus, change...)
}

func (s *scene) pods(name, group string, n, gpus int, change ...func(*corev1.Pod)) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range n {
		pods = append(pods, s.pod(fmt.Sprintf("%s-%d", name, i), group, gpus, change...))
	}
	return pods
}

// bound returns the nodes of a gang's bound pods, by pod; of all pods without a gang if group is "".
func (s *scene) bound(namespace, group string) map[string]string {
	s.Helper()
	pods := &corev1.PodList{}
	s.must(kube.List(s.ctx, pods, client.InNamespace(namespace)))
	nodes := map[string]string{}
	for _, p := range pods.Items {
		if p.Labels[podgroups.GroupLabel] == group && p.Spec.NodeName != "" {
			nodes[p.Name] = p.Spec.NodeName
		}
	}
	return nodes
}

func (s *scene) awaitBound(group string, n int) {
	s.Helper()
	s.awaitBoundIn(s.namespace, group, n)
}

func (s *scene) awaitBoundIn(namespace, group string, n int) {
	s.Helper()
	s.await("gang "+group, func() string {
		if got := len(s.bound(namespace, group)); got != n {
			return fmt.Sprintf("%d members bound, want %d; PodGroup says %s", got, n, s.conditions(namespace, group))
		}
		return ""
	})
}

func (s *scene) conditions(namespace, group string) string {
	g := &podgroups.PodGroup{}
	if err := kube.Get(s.ctx, types.NamespacedName{Namespace: namespace, Name: group}, g); err != nil {
		return err.Error()
	}
	var out []string
	for _, c := range g.Status.Conditions {
		out = append(out, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return string(g.Status.Phase) + " " + strings.Join(out, "; ")
}

// awaitRefused waits until the scheduler has turned the gang away and returns why.
func (s *scene) awaitRefused(group string) *metav1.Condition {
	s.Helper()
	return s.awaitCondition(s.namespace, group, podgroups.ConditionUnschedulable, metav1.ConditionTrue)
}

func (s *scene) awaitCondition(namespace, group, kind string, status metav1.ConditionStatus) *metav1.Condition {
	s.Helper()
	var c *metav1.Condition
	s.await(fmt.Sprintf("condition %s=%s of PodGroup %s", kind, status, group), func() string {
		g := &podgroups.PodGroup{}
		if err := kube.Get(s.ctx, types.NamespacedName{Namespace: namespace, Name: group}, g); err != nil {
			return err.Error()
		}
		if c = meta.FindStatusCondition(g.Status.Conditions, kind); c == nil || c.Status != status {
			return s.conditions(namespace, group)
		}
		return ""
	})
	return c
}

// finish makes a pod succeed, as a kubelet would report it.
// finish ends a pod well. One that has a node is ended by its kubelet, which would otherwise set it running again if
// it had not yet seen it run.
func (s *scene) finish(name string) {
	s.Helper()
	pod := &corev1.Pod{}
	s.must(kube.Get(s.ctx, s.key(name), pod))
	if pod.Spec.NodeName == "" {
		s.setPhase(name, corev1.PodSucceeded)
		return
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"0"}}}`, controlplane.RunSecondsAnnotation)
	s.must(kube.Patch(s.ctx, pod, client.RawPatch(types.MergePatchType, []byte(patch))))
	s.await(name+" to succeed", func() string {
		// It may be deleted at once by who waits for its end.
		if err := kube.Get(s.ctx, s.key(name), pod); err != nil {
			s.must(client.IgnoreNotFound(err))
			return ""
		}
		if pod.Status.Phase != corev1.PodSucceeded {
			return string(pod.Status.Phase)
		}
		return ""
	})
}

func (s *scene) setPhase(name string, phase corev1.PodPhase) {
	s.Helper()
	patch := fmt.Sprintf(`{"status":{"phase":%q}}`, phase)
	s.must(kube.Status().Patch(s.ctx, s.pod(name, "", 0), client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (s *scene) remove(names ...string) {
	s.Helper()
	for _, name := range names {
		s.must(kube.Delete(s.ctx, s.pod(name, "", 0), client.GracePeriodSeconds(0)))
	}
}

// inLane keeps a pod on the nodes of one lane.
func inLane(lane string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{laneLabel: lane} }
}

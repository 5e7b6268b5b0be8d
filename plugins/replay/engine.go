package replay

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/plugins/simulation"
	"github.com/muster-sched/muster/podgroup"
)

// The labels of the simulated nodes.
const (
	blockLabel = "block"
	rackLabel  = "rack"
)

// What nodes have and pods request for each GPU, so that schedulers which look at cpu and memory see the same
// picture as those which look at GPUs.
const (
	cpusPerGPU  = 12
	gibPerGPU   = 128
	spareCPUs   = 8
	spareGiB    = 64
	podsPerNode = 110
	bytesPerGiB = 1 << 30
)

// scheduler is an engine with the real kube-scheduler.
type scheduler struct {
	run     *run
	cluster *simulation.Cluster
	start   time.Time
	index   map[string]int
	// names are what the jobs are called now: after a pause they come with another name.
	names []string
	// grouped is whether jobs are gangs to the scheduler.
	grouped bool
}

func newScheduler(r *run, options simulation.Options, grouped bool) (*scheduler, error) {
	options.Silent = true
	cluster, err := simulation.New(options)
	if err != nil {
		return nil, err
	}
	s := &scheduler{run: r, cluster: cluster, start: cluster.Clock().Now(), index: map[string]int{}, grouped: grouped}
	for i, j := range r.trace.Jobs {
		s.index[j.Name] = i
		s.names = append(s.names, j.Name)
	}
	for n := range r.trace.Shape.Nodes {
		cluster.AddNode(nodeOf(r.trace.Shape, n))
	}
	cluster.Observe(s.see)
	// The status of PodGroups decides nothing here.
	cluster.Hold(simulation.Reconcile)
	return s, nil
}

func nodeName(n int) string { return fmt.Sprintf("n%05d", n) }

func nodeOf(shape Shape, n int) *corev1.Node {
	gpus := int64(shape.GPUsPerNode)
	room := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(gpus*cpusPerGPU+spareCPUs, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity((gpus*gibPerGPU+spareGiB)*bytesPerGiB, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(podsPerNode, resource.DecimalSI),
		simulation.GPU:        *resource.NewQuantity(gpus, resource.DecimalSI),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(n), Labels: map[string]string{
			blockLabel:           fmt.Sprintf("b%03d", shape.block(n)),
			rackLabel:            fmt.Sprintf("r%04d", shape.rack(n)),
			corev1.LabelHostname: nodeName(n),
		}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room},
	}
}

// see passes on what happens to pods.
func (s *scheduler) see(e simulation.Event) {
	switch e.Kind {
	case simulation.Bound, simulation.Running, simulation.Ended, simulation.Deleting, simulation.Removed:
	default:
		return
	}
	i, ok := s.jobOf(e.Object.Name)
	if !ok {
		return
	}
	switch e.Kind {
	case simulation.Bound:
		s.run.placed(i, e.Object.Name, nodeIndex(e.Node))
	case simulation.Running:
		s.run.started(i, e.Object.Name)
	case simulation.Deleting:
		s.run.leaves(i, e.Object.Name)
	case simulation.Ended, simulation.Removed:
		s.run.released(i, e.Object.Name)
	}
}

// jobOf finds the job of a pod, whose name ends with the pod's index and the number of the attempt.
func (s *scheduler) jobOf(pod string) (int, bool) {
	name := pod
	for range 2 {
		name = name[:max(strings.LastIndexByte(name, '-'), 0)]
	}
	i, ok := s.index[name]
	return i, ok
}

func nodeIndex(name string) int {
	n, err := strconv.Atoi(name[1:])
	if err != nil {
		panic(err)
	}
	return n
}

func (s *scheduler) now() time.Duration { return s.cluster.Clock().Since(s.start) }

func (s *scheduler) at(t time.Duration, do func()) { s.cluster.Clock().AfterFunc(t-s.now(), do) }

func (s *scheduler) advance(d time.Duration) error { return s.cluster.Advance(d) }

func (s *scheduler) close() { s.cluster.Close() }

func (s *scheduler) submit(i int) {
	j := s.run.trace.Jobs[i]
	job := simulation.Job{Name: s.names[i], Priority: j.Priority, Sizes: make([]int64, j.Pods), Annotations: map[string]string{}}
	for p := range job.Sizes {
		job.Sizes[p] = int64(j.GPUs)
	}
	if s.grouped {
		job.MinMember = int32(j.Pods)
	}
	if j.Limit > 0 {
		job.Annotations[podgroup.RunTimeAnnotation] = j.Limit.String()
	}
	job.Template = func(pod *corev1.Pod) {
		requests := pod.Spec.Containers[0].Resources.Requests
		requests[corev1.ResourceCPU] = *resource.NewQuantity(int64(j.GPUs)*cpusPerGPU, resource.DecimalSI)
		requests[corev1.ResourceMemory] = *resource.NewQuantity(int64(j.GPUs)*gibPerGPU*bytesPerGiB, resource.BinarySI)
	}
	s.cluster.Submit(job)
}

func (s *scheduler) restart(_ int, pods []string) {
	for _, pod := range pods {
		s.cluster.DeletePod(pod)
	}
}

func (s *scheduler) giveUp(i int, _ []string, pause time.Duration) {
	s.cluster.Withdraw(s.names[i])
	s.names[i] = fmt.Sprintf("%s-again-%d", s.run.trace.Jobs[i].Name, s.run.jobs[i].gaveUp)
	s.index[s.names[i]] = i
	s.at(s.now()+pause, func() { s.submit(i) })
}

func (s *scheduler) finish(i int, pods []string) {
	for _, pod := range pods {
		s.cluster.EndPod(pod, corev1.PodSucceeded)
	}
	s.cluster.Withdraw(s.names[i])
}

func (s *scheduler) fail(node int)   { s.cluster.LoseNode(nodeName(node)) }
func (s *scheduler) repair(node int) { s.cluster.ReturnNode(nodeName(node)) }

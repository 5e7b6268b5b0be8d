package harness

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-sched/muster/hack/bench/workload"
)

const (
	// sampleInterval is how often the heap is measured.
	sampleInterval = 100 * time.Millisecond
	// lastWait is how much later than scheduler_perf the observer may see the last member settled.
	lastWait = 30 * time.Second
)

// observer watches the members of all gangs from the first that is seen to the last that is settled.
type observer struct {
	workload.Run
	want    int
	profile *os.File

	mu         sync.Mutex
	times      workload.Times
	complete   bool
	start, end snapshot
	live       uint64
	done       chan struct{}
}

// snapshot is what the process has counted up to a moment.
type snapshot struct {
	memory    runtime.MemStats
	durations map[string]workload.Duration
}

func takeSnapshot() snapshot {
	s := snapshot{durations: durations()}
	runtime.ReadMemStats(&s.memory)
	return s
}

// observe starts to watch, and makes sure that all is written before the API server stops.
func observe(t Test, r workload.Run) error {
	profile, err := os.Create(filepath.Join(r.Files, workload.ProfileFile))
	if err != nil {
		return err
	}
	o := &observer{Run: r, want: r.Case.Pods(), profile: profile, done: make(chan struct{})}
	// An informer, not a bare watch: the API server ends the watches of those who fall behind.
	factory := informers.NewSharedInformerFactoryWithOptions(t.Client(), 0, informers.WithNamespace(workload.Namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = workload.GangLabel }))
	all := make(chan struct{})
	see := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok && o.see(pod, time.Now()) {
			close(all)
		}
	}
	informer := factory.Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, obj any) { see(obj) }}); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t))
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	runtime.GC()
	go o.sample()
	t.Cleanup(func() {
		defer factory.Shutdown()
		defer stop()
		defer pprof.StopCPUProfile()
		defer close(o.done)
		select {
		case <-all:
		case <-time.After(lastWait):
			t.Errorf("not all of the %d members were seen settled", o.want)
			return
		}
		if err := o.write(); err != nil {
			t.Errorf("writing what was observed: %v", err)
		}
	})
	return nil
}

// see notes a pod, and reports whether it was the last.
func (o *observer) see(pod *corev1.Pod, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.complete {
		return false
	}
	gang := pod.Labels[workload.GangLabel]
	if o.times.None() {
		o.start = takeSnapshot()
		_ = pprof.StartCPUProfile(o.profile) // fails only if one runs already
	}
	o.times.Seen(gang, now)
	o.complete = settled(pod, o.Case.Refused) && o.times.Settled(gang, pod.Name, now) == o.want
	if o.complete {
		pprof.StopCPUProfile()
		o.end = takeSnapshot()
	}
	return o.complete
}

// settled reports whether a pod is bound or, if that is wanted, told that it cannot be.
func settled(pod *corev1.Pod, refused bool) bool {
	if !refused {
		return pod.Spec.NodeName != ""
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}

// write writes what was observed.
func (o *observer) write() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.times.Observation()
	seen.AllocatedBytes = o.end.memory.TotalAlloc - o.start.memory.TotalAlloc
	seen.Allocations = o.end.memory.Mallocs - o.start.memory.Mallocs
	seen.LiveHeapBytes = o.live
	seen.Durations = since(o.start.durations, o.end.durations)
	data, err := json.Marshal(seen)
	if err != nil {
		return err
	}
	if err := o.profile.Close(); err != nil {
		return err
	}
	if err := writeHeap(filepath.Join(o.Files, workload.HeapFile)); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.Files, workload.ObservationFile), data, 0o644)
}

// writeHeap writes a profile of what is in use now.
func writeHeap(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	runtime.GC()
	return pprof.WriteHeapProfile(file)
}

// sample keeps the most that a garbage collection found in use: unlike the size of the heap, it does not hang on when
// the next one comes.
func (o *observer) sample() {
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for {
		select {
		case <-o.done:
			return
		case <-ticker.C:
			metrics.Read(heap)
			o.mu.Lock()
			o.live = max(o.live, heap[0].Value.Uint64())
			o.mu.Unlock()
		}
	}
}

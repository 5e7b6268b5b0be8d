package perf

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
	"k8s.io/kubernetes/test/utils/client-go/ktesting"

	"github.com/muster-sched/muster/hack/bench/workload"
)

const (
	// sampleInterval is how often the heap is measured.
	sampleInterval = 100 * time.Millisecond
	// lastWait is how much later than scheduler_perf the observer may see the last member bound.
	lastWait = 30 * time.Second
)

// observer watches the members of all gangs from the first that is seen to the last that is bound.
type observer struct {
	workload.Run
	want    int
	profile *os.File

	mu         sync.Mutex
	times      workload.Times
	complete   bool
	start, end runtime.MemStats
	peak       uint64
	done       chan struct{}
}

// observe starts to watch, and makes sure that all is written before the API server stops.
func observe(tCtx ktesting.TContext, r workload.Run) (*observer, error) {
	profile, err := os.Create(filepath.Join(r.Files, workload.ProfileFile))
	if err != nil {
		return nil, err
	}
	o := &observer{Run: r, want: r.Case.Pods(), profile: profile, done: make(chan struct{})}
	// An informer, not a bare watch: the API server ends the watches of those who fall behind.
	factory := informers.NewSharedInformerFactoryWithOptions(tCtx.Client(), 0, informers.WithNamespace(workload.Namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = workload.GangLabel }))
	all := make(chan struct{})
	see := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok && o.see(pod, time.Now()) {
			close(all)
		}
	}
	informer := factory.Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, obj any) { see(obj) }}); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(tCtx))
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	runtime.GC()
	runtime.ReadMemStats(&o.start)
	go o.sample()
	tCtx.Cleanup(func() {
		defer factory.Shutdown()
		defer stop()
		defer pprof.StopCPUProfile()
		defer close(o.done)
		select {
		case <-all:
		case <-time.After(lastWait):
			tCtx.Errorf("not all of the %d members were seen bound", o.want)
			return
		}
		if err := o.write(); err != nil {
			tCtx.Errorf("writing what was observed: %v", err)
		}
	})
	return o, nil
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
		_ = pprof.StartCPUProfile(o.profile) // fails only if one runs already
	}
	o.times.Seen(gang, now)
	o.complete = pod.Spec.NodeName != "" && o.times.Bound(gang, pod.Name, now) == o.want
	if o.complete {
		pprof.StopCPUProfile()
		runtime.ReadMemStats(&o.end)
	}
	return o.complete
}

// write writes what was observed.
func (o *observer) write() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.times.Observation()
	seen.AllocatedBytes, seen.Allocations = o.end.TotalAlloc-o.start.TotalAlloc, o.end.Mallocs-o.start.Mallocs
	seen.PeakHeapBytes = o.peak
	data, err := json.Marshal(seen)
	if err != nil {
		return err
	}
	if err := o.profile.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.Files, workload.ObservationFile), data, 0o644)
}

// sample keeps the largest heap that it sees.
func (o *observer) sample() {
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	for {
		select {
		case <-o.done:
			return
		case <-ticker.C:
			metrics.Read(heap)
			o.mu.Lock()
			o.peak = max(o.peak, heap[0].Value.Uint64())
			o.mu.Unlock()
		}
	}
}

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

	mu    sync.Mutex
	times workload.Times
	start runtime.MemStats
	peak  uint64
	done  chan struct{}
}

// observe starts to watch, and makes sure that all is written before the API server stops.
func observe(tCtx ktesting.TContext, r workload.Run) (*observer, error) {
	profile, err := os.Create(filepath.Join(r.Files, workload.ProfileFile))
	if err != nil {
		return nil, err
	}
	o := &observer{Run: r, want: r.Case.Pods(), profile: profile, done: make(chan struct{})}
	watch, err := tCtx.Client().CoreV1().Pods(workload.Namespace).Watch(context.WithoutCancel(tCtx), metav1.ListOptions{LabelSelector: workload.GangLabel})
	if err != nil {
		return nil, err
	}
	runtime.GC()
	runtime.ReadMemStats(&o.start)
	go func() {
		defer close(o.done)
		for event := range watch.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && o.see(pod, time.Now()) {
				break
			}
		}
		pprof.StopCPUProfile()
		if err := o.write(); err != nil {
			tCtx.Errorf("writing what was observed: %v", err)
		}
	}()
	go o.sample()
	tCtx.Cleanup(func() {
		select {
		case <-o.done:
		case <-time.After(lastWait):
			tCtx.Errorf("not all of %d members were seen bound", o.want)
		}
		watch.Stop()
		<-o.done
	})
	return o, nil
}

// see notes a pod, and reports whether it was the last.
func (o *observer) see(pod *corev1.Pod, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	gang := pod.Labels[workload.GangLabel]
	if o.times.None() {
		_ = pprof.StartCPUProfile(o.profile) // fails only if one runs already
	}
	o.times.Seen(gang, now)
	return pod.Spec.NodeName != "" && o.times.Bound(gang, pod.Name, now) == o.want
}

// write writes what was observed.
func (o *observer) write() error {
	var end runtime.MemStats
	runtime.ReadMemStats(&end)
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.times.Observation()
	seen.AllocatedBytes, seen.Allocations = end.TotalAlloc-o.start.TotalAlloc, end.Mallocs-o.start.Mallocs
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

package preemption

import (
	"errors"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/parallelize"

	"github.com/muster-sched/muster/plugins/stage"
)

// eviction is a scene in which units are evicted, and what the API server was asked.
type eviction struct {
	*scene
	evictor *Evictor
	units   []*Unit

	mu    sync.Mutex
	asked []string
}

// newEviction has two gangs of two pods, and a pod without one.
func newEviction(t *testing.T, refuse func(verb, name string, dryRun bool) error) *eviction {
	t.Helper()
	pods := []*corev1.Pod{
		inGang("a")(on("n0", 0, 1)).Obj(), inGang("a")(on("n0", 1, 1)).Obj(),
		inGang("b")(on("n0", 2, 1)).Obj(), inGang("b")(on("n0", 3, 1)).Obj(),
		on("n0", 4, 1).Obj(),
	}
	e := &eviction{scene: newScene(t, nil, pods, stage.Nodes(1, 8)...)}
	client := e.fw.ClientSet().(*clientsetfake.Clientset)
	for _, pod := range pods {
		if err := client.Tracker().Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	client.PrependReactor("*", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		what, name, dryRun := action.GetVerb(), "", false
		switch a := action.(type) {
		case clienttesting.DeleteActionImpl:
			name, dryRun = a.Name, len(a.DeleteOptions.DryRun) > 0
			if p := a.DeleteOptions.Preconditions; p == nil || p.UID == nil {
				t.Errorf("pod %s is deleted whatever its UID", name)
			}
		case clienttesting.PatchActionImpl:
			name = a.Name
		}
		if dryRun {
			what = "dry run"
		}
		e.mu.Lock()
		e.asked = append(e.asked, what+" "+name)
		e.mu.Unlock()
		if refuse != nil {
			if err := refuse(action.GetVerb(), name, dryRun); err != nil {
				return true, nil, err
			}
		}
		return dryRun, nil, nil
	})
	e.evictor = NewEvictor(e.fw, func(do func()) { do() })
	c := e.candidates(100)
	for i := range c.Units {
		e.units = append(e.units, &c.Units[i])
	}
	return e
}

func (e *eviction) evict() error {
	var err error
	logger, _ := ktesting.NewTestContext(e.t)
	by := Preemptor{Key: types.NamespacedName{Namespace: "ns", Name: "high"}, Object: &corev1.Pod{}, SchedulerName: "muster", Plugin: "test"}
	e.evictor.Evict(logger, by, e.units, func(result error) { err = result })
	return err
}

// did returns what was asked, sorted: several requests are under way at a time.
func (e *eviction) did(verb string) []string {
	var names []string
	for _, asked := range e.asked {
		if name, ok := cut(asked, verb+" "); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func cut(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || s[:len(prefix)] != prefix {
		return "", false
	}
	return s[len(prefix):], true
}

var everybody = []string{"m-0", "m-1", "m-2", "m-3", "m-4"}

func TestEvict(t *testing.T) {
	e := newEviction(t, nil)
	if err := e.evict(); err != nil {
		t.Fatal(err)
	}
	if got, want := e.did("dry run"), []string{"m-0", "m-2", "m-4"}; !slices.Equal(got, want) {
		t.Errorf("asked about %v, want one pod of each unit, %v", got, want)
	}
	for _, verb := range []string{"patch", "delete"} {
		if got := e.did(verb); !slices.Equal(got, everybody) {
			t.Errorf("%s: %v", verb, got)
		}
	}
	if first := slices.Index(e.asked, "delete m-4"); first < 0 || slices.ContainsFunc(e.asked[first:], func(s string) bool { return s[:5] == "patch" }) {
		t.Errorf("a pod was deleted before all were told: %v", e.asked)
	}
	for i := range 5 {
		if !e.evictor.Evicted(stage.UID(i)) {
			t.Errorf("pod %d is not known to be on its way out", i)
		}
	}
	e.evictor.Gone(stage.UID(3))
	if e.evictor.Evicted(stage.UID(3)) {
		t.Error("a pod that is gone is still on its way out")
	}
}

func TestTheConditionOfADisruption(t *testing.T) {
	var kept *corev1.Pod
	e := newEviction(t, func(verb, name string, dryRun bool) error {
		if verb == "delete" && !dryRun {
			return errors.New("enough")
		}
		return nil
	})
	if err := e.evict(); err == nil {
		t.Fatal("no error")
	}
	kept, err := e.fw.ClientSet().CoreV1().Pods("ns").Get(t.Context(), "m-4", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := kept.Status.Conditions
	if len(c) != 1 || c[0].Type != corev1.DisruptionTarget || c[0].Status != corev1.ConditionTrue || c[0].Reason != corev1.PodReasonPreemptionByScheduler ||
		c[0].Message != "muster: preempting to make room for PodGroup ns/high of higher priority" {
		t.Errorf("conditions: %+v", c)
	}
}

func TestNobodyIsEvictedIfOneWouldBeRefused(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "m-2", errors.New("a policy"))
	for name, refused := range map[string]func(verb, name string, dryRun bool) bool{
		"the dry run":   func(_, name string, dryRun bool) bool { return dryRun && name == "m-2" },
		"the condition": func(verb, name string, _ bool) bool { return verb == "patch" && name == "m-3" },
	} {
		e := newEviction(t, func(verb, pod string, dryRun bool) error {
			if refused(verb, pod, dryRun) {
				return forbidden
			}
			return nil
		})
		if err := e.evict(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: error %v", name, err)
		}
		if got := e.did("delete"); len(got) != 0 {
			t.Errorf("%s: deleted %v", name, got)
		}
		for i := range 5 {
			if e.evictor.Evicted(stage.UID(i)) {
				t.Errorf("%s: pod %d still counts as on its way out", name, i)
			}
		}
	}
}

// oneByOne does one thing at a time.
type oneByOne struct{ fwk.Handle }

func (oneByOne) Parallelizer() fwk.Parallelizer { return parallelize.NewParallelizer(1) }

// A gang of which one member is gone is of no use any more; other units stay.
func TestWhatFailsEndsTheEvictionsAfterItsUnit(t *testing.T) {
	e := newEviction(t, func(verb, name string, dryRun bool) error {
		if verb == "delete" && !dryRun && name == "m-0" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, name, nil)
		}
		return nil
	})
	e.evictor.handle = oneByOne{e.evictor.handle}
	// In this order: the pod without a gang, then a, then b.
	if err := e.evict(); err == nil {
		t.Fatal("no error")
	}
	if got, want := e.did("delete"), []string{"m-0", "m-1", "m-4"}; !slices.Equal(got, want) {
		t.Errorf("deleted %v, want %v", got, want)
	}
	for i, want := range []bool{false, true, false, false, true} {
		if got := e.evictor.Evicted(stage.UID(i)); got != want {
			t.Errorf("pod %d on its way out: %v", i, got)
		}
	}
}

// meeting is an event recorder that holds every event until as many as expected are about to be written.
type meeting struct {
	fwk.Handle
	events.FakeRecorder
	all *sync.WaitGroup
}

func (m *meeting) EventRecorder() events.EventRecorderLogger { return m }

func (m *meeting) WithLogger(klog.Logger) events.EventRecorderLogger { return m }

func (m *meeting) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {
	m.all.Done()
	m.all.Wait()
}

// Many pods without a gang are units of one each: none must wait for those before it. If one did, this would not end.
func TestUnitsAreEvictedAtTheSameTime(t *testing.T) {
	e := newEviction(t, nil)
	m := &meeting{Handle: e.evictor.handle, all: new(sync.WaitGroup)}
	m.all.Add(len(everybody))
	e.evictor.handle = m
	if err := e.evict(); err != nil {
		t.Fatal(err)
	}
	if got := e.did("delete"); !slices.Equal(got, everybody) {
		t.Errorf("deleted %v", got)
	}
}

func TestPodsThatAreGoneAreNoFailure(t *testing.T) {
	e := newEviction(t, func(verb, name string, _ bool) error {
		switch name {
		case "m-1":
			return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
		case "m-3":
			if verb == "delete" {
				return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, errors.New("another UID"))
			}
		}
		return nil
	})
	if err := e.evict(); err != nil {
		t.Fatal(err)
	}
	if e.evictor.Evicted(stage.UID(1)) || e.evictor.Evicted(stage.UID(3)) {
		t.Error("pods that were gone count as on their way out for ever")
	}
}

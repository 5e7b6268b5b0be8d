package trainer

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/volcano"
	"github.com/muster-sched/muster/trainer/runtime/gang"
)

// discovery is a mapper that serves kinds from some question on, and may fail to answer.
type discovery struct {
	meta.RESTMapper
	from  map[string]int // by group
	asked map[string]int
}

func (d *discovery) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	d.asked[kind.Group]++
	switch asked, from := d.asked[kind.Group], d.from[kind.Group]; {
	case asked == from-1:
		return nil, errors.New("the API server is away")
	case asked < from:
		return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
	}
	return &meta.RESTMapping{}, nil
}

// Kinds of groups that come to be served are watched, each once, and the TrainJobs that waited learn of it.
func TestLateGroups(t *testing.T) {
	scheme := apiruntime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	with := func(name string, conditions ...string) *v1alpha1.TrainJob {
		job := trainJob()
		job.Name = name
		for _, kind := range conditions {
			job.Status.Conditions = append(job.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "r"})
		}
		return job
	}
	mapper := &discovery{from: map[string]int{"scheduling.volcano.sh": 3, "scheduling.k8s.io": 5}, asked: map[string]int{}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).
		WithObjects(with("waits", v1alpha1.TrainJobBlocked), with("runs"), with("done", v1alpha1.TrainJobBlocked, v1alpha1.TrainJobFailed)).Build()
	kinds := []*gang.Groups{
		{Client: c, Object: &volcano.PodGroup{}, List: &volcano.PodGroupList{}},
		{Client: c, Object: &schedulingv1beta1.PodGroup{}, List: &schedulingv1beta1.PodGroupList{}},
	}
	for _, groups := range kinds {
		groups.MarkAbsent(true)
	}
	var watched []client.Object
	failures := 1
	watch := func(_ context.Context, object client.Object) error {
		if failures > 0 {
			failures--
			return errors.New("not now")
		}
		if slices.Contains(watched, object) {
			t.Errorf("%T is watched again", object)
		}
		watched = append(watched, object)
		for _, groups := range kinds {
			if groups.Object == object && !groups.Absent() {
				t.Errorf("%T is asked for before it is indexed", object)
			}
		}
		return nil
	}
	changed := make(chan event.GenericEvent, 10)
	late := &lateGroups{
		kinds: kinds, watch: watch, announcer: &announcer{trainJobs: &failsOnce{Reader: c}, changed: changed},
		delay: func() time.Duration { return time.Millisecond },
	}
	if err := late.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(watched) != 2 || kinds[0].Absent() || kinds[1].Absent() {
		t.Errorf("watched: %T", watched)
	}
	close(changed)
	told := 0
	for e := range changed {
		told++
		if e.Object.GetName() != "waits" {
			t.Errorf("told of %s", e.Object.GetName())
		}
	}
	if told != 2 {
		t.Errorf("told %d times, want once for each kind", told)
	}

	// Asked to end before there is anything.
	mapper.from["scheduling.k8s.io"] = 1 << 30
	kinds[1].MarkAbsent(true)
	ctx, cancel := context.WithCancel(t.Context())
	late.kinds, late.delay = kinds[1:], func() time.Duration { cancel(); return time.Hour }
	if err := late.Start(ctx); err != nil {
		t.Error(err)
	}
}

// failsOnce is a reader whose first list fails.
type failsOnce struct {
	client.Reader
	failed bool
}

func (f *failsOnce) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if !f.failed {
		f.failed = true
		return errors.New("not now")
	}
	return f.Reader.List(ctx, list, opts...)
}

func TestAnnouncerEnds(t *testing.T) {
	c := newCluster(t, trainJob())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := &announcer{trainJobs: c.Client, changed: make(chan event.GenericEvent)}
	if err := a.announce(ctx, func(*v1alpha1.TrainJob) bool { return true }); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
}

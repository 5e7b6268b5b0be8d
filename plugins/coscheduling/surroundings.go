package coscheduling

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/plugins/preemption"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// Surroundings are what the plugin works with besides the scheduling framework. New takes them from the API
// server. A simulation brings its own, so that nothing happens of which it does not know.
type Surroundings struct {
	// Clock tells the time and wakes the plugin later.
	Clock clock.WithDelayedExecution

	// PodGroups and Members are informers of all PodGroups, as *v1alpha1.PodGroup, and of all pods that carry a
	// gang's label. The plugin starts them.
	PodGroups, Members cache.SharedIndexInformer

	// Client writes the status of PodGroups.
	Client dynamic.NamespaceableResourceInterface

	// Background runs, at some time, what must not hold up the scheduling cycle.
	Background func(func())

	// Writers is how many goroutines write conditions. If it is 0, the caller does so with WriteConditions.
	Writers int
}

// New returns the plugin, with its informers running and synced. It is an error if the arguments
// are wrong or the PodGroup CRD is not installed.
func New(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	if err := checkPodGroupServed(h.ClientSet().Discovery()); err != nil {
		return nil, fmt.Errorf("plugin %s: %w", Name, err)
	}
	groups, err := podgroup.NewGroupInformer(h.KubeConfig())
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", Name, err)
	}
	client, err := newPodGroupClient(h.KubeConfig())
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", Name, err)
	}
	return NewIn(ctx, obj, h, Surroundings{
		Clock:      clock.RealClock{},
		PodGroups:  groups,
		Members:    podgroup.NewPodInformer(h.ClientSet(), 0),
		Client:     client,
		Background: func(do func()) { go do() },
		Writers:    reporters,
	})
}

// NewIn is New in the given surroundings.
func NewIn(ctx context.Context, obj runtime.Object, h fwk.Handle, s Surroundings) (*Coscheduling, error) {
	args, err := decodeArgs(obj)
	if err != nil {
		return nil, err
	}
	handle, ok := h.(framework.Framework)
	if !ok {
		return nil, fmt.Errorf("plugin %s needs the scheduler's framework, got a %T", Name, h)
	}
	pl := &Coscheduling{
		handle:     handle,
		args:       args,
		members:    podgroup.NewMembership(),
		gangs:      newGangs(),
		holds:      newHolds(),
		repairs:    newRepairs(),
		cluster:    gangplan.NewCluster(args.Levels()),
		clock:      s.Clock,
		background: s.Background,
		priorities: preemption.NewPriorities(),
		budgets:    preemption.Budgets{Lister: handle.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister()},
		evictor:    preemption.NewEvictor(handle, s.Background),

		provisioning: newProvisioning(),
	}
	if err := pl.watchNewcomers(klog.FromContext(ctx)); err != nil {
		return nil, fmt.Errorf("plugin %s: %w", Name, err)
	}
	if pl.line, err = lineOf(ctx.Done(), handle.SharedInformerFactory(), s.Clock, args); err != nil {
		return nil, fmt.Errorf("plugin %s: %w", Name, err)
	}
	pl.report = newReporter(s.Client, handle.EventRecorder(), pl.group, pl.clock)
	pl.cluster.Use(handle)
	if err := pl.watch(ctx, s); err != nil {
		return nil, fmt.Errorf("plugin %s: %w", Name, err)
	}
	demands.count(ctx, pl.gangs)
	return pl, nil
}

// HasConditions reports whether conditions of PodGroups are to be written.
func (pl *Coscheduling) HasConditions() bool { return pl.report.queue.Len() > 0 }

// WriteConditions writes them, for a caller whose Surroundings have no writers.
func (pl *Coscheduling) WriteConditions(ctx context.Context) {
	for pl.HasConditions() {
		pl.report.next(ctx)
	}
}

// newPodGroupClient returns a client of PodGroups, which are JSON whatever content type cfg names.
func newPodGroupClient(cfg *rest.Config) (dynamic.NamespaceableResourceInterface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return client.Resource(v1alpha1.GroupVersion.WithResource("podgroups")), nil
}

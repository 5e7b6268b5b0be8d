package simulation

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/muster-sched/muster/plugins/coscheduling"
	"github.com/muster-sched/muster/plugins/gputopology"
	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// SchedulerName is the scheduler that pods of the simulation ask for.
const SchedulerName = "muster-scheduler"

// process is a running kube-scheduler. Its scheduling cycles are called for; its binding cycles are goroutines of
// which none runs unless it is its turn.
type process struct {
	cluster   *Cluster
	scheduler *scheduler.Scheduler
	plugin    *coscheduling.Coscheduling
	framework framework.Framework
	clock     lifetime
	ctx       context.Context
	cancel    context.CancelFunc
	dead      bool

	pods, nodes, members, groups, budgets, native *feed
	lists                                         map[*feed]func() []object
	stops                                         []func()

	background []func()
	// evictions are the pods that were asked to go since the last work in the background began.
	evictions []types.UID
	// backingOff are the pods that back off from an error and will be put in line.
	backingOff sets.Set[types.UID]
	waiting    map[types.UID]*waitingPod
	// rejected are the pods of another scheduler whose wait at Permit ended without success.
	rejected sets.Set[types.UID]

	// bindings are the binding cycles in the order in which they began, and current is the one whose turn it is.
	bindings []*binding
	current  *binding
	entered  chan *binding
	// cycling is set while a scheduling cycle runs.
	cycling bool
	// expected are the pods for which the scheduling cycle that runs begins binding cycles, in order, and allowed are
	// those that may bind from now on, which is yet to be told.
	expected []types.UID
	allowed  []*corev1.Pod
}

// binding is a binding cycle.
type binding struct {
	pod  *corev1.Pod
	node string
	// ctx ends when the cycle does.
	ctx    context.Context
	resume chan struct{}
	parked chan struct{}
	// ready tells whether it can go on.
	ready func() bool
	// binding is what it asked the API for, and err the answer.
	binding *corev1.Binding
	err     error
}

// plugins are those of the scheduler's default configuration that need no other objects than nodes and pods.
var plugins = []string{
	names.DefaultBinder, names.SchedulingGates, names.NodeUnschedulable, names.NodeName, names.TaintToleration, names.NodeAffinity,
	names.NodePorts, names.NodeResourcesFit, names.PodTopologySpread, names.InterPodAffinity,
}

func profileOf(o *Options) (schedconfig.KubeSchedulerProfile, error) {
	defaults, err := latest.Default()
	if err != nil {
		return schedconfig.KubeSchedulerProfile{}, err
	}
	p := schedconfig.KubeSchedulerProfile{SchedulerName: SchedulerName, Plugins: &schedconfig.Plugins{}, PluginConfig: slices.Clone(defaults.Profiles[0].PluginConfig)}
	if o.Scheduler != nil {
		p.Plugins = o.Scheduler.Plugins.DeepCopy()
		p.PluginConfig = slices.DeleteFunc(p.PluginConfig, func(c schedconfig.PluginConfig) bool {
			return slices.ContainsFunc(o.Scheduler.PluginConfig, func(other schedconfig.PluginConfig) bool { return other.Name == c.Name })
		})
		p.PluginConfig = append(p.PluginConfig, o.Scheduler.PluginConfig...)
		return p, nil
	}
	p.Plugins.MultiPoint.Enabled = append(p.Plugins.MultiPoint.Enabled,
		schedconfig.Plugin{Name: coscheduling.Name}, schedconfig.Plugin{Name: gputopology.Name, Weight: 4})
	for _, name := range plugins {
		p.Plugins.MultiPoint.Enabled = append(p.Plugins.MultiPoint.Enabled, schedconfig.Plugin{Name: name})
	}
	for name, args := range map[string]string{coscheduling.Name: o.Coscheduling, gputopology.Name: o.GPUTopology} {
		p.PluginConfig = append(p.PluginConfig, schedconfig.PluginConfig{Name: name, Args: &apiruntime.Unknown{Raw: []byte(args)}})
	}
	return p, nil
}

// start starts a scheduler that sees what there is.
func (c *Cluster) start() (*process, error) {
	p := &process{
		cluster:    c,
		waiting:    map[types.UID]*waitingPod{},
		backingOff: sets.New[types.UID](),
		rejected:   sets.New[types.UID](),
		entered:    make(chan *binding),
		lists:      map[*feed]func() []object{},
	}
	p.clock = lifetime{c.clock, &p.dead}
	p.ctx, p.cancel = context.WithCancel(klog.NewContext(context.Background(), c.options.Logger))
	client := &client{api: c.api, dead: &p.dead, evicts: p.evicts}

	factory := informers.NewSharedInformerFactory(client, 0)
	indexers := func() cache.Indexer {
		return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
	p.pods = watched(p, indexers(), nil, func(pod *corev1.Pod) bool {
		return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
	})
	p.nodes = watched(p, indexers(), nil, func(*corev1.Node) bool { return true })
	p.native = newFeed(indexers(), nil, nil)
	if c.options.Native {
		p.native = watched(p, indexers(), nil, func(*schedulingv1beta1.PodGroup) bool { return true })
		factory.InformerFor(&schedulingv1beta1.PodGroup{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return p.native })
	}
	p.budgets = watched(p, indexers(), nil, func(*policyv1.PodDisruptionBudget) bool { return true })
	p.groups, p.members = newFeed(indexers(), nil, nil), newFeed(indexers(), nil, nil)
	if c.options.Scheduler == nil {
		p.groups = watched(p, indexers(), nil, func(*v1alpha1.PodGroup) bool { return true })
		p.members = watched(p, podgroup.NewPodInformer(client, 0).GetIndexer(), podgroup.Transform, func(pod *corev1.Pod) bool {
			return pod.Labels[v1alpha1.GroupLabel] != ""
		})
	}
	factory.InformerFor(&corev1.Pod{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return p.pods })
	factory.InformerFor(&corev1.Node{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return p.nodes })

	factory.InformerFor(&policyv1.PodDisruptionBudget{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return p.budgets })

	profiles, err := profileOf(&c.options)
	if err != nil {
		return nil, err
	}
	p.scheduler, err = scheduler.New(p.ctx, client, factory, nil,
		func(string) events.EventRecorderLogger { return recorder{c} },
		scheduler.WithProfiles(profiles),
		scheduler.WithClock(p.clock),
		scheduler.WithParallelism(1),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{
			coscheduling.Name: func(ctx context.Context, args apiruntime.Object, h fwk.Handle) (fwk.Plugin, error) {
				p.framework = &profile{h.(framework.Framework), p}
				plugin, err := coscheduling.NewIn(ctx, args, p.framework, coscheduling.Surroundings{
					Clock: p.clock, PodGroups: p.groups, Members: p.members,
					Client:     groupClient{client: client},
					Background: func(do func()) { p.background = append(p.background, p.later(do)) },
				})
				p.plugin = plugin
				if err == nil {
					// New returns when the plugin's own informers are synced.
					p.groups.relist(p.lists[p.groups]())
					p.members.relist(p.lists[p.members]())
				}
				return plugin, err
			},
			gputopology.Name: gputopology.New,
		}),
	)
	if err != nil {
		p.cancel()
		return nil, fmt.Errorf("starting the scheduler: %w", err)
	}
	p.scheduler.Profiles[SchedulerName].SetAPICacher(&apiCalls{p})
	if p.framework == nil {
		p.framework = &profile{p.scheduler.Profiles[SchedulerName], p}
	}
	p.scheduler.Profiles[SchedulerName] = p.framework
	if c.options.Scheduler == nil {
		p.scheduler.FailureHandler = coscheduling.TellReasons(p.scheduler.FailureHandler)
	}
	p.nodes.relist(p.lists[p.nodes]())
	p.budgets.relist(p.lists[p.budgets]())
	if c.options.Native {
		p.native.relist(p.lists[p.native]())
	}
	p.pods.relist(p.lists[p.pods]())
	return p, nil
}

func watched[T object](p *process, indexer cache.Indexer, transform cache.TransformFunc, selects func(T) bool) *feed {
	f, list, stop := watch(p.cluster.api, indexer, transform, selects)
	p.lists[f] = list
	p.stops = append(p.stops, stop)
	return f
}

// later prepares what the plugin leaves for later.
func (p *process) later(do func()) func() {
	var done func()
	if p.cycling && p.cluster.postponed != nil {
		done = p.cluster.postponed()
	}
	return func() {
		p.evictions = nil
		do()
		if done != nil {
			done()
		}
	}
}

// evicts notes that a pod is asked to go.
func (p *process) evicts(uid types.UID) { p.evictions = append(p.evictions, uid) }

// kill ends the process where it stands. Of the bindings that it asked the API for and has no answer to, those are
// carried out that the caller chooses.
func (p *process) kill(carriedOut func(*corev1.Pod) bool) {
	for _, b := range p.bindings {
		if b.binding != nil && carriedOut(b.pod) {
			p.cluster.bind(b)
		}
	}
	p.dead = true
	for _, b := range p.bindings {
		b.resume <- struct{}{}
		<-b.ctx.Done()
	}
	for _, stop := range p.stops {
		stop()
	}
	p.bindings = nil
	p.cancel()
	p.scheduler.SchedulingQueue.Close()
}

// canSchedule reports whether a scheduling cycle would find a pod.
func (p *process) canSchedule() bool {
	q := p.scheduler.SchedulingQueue
	if len(q.PodsInActiveQ()) > 0 {
		return true
	}
	// The queue gives out those that back off when no others are there, but not those that back off from an error.
	for _, pod := range q.PodsInBackoffQ() {
		if entity := p.queued(pod); entity != nil && (entity.GetUnschedulablePlugins().Len() > 0 || entity.GetPendingPlugins().Len() > 0) {
			return true
		}
	}
	return false
}

// queued returns what a pod is in line as, itself or its native group; nil if it is not in line.
func (p *process) queued(pod *corev1.Pod) framework.QueuedEntityInfo {
	if group := pod.Spec.SchedulingGroup; p.cluster.options.Native && group != nil {
		if info, ok := p.scheduler.SchedulingQueue.GetPodGroup(*group.PodGroupName, pod.Namespace, fwk.PodGroupKeyType); ok {
			return info
		}
		return nil
	}
	if info, ok := p.scheduler.SchedulingQueue.GetPod(pod.Name, pod.Namespace, nil); ok {
		return info
	}
	return nil
}

// schedule runs one scheduling cycle.
func (p *process) schedule() {
	p.expected, p.cycling = p.expected[:0], true
	p.scheduler.ScheduleOne(p.ctx)
	p.cycling = false
	// The cycle of a native pod group begins several, whose goroutines come in any order.
	begun := map[types.UID]*binding{}
	for range p.expected {
		b := <-p.entered
		begun[b.pod.UID] = b
	}
	for _, uid := range p.expected {
		p.bindings = append(p.bindings, begun[uid])
	}
	p.watchErrorBackoff()
}

// watchErrorBackoff sees to it that pods come back into line that back off from an error: the queue's own
// goroutine does so every second.
func (p *process) watchErrorBackoff() {
	q := p.scheduler.SchedulingQueue
	for _, pod := range q.PodsInBackoffQ() {
		entity := p.queued(pod)
		if entity == nil || entity.GetUnschedulablePlugins().Len() > 0 || entity.GetPendingPlugins().Len() > 0 || p.backingOff.Has(pod.UID) {
			continue
		}
		p.backingOff.Insert(pod.UID)
		p.clock.AfterFunc(errorBackoff, func() {
			p.backingOff.Delete(pod.UID)
			if info, ok := q.GetPod(pod.Name, pod.Namespace, pod.Spec.SchedulingGroup); ok && info.Pod.UID == pod.UID {
				q.Activate(p.cluster.options.Logger, map[string]*corev1.Pod{pod.Namespace + "/" + pod.Name: info.Pod})
			}
		})
	}
}

// errorBackoff is the longest that a pod backs off.
const errorBackoff = 10 * time.Second

// enter is called by a binding cycle when it begins, and returns when it is its turn.
func (p *process) enter(ctx context.Context, pod *corev1.Pod, node string) {
	b := &binding{
		pod: pod, node: node, ctx: ctx, resume: make(chan struct{}), parked: make(chan struct{}),
		ready: func() bool { return true },
	}
	p.entered <- b
	<-b.resume
	p.orDie()
}

// park is called by the binding cycle whose turn it is, and returns when it is its turn again.
func (p *process) park(ready func() bool) {
	b := p.current
	b.ready = ready
	b.parked <- struct{}{}
	<-b.resume
	p.orDie()
}

// orDie ends a goroutine of a dead process.
func (p *process) orDie() {
	if p.dead {
		runtime.Goexit()
	}
}

// nextBinding returns the first binding cycle that can go on.
func (p *process) nextBinding() *binding {
	for _, b := range p.bindings {
		if b.ready() {
			return b
		}
	}
	return nil
}

// goOn lets a binding cycle run until it waits again or ends.
func (p *process) goOn(b *binding) {
	if b.binding != nil {
		b.err = p.cluster.bind(b)
		b.binding = nil
	}
	p.current = b
	b.resume <- struct{}{}
	select {
	case <-b.parked:
	case <-b.ctx.Done():
		p.bindings = slices.DeleteFunc(p.bindings, func(other *binding) bool { return other == b })
		p.watchErrorBackoff()
	}
	p.current = nil
}

// tellAllowed tells of the pods that may bind from now on, by commits: their wait ended in a scheduling cycle, or because
// one that they waited for is gone.
func (p *process) tellAllowed() {
	for len(p.allowed) > 0 {
		key, member := podgroup.Key(p.allowed[0])
		n := 1
		for member && n < len(p.allowed) {
			if other, _ := podgroup.Key(p.allowed[n]); other != key {
				break
			}
			n++
		}
		pods := p.allowed[:n:n]
		p.allowed = p.allowed[n:]
		p.cluster.tell(Event{Kind: Released, Pods: pods})
	}
	p.allowed = nil
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// recorder takes the scheduler's events.
type recorder struct{ cluster *Cluster }

func (r recorder) Eventf(regarding, related apiruntime.Object, _, reason, _, note string, args ...any) {
	o, ok := regarding.(object)
	if !ok || !r.cluster.observed() || r.cluster.options.Silent {
		return
	}
	pod, isPod := regarding.(*corev1.Pod)
	if gang, known := related.(object); known && isPod && reason == "Preempted" {
		r.cluster.tell(Event{Kind: Evicted, Object: nameOf(pod), Node: pod.Spec.NodeName, For: nameOf(gang)})
	}
	r.cluster.tell(Event{Kind: Said, Object: nameOf(o), Reason: reason, Note: fmt.Sprintf(note, args...)})
}

func (r recorder) WithLogger(klog.Logger) events.EventRecorderLogger { return r }

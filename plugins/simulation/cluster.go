package simulation

import (
	"container/heap"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// Options are the settings of a simulation.
type Options struct {
	// Start is the time at the beginning; by default the first of January 2026.
	Start time.Time
	// Coscheduling and GPUTopology are the plugins' arguments as in a KubeSchedulerConfiguration, JSON or YAML.
	Coscheduling, GPUTopology string
	// Scheduler is another scheduler than Muster's; nil for Muster's. The arguments of the plugins do not matter then.
	Scheduler *Scheduler
	// Native is whether gangs are PodGroups of scheduling.k8s.io. The feature gate GenericWorkload must be on then.
	Native bool
	// Silent is whether the scheduler's events are not told to observers.
	Silent bool
	// Logger is the scheduler's; the zero Logger writes nothing.
	Logger klog.Logger
	// Binds tells what becomes of a binding that the scheduler asks for, and Starts whether the kubelet lets a pod
	// run. By default all goes well.
	Binds  func(*corev1.Pod) BindResult
	Starts func(*corev1.Pod) bool
	// Delays is how much longer than usual it takes until a pod runs; by default no longer.
	Delays func(*corev1.Pod) time.Duration
	// Rendezvous is the PodGroup controller's policy. The zero policy releases only gangs that ask for it.
	Rendezvous podgroup.RendezvousPolicy
	// Choose picks one of n works that could be done next, from 0 for the first of the order of Work. By default that
	// one is.
	Choose func(n int) int
}

// Scheduler is a kube-scheduler without Muster.
type Scheduler struct {
	// Plugins are those of its profile.
	Plugins *schedconfig.Plugins
	// PluginConfig replaces the default arguments of plugins.
	PluginConfig []schedconfig.PluginConfig
}

// BindResult is what becomes of a binding.
type BindResult int

// Results of a binding.
const (
	// BindSucceeds is a binding that is carried out.
	BindSucceeds BindResult = iota
	// BindFails is one that is not.
	BindFails
	// BindAnswerLost is one that is carried out, but the scheduler gets an error.
	BindAnswerLost
)

// Work is something that can be done next. Until there is no more of it, the time stands still.
type Work int

// The works, in the order in which they are done if nothing else is chosen.
const (
	// ShowPodGroup shows the plugin the next change of a PodGroup.
	ShowPodGroup Work = iota
	// ShowMember shows the plugin the next change of a pod with a gang's label.
	ShowMember
	// ShowNode shows the scheduler the next change of a node.
	ShowNode
	// ShowBudget shows the scheduler the next change of a PodDisruptionBudget.
	ShowBudget
	// ShowPod shows the scheduler the next change of a pod.
	ShowPod
	// MakePod lets a Job make a pod that it lacks.
	MakePod
	// DoInBackground does what the plugin left for later.
	DoInBackground
	// WriteConditions lets the plugin write conditions of PodGroups.
	WriteConditions
	// GoOnBinding lets a binding cycle go on.
	GoOnBinding
	// Reconcile lets the PodGroup controller look at a PodGroup.
	Reconcile
	// Ring is what was to happen about now.
	Ring
	// Schedule runs a scheduling cycle.
	Schedule

	works int = iota
)

// String names the work.
func (w Work) String() string {
	return [works]string{
		"ShowPodGroup", "ShowMember", "ShowNode", "ShowBudget", "ShowPod", "MakePod", "DoInBackground", "WriteConditions", "GoOnBinding", "Reconcile", "Ring", "Schedule",
	}[w]
}

// Cluster is a simulated cluster with a scheduler. It is for one goroutine.
type Cluster struct {
	options   Options
	clock     *Clock
	api       *api
	process   *process
	jobs      map[string]*job
	names     []string    // of the jobs, as they came
	groups    *controller // nil while the scheduler is dead
	lacking   lacking
	submitted int
	lost      sets.Set[string]
	held      sets.Set[Work]
	observers []func(Event)
	// postponed, if set, is called when the plugin leaves something for later in a scheduling cycle, and what it returns
	// when that was done.
	postponed func() func()
}

// New starts a cluster without nodes. It is an error if the scheduler does not start.
func New(options Options) (*Cluster, error) {
	if options.Start.IsZero() {
		options.Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	c := &Cluster{
		options: options,
		clock:   NewClock(options.Start),
		jobs:    map[string]*job{},
		lost:    sets.New[string](),
		held:    sets.New[Work](),
	}
	c.api = newAPI(c.clock)
	c.api.watchers = append(c.api.watchers, c.saw)
	return c, c.startAll()
}

// startAll starts the scheduler and the controller beside it.
func (c *Cluster) startAll() (err error) {
	if c.process, err = c.start(); err != nil {
		return err
	}
	c.groups, err = newController(c)
	return err
}

// Close ends the scheduler.
func (c *Cluster) Close() {
	c.end(func(*corev1.Pod) bool { return false })
}

func (c *Cluster) end(carriedOut func(*corev1.Pod) bool) {
	if c.process != nil {
		c.process.kill(carriedOut)
		c.groups.dead = true
		c.process, c.groups = nil, nil
	}
}

// Clock returns the cluster's clock. It must not be set but by Advance.
func (c *Cluster) Clock() *Clock { return c.clock }

// Observe makes a function see everything that happens from now on.
func (c *Cluster) Observe(see func(Event)) { c.observers = append(c.observers, see) }

func (c *Cluster) observed() bool { return len(c.observers) > 0 }

func (c *Cluster) tell(e Event) {
	e.At = c.clock.Now()
	for _, see := range c.observers {
		see(e)
	}
}

// saw lets the cluster's controllers follow what changes in the API.
func (c *Cluster) saw(old, now object) {
	switch o := now.(type) {
	case *corev1.Pod:
		was, _ := old.(*corev1.Pod)
		c.follow(was, o)
		if j := c.jobOf(o); j != nil {
			if idle := j.saw(o, true); idle != "" {
				c.clock.AfterFunc(0, func() { c.DeletePod(idle) })
			}
			c.lacks(j)
		}
		if c.groups != nil {
			c.groups.saw(o)
		}
		c.api.recountBudget(o)
		return
	case *v1alpha1.PodGroup:
		if c.groups != nil {
			c.groups.add(nameOf(o))
		}
		return
	}
	if pod, ok := old.(*corev1.Pod); ok && now == nil {
		if j := c.jobOf(pod); j != nil {
			j.saw(pod, false)
			c.lacks(j)
		}
		if c.groups != nil {
			c.groups.saw(pod)
		}
		c.api.recountBudget(pod)
	}
}

func (c *Cluster) jobOf(pod *corev1.Pod) *job {
	if len(pod.OwnerReferences) == 0 {
		return nil
	}
	if j := c.jobs[pod.OwnerReferences[0].Name]; j != nil && j.uid == pod.OwnerReferences[0].UID {
		return j
	}
	return nil
}

func (c *Cluster) starts(pod *corev1.Pod) bool {
	if c.options.Starts != nil && !c.options.Starts(pod) {
		c.endPod(nameOf(pod), pod.UID, corev1.PodFailed)
		return false
	}
	return true
}

// bind carries out what a binding cycle asked for.
func (c *Cluster) bind(b *binding) error {
	result := BindSucceeds
	if c.options.Binds != nil {
		result = c.options.Binds(b.pod)
	}
	key := nameOf(b.pod)
	if result == BindFails {
		c.tell(Event{Kind: BindFailed, Object: key, Node: b.node, Reason: "Refused", Pods: []*corev1.Pod{b.pod}})
		return fmt.Errorf("the API server refuses the binding")
	}
	if err := c.api.bind(b.binding); err != nil {
		c.tell(Event{Kind: BindFailed, Object: key, Node: b.node, Note: err.Error(), Pods: []*corev1.Pod{b.pod}})
		return err
	}
	c.tell(Event{Kind: Bound, Object: key, Node: b.node})
	if result == BindAnswerLost {
		return fmt.Errorf("the answer of the API server is lost")
	}
	return nil
}

// Kill ends the scheduler where it stands. Of the bindings that are on their way, those are carried out that the
// caller chooses.
func (c *Cluster) Kill(carriedOut func(*corev1.Pod) bool) {
	if c.process != nil {
		c.end(carriedOut)
		c.tell(Event{Kind: Restarted, Reason: "Killed"})
	}
}

// Start starts the scheduler if it is dead.
func (c *Cluster) Start() error {
	if c.process != nil {
		return nil
	}
	err := c.startAll()
	c.tell(Event{Kind: Restarted, Reason: "Started"})
	return err
}

// Hold keeps some work from being done until it is let go.
func (c *Cluster) Hold(w Work) { c.held.Insert(w) }

// LetGo ends what Hold began.
func (c *Cluster) LetGo(w Work) { c.held.Delete(w) }

// Relist makes a watch of the scheduler start again: ShowPodGroup, ShowMember, ShowNode, ShowBudget or ShowPod.
func (c *Cluster) Relist(w Work) {
	if f := c.feed(w); f != nil {
		f.relist(c.process.lists[f]())
		c.process.tellAllowed()
	}
}

func (c *Cluster) feed(w Work) *feed {
	if c.process == nil {
		return nil
	}
	switch w {
	case ShowPodGroup:
		if c.options.Native {
			return c.process.native
		}
		return c.process.groups
	case ShowMember:
		return c.process.members
	case ShowNode:
		return c.process.nodes
	case ShowBudget:
		return c.process.budgets
	case ShowPod:
		return c.process.pods
	}
	return nil
}

// todo reports whether there is work of a kind.
func (c *Cluster) todo(w Work) bool {
	if c.held.Has(w) {
		return false
	}
	switch w {
	case MakePod:
		return c.nextPod() != nil
	case Ring:
		return c.clock.due()
	}
	if c.process == nil {
		return false
	}
	switch w {
	case Reconcile:
		return len(c.groups.queue) > 0
	case DoInBackground:
		return len(c.process.background) > 0
	case WriteConditions:
		return c.process.plugin != nil && c.process.plugin.HasConditions()
	case GoOnBinding:
		return c.process.nextBinding() != nil
	case Schedule:
		return c.process.canSchedule()
	default:
		return len(c.feed(w).pending) > 0
	}
}

// Step does one thing that there is to do, and returns what. It returns false if there is nothing.
func (c *Cluster) Step() (Work, bool) {
	if c.options.Choose == nil {
		for w := range Work(works) {
			if c.todo(w) {
				c.do(w)
				return w, true
			}
		}
		return 0, false
	}
	var could []Work
	for w := range Work(works) {
		if c.todo(w) {
			could = append(could, w)
		}
	}
	if len(could) == 0 {
		return 0, false
	}
	w := could[c.options.Choose(len(could))]
	c.do(w)
	return w, true
}

func (c *Cluster) do(w Work) {
	switch w {
	case MakePod:
		j := c.nextPod()
		index := j.missing()
		pod := j.pod(index, c.options.Native)
		j.made[index]++
		j.live[index] = pod.Name
		c.api.createPod(pod)
	case Reconcile:
		c.groups.reconcile()
	case Ring:
		c.clock.ring()
	case DoInBackground:
		do := c.process.background[0]
		c.process.background = c.process.background[1:]
		do()
	case WriteConditions:
		c.process.plugin.WriteConditions(c.process.ctx)
	case GoOnBinding:
		c.process.goOn(c.process.nextBinding())
	case Schedule:
		c.process.schedule()
	default:
		c.feed(w).show()
	}
	if c.process != nil {
		c.process.tellAllowed()
	}
}

// nextPod returns the first Job that lacks a pod.
func (c *Cluster) nextPod() *job {
	for len(c.lacking) > 0 {
		j := c.lacking[0]
		if c.jobs[j.Name] == j && j.missing() >= 0 {
			return j
		}
		heap.Pop(&c.lacking)
		j.lacks = false
	}
	return nil
}

// lacks notes that a Job may lack a pod.
func (c *Cluster) lacks(j *job) {
	if !j.lacks {
		j.lacks = true
		heap.Push(&c.lacking, j)
	}
}

// lacking is a heap of Jobs that may lack a pod, in the order in which they came.
type lacking []*job

func (l lacking) Len() int           { return len(l) }
func (l lacking) Less(i, k int) bool { return l[i].order < l[k].order }
func (l lacking) Swap(i, k int)      { l[i], l[k] = l[k], l[i] }
func (l *lacking) Push(x any)        { *l = append(*l, x.(*job)) }
func (l *lacking) Pop() any {
	last := len(*l) - 1
	j := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	return j
}

// settleLimit is more work than any moment has.
const settleLimit = 100_000

// Settle does all there is to do at the present time. It is an error if that does not end.
func (c *Cluster) Settle() error {
	counts := map[Work]int{}
	for range settleLimit {
		w, ok := c.Step()
		if !ok {
			return nil
		}
		counts[w]++
	}
	return fmt.Errorf("there is always more to do at one moment: %v", counts)
}

// Advance lets the time pass, and does on the way what there is to do.
func (c *Cluster) Advance(d time.Duration) error {
	end := c.clock.Now().Add(d)
	for {
		if err := c.Settle(); err != nil {
			return err
		}
		next, ok := c.clock.next()
		if !ok || next.After(end) {
			break
		}
		if !next.After(c.clock.Now()) {
			break // held
		}
		c.clock.set(next)
	}
	c.clock.set(end)
	return c.Settle()
}

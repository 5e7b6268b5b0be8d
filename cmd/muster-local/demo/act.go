package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

const (
	// tick is how often TrainJobs and PodGroups are read and the panel is redrawn.
	tick = 200 * time.Millisecond

	// patience is for how long nothing may change, with no training under way, before the jobs count
	// as stuck. Nothing in the simulation takes a tenth of it.
	patience = 10 * time.Second

	// gatherLimit is how long the controllers may take to create all pods.
	gatherLimit = time.Minute
)

// act is one performance: the workloads under one scheduler, in a namespace of their own.
type act struct {
	screen    *Screen
	kube      kubernetes.Interface
	client    client.Client
	namespace string
	nodes     []mapNode
	failed    <-chan error // of the cluster

	began      time.Time
	ledger     *ledger
	rendezvous *rendezvous
	jobs       []*job
	mapDue     time.Time // when the map is worth printing, if it is
	printed    []string  // the map that was printed last
}

// job is how far a workload has come.
type job struct {
	workload
	firstBound time.Time
	whole      time.Time
	trained    time.Time // when its training started
	completed  time.Time
	refusal    string // what Muster says of it now
	said       string // the last explanation that was printed
	saidAt     time.Time
}

// outcome is what was measured in an act.
type outcome struct {
	// wasted is in GPU-seconds; wasting is how many GPUs gangs that cannot run held at the end.
	wasted  float64
	wasting int

	// elapsed is the time from the release of the first pod until all jobs were done or, if stuck,
	// until the demo stopped watching.
	elapsed time.Duration
	stuck   bool

	completed int

	// holding says which unfinished jobs held nodes at the end, and how many.
	holding []string
}

// perform submits the workloads and watches until they are done or stuck.
func (a *act) perform(ctx context.Context) (*outcome, error) {
	if err := a.prepareNamespace(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := watchPods(ctx, a.kube, a.namespace)
	if err != nil {
		return nil, err
	}
	if err := a.submit(ctx); err != nil {
		return nil, err
	}
	if err := a.gather(ctx, events); err != nil {
		return nil, err
	}
	a.began = time.Now()
	a.ledger.changed = a.began
	background := make(chan error, 1+len(workloads))
	order := inTurn(a.ledger, names())
	go func() {
		if err := release(ctx, a.kube, a.namespace, order); err != nil {
			background <- fmt.Errorf("release the pods: %w", err)
		}
	}()
	observations := make(chan observation)
	go a.poll(ctx, observations, background)

	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case err := <-a.failed:
			return nil, err
		case err := <-background:
			return nil, err
		case event := <-events:
			a.observe(ctx, event, background)
		case seen := <-observations:
			if err := a.follow(seen); err != nil {
				return nil, err
			}
		case <-ticker.C:
			// News that has arrived comes before the clock: the ledger cannot go back.
			for pending := true; pending; {
				select {
				case event := <-events:
					a.observe(ctx, event, background)
				default:
					pending = false
				}
			}
			now := time.Now()
			a.ledger.advance(now)
			a.explain(now)
			a.draw(now)
			if done := a.done(); done || a.stuck(now) {
				return a.end(now, !done), nil
			}
		}
	}
}

// submit creates the TrainJobs.
func (a *act) submit(ctx context.Context) error {
	a.began = time.Now()
	members := map[string]int{}
	for _, w := range workloads {
		members[w.name] = w.nodes
		a.jobs = append(a.jobs, &job{workload: w})
		if err := a.client.Create(ctx, w.trainJob(a.namespace)); err != nil {
			return fmt.Errorf("submit %s: %w", w.name, err)
		}
		a.screen.Say("        %s: %d nodes x %d GPUs, trains for %s once all its pods run", a.screen.paint(bold, w.name), w.nodes, GPUsPerNode, w.training)
	}
	a.ledger = newLedger(a.began, members)
	a.rendezvous = &rendezvous{client: a.kube, namespace: a.namespace, started: map[string]bool{}}
	return nil
}

// gather waits until all pods of all jobs exist.
func (a *act) gather(ctx context.Context, events <-chan podEvent) error {
	limit := time.NewTimer(gatherLimit)
	defer limit.Stop()
	for !gathered(a.ledger) {
		select {
		case event := <-events:
			a.observe(ctx, event, nil)
		case err := <-a.failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit.C:
			return fmt.Errorf("after %s the controllers have made only %d pods", gatherLimit, len(a.ledger.pods))
		}
	}
	a.screen.Say("        all %d pods are created and now released in turn, one of each job", len(a.ledger.pods))
	return nil
}

// prepareNamespace makes the act's namespace and waits until pods can be created in it.
func (a *act) prepareNamespace(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}
	if err := a.client.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, tick/4, patience, true, func(ctx context.Context) (bool, error) {
		_, err := a.kube.CoreV1().ServiceAccounts(a.namespace).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// observe takes news of a pod into account.
func (a *act) observe(ctx context.Context, event podEvent, background chan<- error) {
	if event.gone {
		a.ledger.remove(event.at, event.uid)
		return
	}
	a.ledger.set(event.at, event.uid, event.pod)
	for _, j := range a.jobs {
		if j.name != event.pod.job {
			continue
		}
		if j.firstBound.IsZero() && a.ledger.bound(j.name) > 0 {
			j.firstBound = event.at
		}
		if j.whole.IsZero() && a.ledger.whole(j.name) {
			j.whole = event.at
			a.sayWhole(event.at, j)
		}
		if a.rendezvous.visit(ctx, a.ledger, j.workload, background) {
			j.trained = event.at
		}
	}
}

// observation is what the API server said of TrainJobs and PodGroups at a time.
type observation struct {
	at        time.Time
	trainJobs trainer.TrainJobList
	groups    podgroup.PodGroupList
}

// poll delivers observations until ctx is done.
func (a *act) poll(ctx context.Context, observations chan<- observation, failed chan<- error) {
	for {
		seen := observation{}
		if err := errors.Join(
			a.client.List(ctx, &seen.trainJobs, client.InNamespace(a.namespace)),
			a.client.List(ctx, &seen.groups, client.InNamespace(a.namespace)),
		); err != nil {
			if ctx.Err() == nil {
				failed <- err
			}
			return
		}
		seen.at = time.Now()
		select {
		case observations <- seen:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(tick):
		case <-ctx.Done():
			return
		}
	}
}

// follow takes an observation into account.
func (a *act) follow(seen observation) error {
	for _, j := range a.jobs {
		for i := range seen.trainJobs.Items {
			if seen.trainJobs.Items[i].Name != j.name {
				continue
			}
			conditions := seen.trainJobs.Items[i].Status.Conditions
			if failure := meta.FindStatusCondition(conditions, trainer.TrainJobFailed); failure != nil && failure.Status == metav1.ConditionTrue {
				return fmt.Errorf("TrainJob %s failed: %s", j.name, failure.Message)
			}
			if j.completed.IsZero() && meta.IsStatusConditionTrue(conditions, trainer.TrainJobComplete) {
				j.completed = seen.at
				a.say(seen.at, "%s is done", a.screen.paint(bold, j.name))
				a.mapDue = seen.at.Add(tick)
			}
		}
		j.refusal = ""
		for i := range seen.groups.Items {
			if seen.groups.Items[i].Name != j.name {
				continue
			}
			if refused := meta.FindStatusCondition(seen.groups.Items[i].Status.Conditions, podgroup.ConditionUnschedulable); refused != nil && refused.Status == metav1.ConditionTrue {
				j.refusal = refused.Message
			}
		}
	}
	return nil
}

// done is true when all TrainJobs are complete.
func (a *act) done() bool {
	for _, j := range a.jobs {
		if j.completed.IsZero() {
			return false
		}
	}
	return true
}

// training is true while a job has all its pods and has not finished.
func (a *act) training(j *job) bool { return a.ledger.whole(j.name) && !a.ledger.finished(j.name) }

// stuck is true when no job is in training and nothing has changed for longer than anything takes.
func (a *act) stuck(now time.Time) bool {
	for _, j := range a.jobs {
		if a.training(j) {
			return false
		}
	}
	return now.Sub(a.ledger.changed) > patience
}

// end closes the act.
func (a *act) end(now time.Time, stuck bool) *outcome {
	o := &outcome{wasted: a.ledger.wasted, wasting: a.ledger.wasting(), elapsed: now.Sub(a.began), stuck: stuck}
	for _, j := range a.jobs {
		if !j.completed.IsZero() {
			o.completed++
		} else if bound := a.ledger.bound(j.name); bound > 0 && bound < j.nodes {
			o.holding = append(o.holding, fmt.Sprintf("%s %d of its %d nodes", j.name, bound, j.nodes))
		}
	}
	a.screen.show(nil)
	if stuck {
		a.say(now, "%s", a.screen.paint(red, fmt.Sprintf("stuck: for %s no pod has moved, and no job can", patience)))
		a.printMap()
	}
	return o
}

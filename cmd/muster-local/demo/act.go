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
	mapDue     time.Time
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

	// elapsed is the time from the first submission until all jobs were done or, if stuck, until
	// the demo stopped watching.
	elapsed time.Duration
	stuck   bool

	completed int
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
	members := map[string]int{}
	for _, w := range workloads {
		members[w.name] = w.nodes
		a.jobs = append(a.jobs, &job{workload: w})
	}
	a.began = time.Now()
	a.ledger = newLedger(a.began, members)
	a.rendezvous = &rendezvous{client: a.kube, namespace: a.namespace, started: map[string]bool{}}
	for _, w := range workloads {
		if err := a.client.Create(ctx, w.trainJob(a.namespace)); err != nil {
			return nil, fmt.Errorf("submit %s: %w", w.name, err)
		}
		a.say(time.Now(), "%s submitted: %d nodes x %d GPUs, trains %s once all its pods run", w.name, w.nodes, GPUsPerNode, w.training)
	}

	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case err := <-a.failed:
			return nil, err
		case event := <-events:
			if err := a.observe(ctx, event); err != nil {
				return nil, err
			}
		case now := <-ticker.C:
			a.ledger.advance(now)
			done, err := a.follow(ctx, now)
			if err != nil {
				return nil, err
			}
			a.explain(now)
			a.draw(now)
			if done || a.stuck(now) {
				return a.end(now, !done), nil
			}
		}
	}
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
func (a *act) observe(ctx context.Context, event podEvent) error {
	if event.gone {
		a.ledger.remove(event.at, event.uid)
		return nil
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
		started, err := a.rendezvous.visit(ctx, a.ledger, j.workload)
		if err != nil {
			return err
		}
		if started {
			j.trained = time.Now()
		}
	}
	return nil
}

// follow reads the TrainJobs and the PodGroups, and says whether all TrainJobs are complete.
func (a *act) follow(ctx context.Context, now time.Time) (bool, error) {
	trainJobs := &trainer.TrainJobList{}
	groups := &podgroup.PodGroupList{}
	if err := errors.Join(
		a.client.List(ctx, trainJobs, client.InNamespace(a.namespace)),
		a.client.List(ctx, groups, client.InNamespace(a.namespace)),
	); err != nil {
		return false, err
	}
	done := 0
	for _, j := range a.jobs {
		for i := range trainJobs.Items {
			if trainJobs.Items[i].Name != j.name {
				continue
			}
			conditions := trainJobs.Items[i].Status.Conditions
			if failure := meta.FindStatusCondition(conditions, trainer.TrainJobFailed); failure != nil && failure.Status == metav1.ConditionTrue {
				return false, fmt.Errorf("TrainJob %s failed: %s", j.name, failure.Message)
			}
			if j.completed.IsZero() && meta.IsStatusConditionTrue(conditions, trainer.TrainJobComplete) {
				j.completed = now
				a.say(now, "%s is done", j.name)
				a.mapDue = now.Add(tick)
			}
		}
		j.refusal = ""
		for i := range groups.Items {
			if groups.Items[i].Name != j.name {
				continue
			}
			if refused := meta.FindStatusCondition(groups.Items[i].Status.Conditions, podgroup.ConditionUnschedulable); refused != nil && refused.Status == metav1.ConditionTrue {
				j.refusal = refused.Message
			}
		}
		if !j.completed.IsZero() {
			done++
		}
	}
	return done == len(a.jobs), nil
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
		}
	}
	a.screen.show(nil)
	if stuck {
		a.say(now, "%s", a.screen.paint(red, fmt.Sprintf("stuck: for %s no pod has moved, and no job can", patience)))
		a.screen.lines(indent(a.drawMap())...)
	}
	return o
}

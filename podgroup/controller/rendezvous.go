package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

const (
	// RecordFieldOwner is the owner, in server-side apply, of the annotations that make a group's record.
	RecordFieldOwner = "muster-rendezvous"

	// budgetGrace is how long after a release a PodDisruptionBudget is respected that keeps members from being
	// evicted. The gang works on nothing, and what it holds others wait for.
	budgetGrace = 30 * time.Second

	// budgetRetry is how long to wait before a member is tried again that a budget kept.
	budgetRetry = 5 * time.Second

	// evictionBatch is how many members of a gang are evicted before other groups have their turn.
	evictionBatch = 64

	// evictionTimeout bounds one request: the client waits and tries again on its own where the API server asks
	// for that.
	evictionTimeout = 10 * time.Second
)

// rendezvous does what is due about the meeting of a gang's members: it keeps the group's record, one write at a time,
// and evicts the members of a gang that was released. It returns after which time something may be due though nothing
// happens, 0 for never, and whether it wrote to the group.
func (r *reconciler) rendezvous(ctx context.Context, group *v1alpha1.PodGroup, members []podgroup.Member, now time.Time) (time.Duration, bool, error) {
	verdict := r.opts.Rendezvous.Judge(group, members, now)
	settings, _ := podgroup.ParseSettings(group.Annotations)
	if !verdict.Record.Equal(settings.Record) {
		if verdict.Release {
			klog.FromContext(ctx).Info("Releasing a gang whose members did not meet in time", "attempts", verdict.Record.Attempts,
				"givenUp", verdict.Record.GivenUp, "notBefore", verdict.Record.NotBefore)
		}
		err := r.writer.writeRecord(ctx, group, verdict.Record)
		if err == nil && verdict.Release {
			releases.WithLabelValues(verdict.Reason).Inc()
		}
		return 0, true, err
	}
	next, err := r.evict(ctx, podgroup.ToEvict(group, members, now), now.Sub(settings.Record.ReleasedAt) >= budgetGrace)
	if !verdict.Again.IsZero() {
		next = soonest(next, verdict.Again.Sub(now))
	}
	return next, false, err
}

// evict evicts members, each of them only if it is still the pod that was looked at. With force, it deletes those
// that a PodDisruptionBudget keeps. It returns when to go on, 0 if all were evicted.
func (r *reconciler) evict(ctx context.Context, members []podgroup.Member, force bool) (time.Duration, error) {
	var next time.Duration
	if len(members) > evictionBatch {
		members, next = members[:evictionBatch], time.Millisecond
	}
	var errs []error
	for i := range members {
		m := &members[i]
		kept, err := r.evictOne(ctx, m)
		if kept && force {
			klog.FromContext(ctx).Info("Deleting a member that a PodDisruptionBudget keeps from being evicted", "pod", m.Name)
			kept, err = false, r.delete(ctx, m)
		}
		switch {
		case kept:
			next = soonest(next, budgetRetry)
		case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err): // gone, or another pod by now
			errs = append(errs, fmt.Errorf("evicting member %s: %w", m.Name, err))
		}
	}
	return next, errors.Join(errs...)
}

// evictOne asks for a member's eviction, and reports whether a PodDisruptionBudget is in the way.
func (r *reconciler) evictOne(ctx context.Context, m *podgroup.Member) (kept bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()
	pod := podOf(m)
	err = r.client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta:    pod.ObjectMeta,
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &m.UID}},
	})
	// An internal error is what several budgets for one pod make.
	return apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) || apierrors.IsInternalError(err), err
}

// delete deletes a member. As an eviction does, it first says on the pod that this is no failure of its own.
func (r *reconciler) delete(ctx context.Context, m *podgroup.Member) error {
	ctx, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": m.UID}, // of another pod it is refused as a conflict
		"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(r.clock.Now()),
			Reason: v1alpha1.ConditionRendezvousTimedOut, Message: "the gang is released because its members did not meet in time",
		}}},
	})
	if err != nil {
		return err
	}
	if err := r.client.Status().Patch(ctx, podOf(m), client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner(FieldOwner)); err != nil {
		return err
	}
	return r.client.Delete(ctx, podOf(m), client.Preconditions{UID: &m.UID})
}

func podOf(m *podgroup.Member) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}
}

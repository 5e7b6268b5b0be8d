package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// probePeriod is how long conditions are left out after the API server did not take them, before they are
// tried again: a CustomResourceDefinition may be upgraded.
const probePeriod = 10 * time.Minute

// ownConditions are the conditions that the controller writes.
var ownConditions = []string{
	v1alpha1.ConditionScheduled, v1alpha1.ConditionReady, v1alpha1.ConditionRendezvousTimedOut, v1alpha1.ConditionFinished,
}

// writer applies the controller's fields to groups, and only those. Every write names the version of the
// group that it was computed from and fails with a conflict on any other.
type writer struct {
	client client.Client
	clock  clock.PassiveClock

	lock sync.Mutex
	// withoutConditionsUntil is set while the installed CustomResourceDefinition has no status.conditions.
	withoutConditionsUntil time.Time
}

// writeStatus applies the controller's part of the status if it differs from the group's, and returns
// whether it wrote.
func (w *writer) writeStatus(ctx context.Context, group *v1alpha1.PodGroup, status v1alpha1.PodGroupStatus) (bool, error) {
	withConditions := w.tryConditions()
	if !differs(group.Status, status, withConditions) {
		return false, nil
	}
	taken, err := w.applyStatus(ctx, group, status, withConditions)
	if err != nil || taken == withConditions {
		if err == nil && withConditions {
			w.conditionsTaken(ctx)
		}
		return err == nil, err
	}
	w.conditionsRefused(ctx)
	if !differs(group.Status, status, false) {
		return false, nil
	}
	_, err = w.applyStatus(ctx, group, status, false)
	return err == nil, err
}

// applyStatus applies the status and returns whether the API server took the conditions. Where it did not,
// it may have taken the rest or nothing.
func (w *writer) applyStatus(ctx context.Context, group *v1alpha1.PodGroup, status v1alpha1.PodGroupStatus, withConditions bool) (bool, error) {
	fields, err := statusFields(status, withConditions)
	if err != nil {
		return false, err
	}
	object := identify(group)
	object.Object["status"] = fields
	err = w.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(FieldOwner), client.ForceOwnership)
	if err != nil {
		if withConditions && podgroup.RefusesConditions(err) {
			return false, nil
		}
		return false, fmt.Errorf("applying the status of the PodGroup: %w", err)
	}
	if !withConditions {
		return false, nil
	}
	_, kept, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	return kept, err
}

// writeOwner makes the owner one of the group's. It is no controller of the group: it did not make it.
func (w *writer) writeOwner(ctx context.Context, group *v1alpha1.PodGroup, owner podgroup.Owner) error {
	object := identify(group)
	if err := unstructured.SetNestedSlice(object.Object, []any{map[string]any{
		"apiVersion": owner.APIVersion,
		"kind":       owner.Kind,
		"name":       owner.Name,
		"uid":        string(owner.UID),
	}}, "metadata", "ownerReferences"); err != nil {
		return err
	}
	err := w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(FieldOwner), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("making %s %s an owner of the PodGroup: %w", owner.Kind, owner.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Adopted the PodGroup for the controller of its members", "kind", owner.Kind, "owner", owner.Name)
	return nil
}

// writeRecord makes the record the group's.
func (w *writer) writeRecord(ctx context.Context, group *v1alpha1.PodGroup, record podgroup.Record) error {
	object := identify(group)
	if annotations := record.Annotations(); len(annotations) > 0 {
		object.SetAnnotations(annotations)
	}
	err := w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(RecordFieldOwner), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("recording the rendezvous of the PodGroup: %w", err)
	}
	return nil
}

// tryConditions is whether to apply conditions.
func (w *writer) tryConditions() bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	return !w.clock.Now().Before(w.withoutConditionsUntil)
}

func (w *writer) conditionsTaken(ctx context.Context) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if !w.withoutConditionsUntil.IsZero() {
		klog.FromContext(ctx).Info("The CustomResourceDefinition of PodGroup has status.conditions now: they are written")
		w.withoutConditionsUntil = time.Time{}
	}
}

func (w *writer) conditionsRefused(ctx context.Context) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.withoutConditionsUntil.IsZero() {
		klog.FromContext(ctx).Info("The installed CustomResourceDefinition of PodGroup has no status.conditions: " +
			"PodGroups get a phase, counters and events, but no conditions, and finished ones are not removed. " +
			"Install Muster's definition, which differs in nothing else")
	}
	w.withoutConditionsUntil = w.clock.Now().Add(probePeriod)
}

// identify returns an apply configuration for this very version of the group, without any fields.
func identify(group *v1alpha1.PodGroup) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PodGroup"))
	object.SetNamespace(group.Namespace)
	object.SetName(group.Name)
	object.SetUID(group.UID)
	object.SetResourceVersion(group.ResourceVersion)
	return object
}

// statusFields returns the fields of the status that the controller owns; what is left out, it gives up.
func statusFields(status v1alpha1.PodGroupStatus, withConditions bool) (map[string]any, error) {
	fields := map[string]any{
		"phase":     string(status.Phase),
		"running":   int64(status.Running),
		"succeeded": int64(status.Succeeded),
		"failed":    int64(status.Failed),
	}
	if status.OccupiedBy != "" {
		fields["occupiedBy"] = status.OccupiedBy
	}
	if !status.ScheduleStartTime.IsZero() {
		fields["scheduleStartTime"] = status.ScheduleStartTime.UTC().Format(time.RFC3339)
	}
	if !withConditions {
		return fields, nil
	}
	var conditions []any
	for _, conditionType := range ownConditions {
		condition := meta.FindStatusCondition(status.Conditions, conditionType)
		if condition == nil {
			continue
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(condition)
		if err != nil {
			return nil, fmt.Errorf("converting condition %s: %w", conditionType, err)
		}
		conditions = append(conditions, content)
	}
	fields["conditions"] = conditions
	return fields, nil
}

// differs is whether the controller's part of the two statuses differs.
func differs(a, b v1alpha1.PodGroupStatus, withConditions bool) bool {
	if !equality.Semantic.DeepEqual(a.PodGroupStatus, b.PodGroupStatus) {
		return true
	}
	if !withConditions {
		return false
	}
	for _, conditionType := range ownConditions {
		if !equality.Semantic.DeepEqual(
			meta.FindStatusCondition(a.Conditions, conditionType), meta.FindStatusCondition(b.Conditions, conditionType)) {
			return true
		}
	}
	return false
}

package coscheduling

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// FieldOwner is the field manager of what the trainer applies, the same as Kubeflow Trainer's.
const FieldOwner = "trainer"

// OwnerIndex is the name of the index of PodGroups by the UID of their controller.
const OwnerIndex = "trainer.metadata.controller"

// IndexOwner is the function of OwnerIndex.
func IndexOwner(object client.Object) []string {
	if owner := metav1.GetControllerOf(object); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

// Sync implements framework.ComponentPlugin. While the JobSet runs, its PodGroups stay as they are, because
// the JobSet does so too; one that is missing is made again.
func (c *CoScheduling) Sync(ctx context.Context, trainJob *v1alpha1.TrainJob, objects []client.Object) error {
	running, err := c.running(ctx, trainJob)
	if err != nil {
		return err
	}
	wanted := make(map[string]bool, len(objects))
	for _, object := range objects {
		wanted[object.GetName()] = true
		if err := c.sync(ctx, trainJob, object.(*podgroup.PodGroup), running); err != nil {
			return err
		}
	}
	if running {
		return nil
	}
	return c.remove(ctx, trainJob, func(name string) bool { return !wanted[name] })
}

// running tells whether the TrainJob has a JobSet that may have pods.
func (c *CoScheduling) running(ctx context.Context, trainJob *v1alpha1.TrainJob) (bool, error) {
	jobSet := &jobsetv1alpha2.JobSet{}
	err := c.client.Get(ctx, client.ObjectKeyFromObject(trainJob), jobSet)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting JobSet %s: %w", client.ObjectKeyFromObject(trainJob), err)
	}
	return metav1.IsControlledBy(jobSet, trainJob) && !ptr.Deref(jobSet.Spec.Suspend, false), nil
}

func (c *CoScheduling) sync(ctx context.Context, trainJob *v1alpha1.TrainJob, wanted *podgroup.PodGroup, running bool) error {
	live := &podgroup.PodGroup{}
	err := c.client.Get(ctx, client.ObjectKeyFromObject(wanted), live)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("getting PodGroup %s: %w", klog.KObj(wanted), err)
	case !metav1.IsControlledBy(live, trainJob):
		return fmt.Errorf("PodGroup %s exists and does not belong to this TrainJob", klog.KObj(live))
	case live.DeletionTimestamp != nil, running, equality.Semantic.DeepEqual(live.Spec, wanted.Spec):
		return nil
	}
	klog.FromContext(ctx).V(2).Info("Applying a PodGroup", "podGroup", klog.KObj(wanted), "minMember", wanted.Spec.MinMember)
	content, err := apiruntime.DefaultUnstructuredConverter.ToUnstructured(wanted)
	if err != nil {
		return fmt.Errorf("converting PodGroup %s: %w", klog.KObj(wanted), err)
	}
	delete(content, "status")
	return c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content}),
		client.FieldOwner(FieldOwner), client.ForceOwnership)
}

// Finish implements framework.ComponentPlugin: it deletes the TrainJob's PodGroups. One that stays would go
// on asking for the places of pods that never come.
func (c *CoScheduling) Finish(ctx context.Context, trainJob *v1alpha1.TrainJob) error {
	return c.remove(ctx, trainJob, func(string) bool { return true })
}

// remove deletes the PodGroups of a TrainJob whose names are chosen.
func (c *CoScheduling) remove(ctx context.Context, trainJob *v1alpha1.TrainJob, chosen func(name string) bool) error {
	groups := &podgroup.PodGroupList{}
	if err := c.client.List(ctx, groups, client.InNamespace(trainJob.Namespace), client.MatchingFields{OwnerIndex: string(trainJob.UID)}); err != nil {
		return fmt.Errorf("listing PodGroups: %w", err)
	}
	var errs []error
	for i := range groups.Items {
		group := &groups.Items[i]
		if group.DeletionTimestamp != nil || !chosen(group.Name) {
			continue
		}
		klog.FromContext(ctx).V(2).Info("Deleting a PodGroup", "podGroup", klog.KObj(group))
		err := c.client.Delete(ctx, group, client.Preconditions{UID: &group.UID})
		errs = append(errs, client.IgnoreNotFound(err))
	}
	return errors.Join(errs...)
}

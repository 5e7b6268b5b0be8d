package gang

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/apply"
	"github.com/muster-sched/muster/trainer/runtime/child"
)

// OwnerIndex is the name of the index of group objects by the UID of their controller.
const OwnerIndex = "trainer.metadata.controller"

// IndexOwner is the function of OwnerIndex.
func IndexOwner(object client.Object) []string {
	if owner := metav1.GetControllerOf(object); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

// Groups keeps the group objects of one backend in the cluster.
type Groups struct {
	// Client may be cached but must be indexed by OwnerIndex. Live must not be cached: through it are read groups
	// that Client does not show, where that matters.
	Client client.Client
	Live   client.Reader

	// Object and List are empty objects of the group's kind. They are copied, never filled.
	Object client.Object
	List   client.ObjectList

	// absent says that the API server does not serve the kind: there is nothing to keep.
	absent atomic.Bool
}

// Kept returns the groups that a plugin keeps.
func (g *Groups) Kept() *Groups {
	return g
}

// Absent tells whether the kind is marked as not served.
func (g *Groups) Absent() bool {
	return g.absent.Load()
}

// MarkAbsent marks the kind as not served, or as served after all: only when Client is indexed.
func (g *Groups) MarkAbsent(absent bool) {
	g.absent.Store(absent)
}

// Served asks the API server whether it serves the kind.
func (g *Groups) Served() (bool, error) {
	gvk, err := g.Client.GroupVersionKindFor(g.Object)
	if err != nil {
		return false, err
	}
	_, err = g.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking up %s: %w", gvk, err)
	}
	return true, nil
}

// CheckServed returns an error if the kind is marked as not served. It names the field of the runtime that asks for it,
// and what to do.
func (g *Groups) CheckServed(backend Backend, path *field.Path, remedy string) error {
	if !g.Absent() {
		return nil
	}
	return fmt.Errorf("%s: the API server does not serve PodGroups of %s: %s; the TrainJob goes on then", path, backend, remedy)
}

// Sync brings a TrainJob's groups to the wanted ones, and removes those of gangs that are no more. While
// the JobSet runs, its groups stay as they are, because the JobSet does so too; one that is missing is made
// again.
func (g *Groups) Sync(ctx context.Context, trainJob *v1alpha1.TrainJob, objects []client.Object) error {
	if g.Absent() && len(objects) == 0 {
		return nil
	}
	running, err := child.Running(ctx, g.Client, trainJob)
	if err != nil {
		return err
	}
	wanted := make(map[string]bool, len(objects))
	for _, object := range objects {
		wanted[object.GetName()] = true
		if err := g.sync(ctx, trainJob, object, running); err != nil {
			return err
		}
	}
	if running {
		return nil
	}
	return g.remove(ctx, trainJob, func(name string) bool { return !wanted[name] })
}

// Finish deletes a TrainJob's groups. One that stays would go on asking for the places of pods that never
// come.
func (g *Groups) Finish(ctx context.Context, trainJob *v1alpha1.TrainJob) error {
	if g.Absent() {
		return nil
	}
	return g.remove(ctx, trainJob, func(string) bool { return true })
}

func (g *Groups) sync(ctx context.Context, trainJob *v1alpha1.TrainJob, object client.Object, running bool) error {
	wanted, err := apply.Configuration(object)
	if err != nil {
		return err
	}
	name := wanted.GetKind() + " " + klog.KObj(wanted).String()
	live := g.Object.DeepCopyObject().(client.Object)
	err = g.Client.Get(ctx, client.ObjectKeyFromObject(wanted), live)
	if apierrors.IsNotFound(err) {
		klog.FromContext(ctx).V(2).Info("Creating a group", "kind", wanted.GroupVersionKind(), "group", klog.KObj(wanted))
		return apply.Create(ctx, g.Client, g.Live, wanted)
	}
	if err != nil {
		return fmt.Errorf("getting %s: %w", name, err)
	}
	// Not adopted: someone else's gang would lose its members' places, or this one take its size.
	if !metav1.IsControlledBy(live, trainJob) {
		return fmt.Errorf("%s exists and does not belong to this TrainJob", name)
	}
	if running || live.GetDeletionTimestamp() != nil {
		return nil
	}
	same, err := apply.Same(live, wanted)
	if err != nil || same {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Updating a group", "kind", wanted.GroupVersionKind(), "group", klog.KObj(wanted))
	err = apply.Apply(ctx, g.Client, wanted)
	if !apierrors.IsInvalid(err) {
		return err
	}
	// A field that cannot change. There are no pods that need the group now, and its end brings the
	// TrainJob back here.
	klog.FromContext(ctx).V(2).Info("Replacing a group", "group", klog.KObj(wanted), "reason", err.Error())
	return g.delete(ctx, live)
}

// remove deletes the groups of a TrainJob whose names are chosen.
func (g *Groups) remove(ctx context.Context, trainJob *v1alpha1.TrainJob, chosen func(name string) bool) error {
	groups := g.List.DeepCopyObject().(client.ObjectList)
	if err := g.Client.List(ctx, groups, client.InNamespace(trainJob.Namespace), client.MatchingFields{OwnerIndex: string(trainJob.UID)}); err != nil {
		return fmt.Errorf("listing groups: %w", err)
	}
	var errs []error
	if err := meta.EachListItem(groups, func(item apiruntime.Object) error {
		group := item.(client.Object)
		if group.GetDeletionTimestamp() == nil && chosen(group.GetName()) {
			klog.FromContext(ctx).V(2).Info("Deleting a group", "group", klog.KObj(group))
			errs = append(errs, g.delete(ctx, group))
		}
		return nil
	}); err != nil {
		return err
	}
	return errors.Join(errs...)
}

func (g *Groups) delete(ctx context.Context, group client.Object) error {
	uid := group.GetUID()
	return client.IgnoreNotFound(g.Client.Delete(ctx, group, client.Preconditions{UID: &uid}))
}

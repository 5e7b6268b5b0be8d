package simulation

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
	podgroupcontroller "github.com/muster-sched/muster/podgroup/controller"
)

// controller is the PodGroup controller as it runs in the scheduler's process. What it reads never lags: the
// scheduler is the one whose views do.
type controller struct {
	cluster    *Cluster
	reconciler reconcile.Reconciler
	queue      []types.NamespacedName
	queued     sets.Set[types.NamespacedName]
	dead       bool
}

// newController starts the controller with all PodGroups to look at.
func newController(c *Cluster) (*controller, error) {
	g := &controller{cluster: c, queued: sets.New[types.NamespacedName]()}
	var err error
	g.reconciler, err = podgroupcontroller.NewReconciler(groupsClient{api: c.api}, podIndex{api: c.api}, recorder{c}, c.clock,
		podgroupcontroller.Options{Rendezvous: c.options.Rendezvous})
	for _, group := range c.api.list((*v1alpha1.PodGroup)(nil)) {
		g.add(nameOf(group))
	}
	return g, err
}

func (g *controller) add(key types.NamespacedName) {
	if !g.queued.Has(key) {
		g.queued.Insert(key)
		g.queue = append(g.queue, key)
	}
}

func (g *controller) saw(pod *corev1.Pod) {
	if key, ok := podgroup.Key(pod); ok {
		g.add(key)
	}
}

// reconcile looks at the PodGroup that is first in line, and again when the reconciler asks for it.
func (g *controller) reconcile() {
	key := g.queue[0]
	g.queue = g.queue[1:]
	g.queued.Delete(key)
	result, err := g.reconciler.Reconcile(klog.NewContext(context.Background(), g.cluster.options.Logger), reconcile.Request{NamespacedName: key})
	must(err)
	if result.RequeueAfter > 0 {
		g.cluster.clock.AfterFunc(result.RequeueAfter, func() {
			if !g.dead {
				g.add(key)
			}
		})
	}
	if g.cluster.api.groups[key] != nil {
		g.cluster.tell(Event{Kind: Reconciled, Object: key})
	}
}

// podIndex is the controller's index of pods by gang.
type podIndex struct {
	cache.Indexer
	api *api
}

func (i podIndex) ByIndex(_, gang string) ([]any, error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(gang)
	if err != nil {
		return nil, err
	}
	var pods []any
	for _, pod := range i.api.podsOf(types.NamespacedName{Namespace: namespace, Name: name}) {
		pods = append(pods, pod)
	}
	return pods, nil
}

// groupsClient is how the controller reaches the API. What is not overridden is not for here and panics.
type groupsClient struct {
	ctrlclient.Client
	api *api
}

var groupResource = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "podgroups"}

func (c groupsClient) Get(_ context.Context, key types.NamespacedName, into ctrlclient.Object, _ ...ctrlclient.GetOption) error {
	group := c.api.groups[key]
	if group == nil {
		return apierrors.NewNotFound(groupResource, key.Name)
	}
	group.DeepCopyInto(into.(*v1alpha1.PodGroup))
	return nil
}

// recordAnnotations are those that make the record of a gang's rendezvous.
var recordAnnotations = []string{
	podgroup.RendezvousAttemptsAnnotation, podgroup.ReleasedAtAnnotation, podgroup.NotBeforeAnnotation,
	podgroup.GivenUpAnnotation, podgroup.AdmittedAtAnnotation,
}

// Apply sets the record of a gang's rendezvous.
func (c groupsClient) Apply(_ context.Context, o runtime.ApplyConfiguration, _ ...ctrlclient.ApplyOption) error {
	return c.apply(o, func(group, applied *v1alpha1.PodGroup) {
		for _, key := range recordAnnotations {
			delete(group.Annotations, key)
		}
		if len(applied.Annotations) > 0 && group.Annotations == nil {
			group.Annotations = map[string]string{}
		}
		maps.Copy(group.Annotations, applied.Annotations)
	})
}

// apply changes the very version of a PodGroup that the configuration names.
func (c groupsClient) apply(o runtime.ApplyConfiguration, change func(group, applied *v1alpha1.PodGroup)) error {
	applied := &v1alpha1.PodGroup{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.(runtime.Unstructured).UnstructuredContent(), applied); err != nil {
		return err
	}
	key := nameOf(applied)
	switch group := c.api.groups[key]; {
	case group == nil:
		return apierrors.NewNotFound(groupResource, key.Name)
	case applied.UID != group.UID || applied.ResourceVersion != group.ResourceVersion:
		return apierrors.NewConflict(groupResource, key.Name, fmt.Errorf("the object has been modified"))
	}
	c.api.updateGroup(key, applied.UID, func(group *v1alpha1.PodGroup) { change(group, applied) })
	return nil
}

// Delete deletes a pod that a budget would keep.
func (c groupsClient) Delete(_ context.Context, o ctrlclient.Object, options ...ctrlclient.DeleteOption) error {
	asked := (&ctrlclient.DeleteOptions{}).ApplyOptions(options)
	return c.api.deleteOnly(nameOf(o), asked.Preconditions)
}

func (c groupsClient) Status() ctrlclient.StatusWriter { return statusWriter{groups: c} }

func (c groupsClient) SubResource(name string) ctrlclient.SubResourceClient {
	if name != "eviction" {
		panic(fmt.Sprintf("simulation: subresource %s", name))
	}
	return evictions{api: c.api}
}

type statusWriter struct {
	ctrlclient.StatusWriter
	groups groupsClient
}

// Apply sets the fields of the status that are the controller's, and those of its conditions that it names.
func (w statusWriter) Apply(_ context.Context, o runtime.ApplyConfiguration, _ ...ctrlclient.SubResourceApplyOption) error {
	return w.groups.apply(o, func(group, applied *v1alpha1.PodGroup) {
		conditions := group.Status.Conditions
		for _, kind := range []string{
			v1alpha1.ConditionScheduled, v1alpha1.ConditionReady, v1alpha1.ConditionRendezvousTimedOut, v1alpha1.ConditionFinished,
		} {
			if c := meta.FindStatusCondition(applied.Status.Conditions, kind); c != nil {
				meta.SetStatusCondition(&conditions, *c)
				meta.FindStatusCondition(conditions, kind).LastTransitionTime = c.LastTransitionTime
			} else {
				meta.RemoveStatusCondition(&conditions, kind)
			}
		}
		group.Status.PodGroupStatus, group.Status.Conditions = applied.Status.PodGroupStatus, conditions
	})
}

// Patch is of a pod that a budget would keep.
func (w statusWriter) Patch(ctx context.Context, o ctrlclient.Object, patch ctrlclient.Patch, _ ...ctrlclient.SubResourcePatchOption) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	pods := podClient{client: &client{api: w.groups.api, dead: new(bool)}, namespace: o.GetNamespace()}
	_, err = pods.Patch(ctx, o.GetName(), patch.Type(), data, metav1.PatchOptions{}, "status")
	return err
}

type evictions struct {
	ctrlclient.SubResourceClient
	api *api
}

// Create evicts a pod.
func (e evictions) Create(_ context.Context, o, eviction ctrlclient.Object, _ ...ctrlclient.SubResourceCreateOption) error {
	return e.api.evict(nameOf(o), eviction.(*policyv1.Eviction).DeleteOptions.Preconditions)
}

// deleteOnly deletes a pod if it is the one that is meant.
func (a *api) deleteOnly(key types.NamespacedName, meant *metav1.Preconditions) error {
	pod, err := a.only(key, meant)
	if err == nil {
		a.deletePod(key, pod.UID)
	}
	return err
}

// only returns the pod of a name if it is the one that is meant.
func (a *api) only(key types.NamespacedName, meant *metav1.Preconditions) (*corev1.Pod, error) {
	pod := a.pods[key]
	switch {
	case pod == nil:
		return nil, notFound(key.Name)
	case meant != nil && meant.UID != nil && *meant.UID != pod.UID:
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, key.Name, fmt.Errorf("the UID in the precondition does not match"))
	}
	return pod, nil
}

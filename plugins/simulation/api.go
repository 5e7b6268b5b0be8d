package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// api is the API server with its rules, as far as scheduling knows them. An object in it never changes: a
// write puts another one in its place.
type api struct {
	clock   *Clock
	version int
	pods    map[types.NamespacedName]*corev1.Pod
	groups  map[types.NamespacedName]*v1alpha1.PodGroup
	native  map[types.NamespacedName]*schedulingv1beta1.PodGroup
	nodes   map[string]*corev1.Node
	budgets map[types.NamespacedName]*policyv1.PodDisruptionBudget
	// owned are the names of the pods of each Job.
	owned map[types.UID]map[string]bool
	// members are the names of the pods that carry a gang's label.
	members map[types.NamespacedName]map[string]bool
	// watchers are called with every change, in order.
	watchers []func(old, now object)
}

func newAPI(clock *Clock) *api {
	return &api{
		clock:   clock,
		pods:    map[types.NamespacedName]*corev1.Pod{},
		groups:  map[types.NamespacedName]*v1alpha1.PodGroup{},
		native:  map[types.NamespacedName]*schedulingv1beta1.PodGroup{},
		owned:   map[types.UID]map[string]bool{},
		nodes:   map[string]*corev1.Node{},
		budgets: map[types.NamespacedName]*policyv1.PodDisruptionBudget{},
		members: map[types.NamespacedName]map[string]bool{},
	}
}

func (a *api) nextVersion() string {
	a.version++
	return strconv.Itoa(a.version)
}

// born fills in what the API server gives a new object.
func (a *api) born(o object, kind string) {
	o.SetResourceVersion(a.nextVersion())
	o.SetUID(types.UID(kind + "-" + o.GetResourceVersion()))
	o.SetCreationTimestamp(metav1.NewTime(a.clock.Now()).Rfc3339Copy())
	o.SetGeneration(1)
}

func (a *api) changed(old, now object) {
	for _, w := range a.watchers {
		w(old, now)
	}
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (a *api) createPod(pod *corev1.Pod) *corev1.Pod {
	key := nameOf(pod)
	if a.pods[key] != nil {
		panic(fmt.Sprintf("simulation: pod %s exists", key))
	}
	a.born(pod, "pod")
	a.pods[key] = pod
	if gang, ok := podgroup.Key(pod); ok {
		if a.members[gang] == nil {
			a.members[gang] = map[string]bool{}
		}
		a.members[gang][pod.Name] = true
	}
	for _, owner := range pod.OwnerReferences {
		if a.owned[owner.UID] == nil {
			a.owned[owner.UID] = map[string]bool{}
		}
		a.owned[owner.UID][pod.Name] = true
	}
	a.changed(nil, pod)
	return pod
}

// updatePod changes a pod if it is still the one of that UID; "" is any. It reports whether it did. What change puts in
// the place of something is free to be changed, and so are the conditions of the status; nothing else that a pod points to is.
func (a *api) updatePod(key types.NamespacedName, uid types.UID, change func(*corev1.Pod)) bool {
	old := a.pods[key]
	if old == nil || uid != "" && old.UID != uid {
		return false
	}
	copied := *old
	now := &copied
	now.Status.Conditions = slices.Clone(old.Status.Conditions)
	change(now)
	sameSpec := sameSpecs(&old.Spec, &now.Spec)
	if sameSpec && now.DeletionTimestamp == old.DeletionTimestamp && apiequality.Semantic.DeepEqual(old.Status, now.Status) {
		return false
	}
	if !sameSpec {
		now.Generation++
	}
	now.ResourceVersion = a.nextVersion()
	a.pods[key] = now
	a.changed(old, now)
	return true
}

// sameSpecs compares what changes of a pod's spec once it is made: its node, and its scheduling gates.
func sameSpecs(a, b *corev1.PodSpec) bool {
	return a.NodeName == b.NodeName && slices.Equal(a.SchedulingGates, b.SchedulingGates)
}

// deletePod asks for the end of a pod. One that never ran anywhere is gone at once; another one is being
// deleted until its kubelet has stopped it.
func (a *api) deletePod(key types.NamespacedName, uid types.UID) bool {
	pod := a.pods[key]
	if pod == nil || uid != "" && pod.UID != uid {
		return false
	}
	if pod.Spec.NodeName == "" {
		a.removePod(key, pod.UID)
		return true
	}
	if pod.DeletionTimestamp != nil {
		return false
	}
	return a.updatePod(key, pod.UID, func(pod *corev1.Pod) {
		grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
		if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
			grace = *s
		}
		end := metav1.NewTime(a.clock.Now().Add(time.Duration(grace) * time.Second)).Rfc3339Copy()
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &end, &grace
	})
}

// removePod takes a pod away.
func (a *api) removePod(key types.NamespacedName, uid types.UID) bool {
	pod := a.pods[key]
	if pod == nil || pod.UID != uid {
		return false
	}
	delete(a.pods, key)
	if gang, ok := podgroup.Key(pod); ok {
		delete(a.members[gang], pod.Name)
		if len(a.members[gang]) == 0 {
			delete(a.members, gang)
		}
	}
	for _, owner := range pod.OwnerReferences {
		delete(a.owned[owner.UID], pod.Name)
		if len(a.owned[owner.UID]) == 0 {
			delete(a.owned, owner.UID)
		}
	}
	last := *pod
	last.ResourceVersion = a.nextVersion()
	a.changed(&last, nil)
	return true
}

// bind is the pods/binding subresource.
func (a *api) bind(binding *corev1.Binding) error {
	key := nameOf(binding)
	pod := a.pods[key]
	resource := schema.GroupResource{Resource: "pods"}
	switch {
	case pod == nil:
		return apierrors.NewNotFound(resource, key.Name)
	case pod.UID != binding.UID:
		return apierrors.NewConflict(resource, key.Name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s)", binding.UID, pod.UID))
	case pod.DeletionTimestamp != nil:
		return apierrors.NewConflict(resource, key.Name, fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", key.Name))
	case pod.Spec.NodeName != "":
		return apierrors.NewConflict(resource, key.Name, fmt.Errorf("pod %s is already assigned to node %q", key.Name, pod.Spec.NodeName))
	case len(pod.Spec.SchedulingGates) > 0:
		return apierrors.NewConflict(resource, key.Name, fmt.Errorf("pod %s has non-empty .spec.schedulingGates", key.Name))
	}
	a.updatePod(key, pod.UID, func(pod *corev1.Pod) {
		pod.Spec.NodeName = binding.Target.Name
		pod.Status.NominatedNodeName = ""
		setPodCondition(pod, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, metav1.NewTime(a.clock.Now()))
	})
	return nil
}

// setPodCondition sets a condition of a pod.
func setPodCondition(pod *corev1.Pod, condition corev1.PodCondition, now metav1.Time) {
	condition.LastTransitionTime = now.Rfc3339Copy()
	for i, c := range pod.Status.Conditions {
		if c.Type == condition.Type {
			if c.Status == condition.Status {
				condition.LastTransitionTime = c.LastTransitionTime
			}
			pod.Status.Conditions[i] = condition
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, condition)
}

func (a *api) createGroup(group *v1alpha1.PodGroup) {
	key := nameOf(group)
	if a.groups[key] != nil {
		panic(fmt.Sprintf("simulation: PodGroup %s exists", key))
	}
	a.born(group, "group")
	a.groups[key] = group
	a.changed(nil, group)
}

// updateGroup changes a PodGroup if it is still the one of that UID; "" is any.
func (a *api) updateGroup(key types.NamespacedName, uid types.UID, change func(*v1alpha1.PodGroup)) bool {
	old := a.groups[key]
	if old == nil || uid != "" && old.UID != uid {
		return false
	}
	now := old.DeepCopy()
	change(now)
	if apiequality.Semantic.DeepEqual(old, now) {
		return false
	}
	if !apiequality.Semantic.DeepEqual(old.Spec, now.Spec) {
		now.Generation++
	}
	now.ResourceVersion = a.nextVersion()
	a.groups[key] = now
	a.changed(old, now)
	return true
}

func (a *api) deleteGroup(key types.NamespacedName) bool {
	group := a.groups[key]
	if group == nil {
		return false
	}
	delete(a.groups, key)
	last := group.DeepCopy()
	last.ResourceVersion = a.nextVersion()
	a.changed(last, nil)
	return true
}

func (a *api) createNative(group *schedulingv1beta1.PodGroup) {
	a.born(group, "native")
	a.native[nameOf(group)] = group
	a.changed(nil, group)
}

func (a *api) deleteNative(key types.NamespacedName) bool {
	group := a.native[key]
	if group == nil {
		return false
	}
	delete(a.native, key)
	last := group.DeepCopy()
	last.ResourceVersion = a.nextVersion()
	a.changed(last, nil)
	return true
}

func (a *api) createNode(node *corev1.Node) {
	if a.nodes[node.Name] != nil {
		panic(fmt.Sprintf("simulation: node %s exists", node.Name))
	}
	a.born(node, "node")
	a.nodes[node.Name] = node
	a.changed(nil, node)
}

func (a *api) updateNode(name string, change func(*corev1.Node)) bool {
	old := a.nodes[name]
	if old == nil {
		return false
	}
	now := old.DeepCopy()
	change(now)
	if apiequality.Semantic.DeepEqual(old, now) {
		return false
	}
	now.ResourceVersion = a.nextVersion()
	a.nodes[name] = now
	a.changed(old, now)
	return true
}

func (a *api) deleteNode(name string) bool {
	node := a.nodes[name]
	if node == nil {
		return false
	}
	delete(a.nodes, name)
	last := node.DeepCopy()
	last.ResourceVersion = a.nextVersion()
	a.changed(last, nil)
	return true
}

// podsOf returns the pods of a gang by name.
func (a *api) podsOf(gang types.NamespacedName) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(a.members[gang])) {
		pods = append(pods, a.pods[types.NamespacedName{Namespace: gang.Namespace, Name: name}])
	}
	return pods
}

// watch makes a feed of what is there, and of what changes from now on until stop is called.
func watch[T object](a *api, indexer cache.Indexer, transform cache.TransformFunc, selects func(T) bool) (f *feed, list func() []object, stop func()) {
	f = newFeed(indexer, transform, func(o object) bool { return selects(o.(T)) })
	on := true
	a.watchers = append(a.watchers, func(old, now object) {
		if !on {
			return
		}
		if t, ok := now.(T); ok && now != nil {
			f.pending = append(f.pending, change{object: t})
		} else if t, ok := old.(T); ok && now == nil {
			f.pending = append(f.pending, change{object: t, deleted: true})
		}
	})
	return f, func() []object { return a.list(*new(T)) }, func() { on = false }
}

// list returns all objects of a kind by name.
func (a *api) list(kind object) []object {
	var all []object
	switch kind.(type) {
	case *corev1.Pod:
		for _, o := range a.pods {
			all = append(all, o)
		}
	case *corev1.Node:
		for _, o := range a.nodes {
			all = append(all, o)
		}
	case *policyv1.PodDisruptionBudget:
		for _, o := range a.budgets {
			all = append(all, o)
		}
	case *v1alpha1.PodGroup:
		for _, o := range a.groups {
			all = append(all, o)
		}
	case *schedulingv1beta1.PodGroup:
		for _, o := range a.native {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(x, y object) int {
		if x.GetNamespace() != y.GetNamespace() {
			if x.GetNamespace() < y.GetNamespace() {
				return -1
			}
			return 1
		}
		if x.GetName() < y.GetName() {
			return -1
		}
		return 1
	})
	return all
}

// patchPodStatus sets conditions of whatever pod has the name now, and its nominated node.
func (a *api) patchPodStatus(key types.NamespacedName, conditions []*corev1.PodCondition, nominating *fwk.NominatingInfo) {
	a.updatePod(key, "", func(pod *corev1.Pod) {
		for _, condition := range conditions {
			setPodCondition(pod, *condition, metav1.NewTime(a.clock.Now()))
		}
		if nominating.Mode() == fwk.ModeOverride {
			pod.Status.NominatedNodeName = nominating.NominatedNodeName
		}
	})
}

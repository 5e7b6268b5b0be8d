package coscheduling

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// Reasons of the PodGroup condition Unschedulable and of the events that go with it.
const (
	// ReasonUnschedulable means that the cluster has no place for the whole gang now.
	ReasonUnschedulable = "Unschedulable"
	// ReasonMembersDisagree means that the members cannot be placed as one gang, whatever the cluster.
	ReasonMembersDisagree = "MembersDisagree"
	// ReasonInvalidTopology means that annotations ask for a topology that cannot be, whatever the cluster.
	ReasonInvalidTopology = "InvalidTopology"
	// ReasonLetGo means that the gang had a plan, but a member could not keep its place.
	ReasonLetGo = "LetGo"
	// ReasonMemberLost is of an event: a gang goes on without a member, and keeps its place.
	ReasonMemberLost = "MemberLost"
	// ReasonPlaced means that all members that the gang needs have their place.
	ReasonPlaced = "Placed"
)

const (
	fieldManager = "muster-scheduler"
	// eventInterval is how long the same kind of refusal of a gang stays without another event.
	eventInterval = 5 * time.Minute
	// noteLimit is the longest note that an event may carry, and messageLimit the longest message of a
	// condition.
	noteLimit    = 1024
	messageLimit = 32768
)

// ownedConditions are the types of the conditions that the scheduler writes. They are applied together:
// server-side apply takes away what its manager no longer names.
var ownedConditions = []string{
	v1alpha1.ConditionUnschedulable, v1alpha1.ConditionReserved, v1alpha1.ConditionPreempting, v1alpha1.ConditionProvisioning,
}

// reporters is how many PodGroups are written at a time.
const reporters = 8

// reporter writes what the scheduler decided about gangs to their PodGroups, away from the
// scheduling cycle: conditions, and events when they change.
type reporter struct {
	client   dynamic.NamespaceableResourceInterface
	recorder events.EventRecorderLogger
	group    func(types.NamespacedName) *v1alpha1.PodGroup
	queue    workqueue.TypedRateLimitingInterface[types.NamespacedName]
	clock    clock.PassiveClock

	mu        sync.Mutex
	wanted    map[types.NamespacedName]map[string]report // by type of the condition
	told      map[subject]told
	written   map[subject]report // what the cache may not show yet
	complains sync.Once
}

// report is what a condition should say.
type report struct {
	status  metav1.ConditionStatus
	reason  string
	message string
}

// subject is a condition of a PodGroup.
type subject struct {
	group     types.NamespacedName
	condition string
}

// told is the last event about a condition.
type told struct {
	reason string
	at     time.Time
}

func newReporter(client dynamic.NamespaceableResourceInterface, recorder events.EventRecorderLogger, group func(types.NamespacedName) *v1alpha1.PodGroup, clock clock.PassiveClock) *reporter {
	return &reporter{
		client:   client,
		recorder: recorder,
		group:    group,
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
		clock:    clock,
		wanted:   map[types.NamespacedName]map[string]report{},
		told:     map[subject]told{},
		written:  map[subject]report{},
	}
}

// refused says on the PodGroup why its gang has no place.
func (r *reporter) refused(key types.NamespacedName, reason, message string) {
	r.say(key, v1alpha1.ConditionUnschedulable, report{metav1.ConditionTrue, reason, message})
}

// admitted says on the PodGroup that its gang has its place.
func (r *reporter) admitted(key types.NamespacedName) {
	r.say(key, v1alpha1.ConditionUnschedulable, report{metav1.ConditionFalse, ReasonPlaced, "the gang has its place"})
}

// forget drops what is known of a PodGroup that no longer exists.
func (r *reporter) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.wanted, key)
	for _, condition := range ownedConditions {
		delete(r.told, subject{key, condition})
		delete(r.written, subject{key, condition})
	}
}

// say makes a condition of a PodGroup say this, one of ownedConditions. One that was never True is not
// written to say that it is False.
func (r *reporter) say(key types.NamespacedName, condition string, w report) {
	w.message = shortened(w.message, messageLimit)
	r.mu.Lock()
	if r.wanted[key] == nil {
		r.wanted[key] = map[string]report{}
	}
	r.wanted[key][condition] = w
	r.mu.Unlock()
	r.queue.Add(key)
}

// saidOf reports whether this scheduler has said anything with a condition of a PodGroup.
func (r *reporter) saidOf(key types.NamespacedName, condition string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, said := r.wanted[key][condition]
	return said
}

// run writes with so many goroutines until the context ends.
func (r *reporter) run(ctx context.Context, writers int) {
	go func() {
		<-ctx.Done()
		r.queue.ShutDown()
	}()
	for range writers {
		go wait.UntilWithContext(ctx, func(ctx context.Context) {
			for r.next(ctx) {
			}
		}, time.Second)
	}
}

func (r *reporter) next(ctx context.Context) bool {
	key, quit := r.queue.Get()
	if quit {
		return false
	}
	defer r.queue.Done(key)
	if err := r.write(ctx, key); err != nil {
		klog.FromContext(ctx).V(2).Info("Writing a PodGroup's conditions failed; trying again", "podGroup", key, "err", err)
		r.queue.AddRateLimited(key)
		return true
	}
	r.queue.Forget(key)
	return true
}

func (r *reporter) write(ctx context.Context, key types.NamespacedName) error {
	group := r.group(key)
	if group == nil {
		r.forget(key)
		return nil
	}
	wanted, written := map[string]report{}, map[string]report{}
	r.mu.Lock()
	maps.Copy(wanted, r.wanted[key])
	for _, condition := range ownedConditions {
		if w, ok := r.written[subject{key, condition}]; ok {
			written[condition] = w
		}
	}
	r.mu.Unlock()
	conditions, changed := r.conditions(group, wanted, written)
	if len(changed) == 0 {
		return nil
	}
	for _, condition := range changed {
		r.tell(ctx, subject{key, condition}, group, wanted[condition])
	}
	if err := r.apply(ctx, group, conditions); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, condition := range changed {
		r.written[subject{key, condition}] = wanted[condition]
	}
	return nil
}

// conditions returns all of the scheduler's conditions as they should be, and the types of those that are
// not so yet.
func (r *reporter) conditions(group *v1alpha1.PodGroup, wanted, written map[string]report) (all []metav1.Condition, changed []string) {
	for _, kind := range ownedConditions {
		shown := meta.FindStatusCondition(group.Status.Conditions, kind)
		w, said := wanted[kind]
		is, known := written[kind]
		if !known && shown != nil {
			is, known = report{shown.Status, shown.Reason, shown.Message}, true
		}
		if !known && (!said || w.status == metav1.ConditionFalse) {
			continue
		}
		if !said {
			w = is
		}
		condition := metav1.Condition{
			Type: kind, Status: w.status, Reason: w.reason, Message: w.message,
			ObservedGeneration: group.Generation, LastTransitionTime: metav1.NewTime(r.clock.Now()),
		}
		if shown != nil && shown.Status == w.status {
			condition.LastTransitionTime = shown.LastTransitionTime
		}
		all = append(all, condition)
		if !known || w != is {
			changed = append(changed, kind)
		}
	}
	return all, changed
}

func (r *reporter) apply(ctx context.Context, group *v1alpha1.PodGroup, conditions []metav1.Condition) error {
	fields := make([]any, len(conditions))
	for i := range conditions {
		var err error
		if fields[i], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&conditions[i]); err != nil {
			return err
		}
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": fields}}}
	obj.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PodGroup"))
	obj.SetNamespace(group.Namespace)
	obj.SetName(group.Name)
	obj.SetUID(group.UID)
	_, err := r.client.Namespace(group.Namespace).ApplyStatus(ctx, group.Name, obj, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil // gone, or another one of its name
	case podgroup.RefusesConditions(err):
		// A CRD without status.conditions, as scheduler-plugins ships it, cannot take the conditions.
		r.complains.Do(func() {
			klog.FromContext(ctx).Error(err, "PodGroup conditions cannot be written; explanations are on events and pods only. Install Muster's PodGroup CRD to have them on the PodGroup")
		})
		return nil
	}
	return err
}

// shortened returns a text of at most so many bytes.
func shortened(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-4], "") + " ..."
}

// tell emits an event when a condition has a new reason, and at most now and then while the reason stays.
func (r *reporter) tell(ctx context.Context, about subject, group *v1alpha1.PodGroup, w report) {
	r.mu.Lock()
	last, known := r.told[about]
	now := r.clock.Now()
	again := known && last.reason == w.reason && now.Sub(last.at) < eventInterval
	if !again {
		r.told[about] = told{w.reason, now}
	}
	r.mu.Unlock()
	if again {
		return
	}
	kind := corev1.EventTypeNormal
	if about.condition == v1alpha1.ConditionUnschedulable && w.status == metav1.ConditionTrue {
		kind = corev1.EventTypeWarning
	}
	r.event(klog.FromContext(ctx), group, kind, w.reason, w.message)
}

// event emits an event about a PodGroup.
func (r *reporter) event(logger klog.Logger, group *v1alpha1.PodGroup, kind, reason, message string) {
	r.recorder.WithLogger(logger).Eventf(withKind(group), nil, kind, reason, "Scheduling", "%s", shortened(message, noteLimit))
}

// withKind is a PodGroup as an event refers to it: what informers have lacks its kind.
func withKind(group *v1alpha1.PodGroup) *v1alpha1.PodGroup {
	object := group.DeepCopy()
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PodGroup"))
	return object
}

package coscheduling

import (
	"context"
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
	"k8s.io/client-go/rest"
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

// reporter writes what the scheduler decided about gangs to their PodGroups, away from the
// scheduling cycle: the condition Unschedulable, and an event when it changes.
type reporter struct {
	client   dynamic.NamespaceableResourceInterface
	recorder events.EventRecorderLogger
	group    func(types.NamespacedName) *v1alpha1.PodGroup
	queue    workqueue.TypedRateLimitingInterface[types.NamespacedName]
	clock    clock.PassiveClock

	mu        sync.Mutex
	wanted    map[types.NamespacedName]report
	told      map[types.NamespacedName]told
	complains sync.Once
}

type report struct {
	status  metav1.ConditionStatus
	reason  string
	message string
}

// told is the last event about a gang.
type told struct {
	reason string
	at     time.Time
}

func newReporter(cfg *rest.Config, recorder events.EventRecorderLogger, group func(types.NamespacedName) *v1alpha1.PodGroup, clock clock.PassiveClock) (*reporter, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &reporter{
		client:   client.Resource(v1alpha1.GroupVersion.WithResource("podgroups")),
		recorder: recorder,
		group:    group,
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
		clock:    clock,
		wanted:   map[types.NamespacedName]report{},
		told:     map[types.NamespacedName]told{},
	}, nil
}

// refused says on the PodGroup why its gang has no place.
func (r *reporter) refused(key types.NamespacedName, reason, message string) {
	r.want(key, report{metav1.ConditionTrue, reason, shortened(message, messageLimit)})
}

// admitted says on the PodGroup that its gang has its place.
func (r *reporter) admitted(key types.NamespacedName) {
	r.want(key, report{metav1.ConditionFalse, ReasonPlaced, "the gang has its place"})
}

// forget drops what is known of a PodGroup that no longer exists.
func (r *reporter) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.wanted, key)
	delete(r.told, key)
}

func (r *reporter) want(key types.NamespacedName, w report) {
	r.mu.Lock()
	r.wanted[key] = w
	r.mu.Unlock()
	r.queue.Add(key)
}

func (r *reporter) run(ctx context.Context) {
	go func() {
		<-ctx.Done()
		r.queue.ShutDown()
	}()
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for r.next(ctx) {
		}
	}, time.Second)
}

func (r *reporter) next(ctx context.Context) bool {
	key, quit := r.queue.Get()
	if quit {
		return false
	}
	defer r.queue.Done(key)
	if err := r.write(ctx, key); err != nil {
		klog.FromContext(ctx).V(2).Info("Writing a PodGroup's condition failed; trying again", "podGroup", key, "err", err)
		r.queue.AddRateLimited(key)
		return true
	}
	r.queue.Forget(key)
	return true
}

func (r *reporter) write(ctx context.Context, key types.NamespacedName) error {
	r.mu.Lock()
	w, ok := r.wanted[key]
	r.mu.Unlock()
	group := r.group(key)
	if group == nil {
		r.forget(key)
		return nil
	}
	if !ok {
		return nil
	}
	last := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionUnschedulable)
	if last == nil && w.status == metav1.ConditionFalse || last != nil && last.Status == w.status && last.Reason == w.reason && last.Message == w.message {
		return nil
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionUnschedulable, Status: w.status, Reason: w.reason, Message: w.message,
		ObservedGeneration: group.Generation, LastTransitionTime: metav1.NewTime(r.clock.Now()),
	}
	if last != nil && last.Status == w.status {
		condition.LastTransitionTime = last.LastTransitionTime
	}
	r.tell(ctx, key, group, w)
	return r.apply(ctx, group, condition)
}

func (r *reporter) apply(ctx context.Context, group *v1alpha1.PodGroup, condition metav1.Condition) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&condition)
	if err != nil {
		return err
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{fields}}}}
	obj.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PodGroup"))
	obj.SetNamespace(group.Namespace)
	obj.SetName(group.Name)
	obj.SetUID(group.UID)
	_, err = r.client.Namespace(group.Namespace).ApplyStatus(ctx, group.Name, obj, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil // gone, or another one of its name
	case podgroup.RefusesConditions(err):
		// A CRD without status.conditions, as scheduler-plugins ships it, cannot take the condition.
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

// tell emits an event when a gang is refused for a new kind of reason, and at most now and then
// while the reason stays.
func (r *reporter) tell(ctx context.Context, key types.NamespacedName, group *v1alpha1.PodGroup, w report) {
	r.mu.Lock()
	last, known := r.told[key]
	now := r.clock.Now()
	again := known && last.reason == w.reason && now.Sub(last.at) < eventInterval
	if !again {
		r.told[key] = told{w.reason, now}
	}
	r.mu.Unlock()
	if again {
		return
	}
	kind, note := corev1.EventTypeWarning, w.message
	if w.status == metav1.ConditionFalse {
		kind = corev1.EventTypeNormal
	}
	note = shortened(note, noteLimit)
	subject := group.DeepCopy()
	subject.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PodGroup"))
	r.recorder.WithLogger(klog.FromContext(ctx)).Eventf(subject, nil, kind, w.reason, "Scheduling", "%s", note)
}

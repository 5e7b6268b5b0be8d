package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	upstream "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/muster-sched/muster/podgroup"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// oursCRD is the file of Muster's definition of PodGroup.
var oursCRD = filepath.Join("..", "..", "manifests", "crds", "scheduling.x-k8s.io_podgroups.yaml")

// upstreamCRD returns the file of scheduler-plugins' definition, which has no conditions.
func upstreamCRD(t *testing.T) string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/scheduler-plugins").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), "manifests", "coscheduling", "crd.yaml")
}

// env is a reconciler with a fake API server that knows the fields of PodGroup from a definition, as a real
// one does: server-side apply merges, owns and refuses as the schema says.
type env struct {
	t          *testing.T
	ctx        context.Context
	client     client.Client
	crd        string
	groups     []client.Object
	pods       cache.Indexer
	clock      *clocktesting.FakePassiveClock
	recorder   *events.FakeRecorder
	opts       Options
	reconciler *reconciler

	// applied counts the requests to apply, by subresource.
	applied map[string]int
	// recorded are the annotations that make the record of group "gang" of namespace "ns".
	recorded map[string]string
	// evicted and deleted are the pods that were asked to go, by name, and refuse says why one is not evicted.
	evicted, deleted []string
	// disrupted are those of the deleted that had the condition DisruptionTarget before, and what it said.
	disrupted      []string
	refuseEviction func(name string) error
	// beforeApply runs before a request to apply reaches the API server.
	beforeApply func()
}

type envOption func(*env)

func withOptions(opts Options) envOption { return func(e *env) { e.opts = opts } }

func withCRD(path string) envOption { return func(e *env) { e.crd = path } }

func withGroups(groups ...*v1alpha1.PodGroup) envOption {
	return func(e *env) {
		for _, group := range groups {
			e.groups = append(e.groups, group)
		}
	}
}

func newEnv(t *testing.T, options ...envOption) *env {
	t.Helper()
	e := &env{
		t:           t,
		ctx:         t.Context(),
		crd:         oursCRD,
		pods:        podgroup.NewPodInformer(kubefake.NewClientset(), 0).GetIndexer(),
		clock:       clocktesting.NewFakePassiveClock(noon),
		recorder:    events.NewFakeRecorder(100),
		applied:     map[string]int{},
		beforeApply: func() {},

		refuseEviction: func(string) error { return nil },
	}
	for _, option := range options {
		option(e)
	}
	e.useCRD(e.crd, e.groups...)
	e.restart()
	return e
}

// useCRD makes the API server one that knows PodGroups by this definition.
func (e *env) useCRD(path string, objects ...client.Object) {
	e.t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), policyv1.AddToScheme(scheme)); err != nil {
		e.t.Fatal(err)
	}
	e.client = fake.NewClientBuilder().
		WithScheme(scheme).
		WithTypeConverters(typeConverter(e.t, path)).
		WithStatusSubresource(&v1alpha1.PodGroup{}).
		WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{
			Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
				e.applied[""]++
				e.beforeApply()
				options := &client.ApplyOptions{}
				if options.ApplyOptions(opts); options.FieldManager == RecordFieldOwner {
					return e.applyRecord(ctx, c, obj)
				}
				return c.Apply(ctx, obj, opts...)
			},
			SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
				e.applied[sub]++
				e.beforeApply()
				applied, err := json.Marshal(obj)
				if err == nil {
					err = c.SubResource(sub).Apply(ctx, obj, opts...)
				}
				if err != nil {
					return err
				}
				return e.applyZeros(ctx, c, applied)
			},
			SubResourceCreate: e.evictPod,
			SubResourcePatch:  e.patchPodStatus,
			Delete:            e.deleteObject,
		}).
		Build()
}

// applyRecord does what server-side apply does with annotations, which the fake API server does not take away again.
func (e *env) applyRecord(ctx context.Context, c client.Client, obj runtime.ApplyConfiguration) error {
	data, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	applied, group := &v1alpha1.PodGroup{}, &v1alpha1.PodGroup{}
	if err := json.Unmarshal(data, applied); err != nil {
		return err
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(applied), group); err != nil {
		return err
	}
	group.ResourceVersion = applied.ResourceVersion
	for key := range e.recorded {
		delete(group.Annotations, key)
	}
	if group.Annotations == nil {
		group.Annotations = map[string]string{}
	}
	maps.Copy(group.Annotations, applied.Annotations)
	e.recorded = applied.Annotations
	return c.Update(ctx, group)
}

// applyZeros does what the fake API server leaves out: it takes values that are applied as zero for fields that are not
// applied, and keeps them once the object was written as a whole.
func (e *env) applyZeros(ctx context.Context, c client.Client, data []byte) error {
	applied, group := &v1alpha1.PodGroup{}, &v1alpha1.PodGroup{}
	if err := json.Unmarshal(data, applied); err != nil {
		return err
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(applied), group); err != nil {
		return err
	}
	before := group.DeepCopy()
	group.Status.PodGroupStatus = applied.Status.PodGroupStatus
	if equality.Semantic.DeepEqual(before, group) {
		return nil
	}
	return c.Status().Patch(ctx, group, client.MergeFrom(before))
}

// evictPod stands in for the eviction subresource.
func (e *env) evictPod(_ context.Context, _ client.Client, sub string, obj, subResource client.Object, _ ...client.SubResourceCreateOption) error {
	eviction, ok := subResource.(*policyv1.Eviction)
	if sub != "eviction" || !ok || eviction.Name != obj.GetName() || eviction.Namespace != obj.GetNamespace() {
		e.t.Fatalf("%s of %s/%s got a %T", sub, obj.GetNamespace(), obj.GetName(), subResource)
	}
	if err := e.refuseEviction(obj.GetName()); err != nil {
		return err
	}
	return e.takeAway(&e.evicted, obj, eviction.DeleteOptions.Preconditions.UID)
}

func (e *env) deleteObject(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
	if _, isPod := obj.(*corev1.Pod); !isPod {
		return c.Delete(ctx, obj, opts...)
	}
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	if pod, found, _ := e.pods.GetByKey(obj.GetNamespace() + "/" + obj.GetName()); found {
		for _, c := range pod.(*corev1.Pod).Status.Conditions {
			if c.Type == corev1.DisruptionTarget {
				e.disrupted = append(e.disrupted, fmt.Sprintf("%s %s %s", obj.GetName(), c.Status, c.Reason))
			}
		}
	}
	return e.takeAway(&e.deleted, obj, options.Preconditions.UID)
}

// patchPodStatus does what the API server does with a patch of a pod's status.
func (e *env) patchPodStatus(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	if _, isPod := obj.(*corev1.Pod); !isPod {
		return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
	}
	data, err := patch.Data(obj)
	if err != nil || sub != "status" || patch.Type() != types.StrategicMergePatchType {
		e.t.Fatalf("%s of pod %s is patched with %s %s (%v)", sub, obj.GetName(), patch.Type(), data, err)
	}
	stored, found, err := e.pods.GetByKey(obj.GetNamespace() + "/" + obj.GetName())
	if err != nil || !found {
		return apierrors.NewNotFound(corev1.Resource("pods"), obj.GetName())
	}
	before, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	after, err := strategicpatch.StrategicMergePatch(before, data, &corev1.Pod{})
	if err != nil {
		return err
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(after, pod); err != nil {
		return err
	}
	if pod.UID != stored.(*corev1.Pod).UID {
		return apierrors.NewConflict(corev1.Resource("pods"), obj.GetName(), errors.New("another pod"))
	}
	return e.pods.Update(pod)
}

// takeAway removes a pod, if it is the one that is meant, and notes its name.
func (e *env) takeAway(names *[]string, obj client.Object, uid *types.UID) error {
	pod, found, err := e.pods.GetByKey(obj.GetNamespace() + "/" + obj.GetName())
	if err != nil || !found {
		return apierrors.NewNotFound(corev1.Resource("pods"), obj.GetName())
	}
	if uid == nil || pod.(*corev1.Pod).UID != *uid {
		return apierrors.NewConflict(corev1.Resource("pods"), obj.GetName(), errors.New("another pod"))
	}
	*names = append(*names, obj.GetName())
	return e.pods.Delete(pod)
}

// restart replaces the reconciler by one without memory.
func (e *env) restart() {
	e.reconciler = newReconciler(e.client, e.pods, e.recorder, e.clock, e.opts)
}

// typeConverter is the one that an API server makes from the definition for server-side apply.
func typeConverter(t *testing.T, path string) managedfields.TypeConverter {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		t.Fatal(err)
	}
	openAPI, err := builder.BuildOpenAPIV3(crd, crd.Spec.Versions[0].Name, builder.Options{})
	if err != nil {
		t.Fatal(err)
	}
	converter, err := managedfields.NewTypeConverter(openAPI.Components.Schemas, false)
	if err != nil {
		t.Fatal(err)
	}
	return converter
}

// reconcile reconciles the group "gang" of a namespace.
func (e *env) reconcile(namespace string) reconcile.Result {
	e.t.Helper()
	result, err := e.reconciler.Reconcile(e.ctx, requestFor(namespace))
	if err != nil {
		e.t.Fatal(err)
	}
	return result
}

// requestFor asks for the group "gang" of a namespace.
func requestFor(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "gang"}}
}

// settle reconciles the group of namespace "ns" until nothing is written any more.
func (e *env) settle() reconcile.Result {
	e.t.Helper()
	for range 10 {
		before := e.applied[""] + e.applied["status"]
		result := e.reconcile("ns")
		if e.applied[""]+e.applied["status"] == before {
			return result
		}
	}
	e.t.Fatal("the controller does not stop writing")
	return reconcile.Result{}
}

// group returns the group "gang" of a namespace as it is stored.
func (e *env) group(namespace string) *v1alpha1.PodGroup {
	e.t.Helper()
	group := &v1alpha1.PodGroup{}
	if err := e.client.Get(e.t.Context(), types.NamespacedName{Namespace: namespace, Name: "gang"}, group); err != nil {
		e.t.Fatal(err)
	}
	return group
}

// setPods makes these the pods of all gangs.
func (e *env) setPods(pods ...*corev1.Pod) {
	e.t.Helper()
	var objects []any
	for _, pod := range pods {
		objects = append(objects, pod)
	}
	if err := e.pods.Replace(objects, ""); err != nil {
		e.t.Fatal(err)
	}
}

// refuse is the scheduler plugin's write: it applies the Unschedulable condition.
func (e *env) refuse(message string) {
	e.t.Helper()
	group := e.group("ns")
	object := identify(group)
	object.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": v1alpha1.ConditionUnschedulable, "status": "True", "reason": "NotEnoughResources", "message": message,
		"lastTransitionTime": noon.Format(time.RFC3339),
	}}}
	err := e.client.Status().Apply(e.t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("muster-scheduler"), client.ForceOwnership)
	if err != nil {
		e.t.Fatal(err)
	}
	e.applied["status"]--
}

// events returns the events recorded since the last call.
func (e *env) events() []string {
	var recorded []string
	for {
		select {
		case event := <-e.recorder.Events:
			recorded = append(recorded, event)
		default:
			return recorded
		}
	}
}

func (e *env) wantEvents(when string, want ...string) {
	e.t.Helper()
	if got := e.events(); !slices.Equal(got, want) {
		e.t.Errorf("%s: events are %q, want %q", when, got, want)
	}
}

// condition describes a condition of the group of namespace "ns": status, reason and message.
func (e *env) condition(conditionType string) string {
	e.t.Helper()
	condition := meta.FindStatusCondition(e.group("ns").Status.Conditions, conditionType)
	if condition == nil {
		return "absent"
	}
	return fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
}

func newGroup(namespace string, minMember int32) *v1alpha1.PodGroup {
	return &v1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: "gang", Namespace: namespace, UID: types.UID("uid-" + namespace), Generation: 1},
		Spec:       upstream.PodGroupSpec{MinMember: minMember},
	}
}

type podOption func(*corev1.Pod)

func running(pod *corev1.Pod) {
	pod.Spec.NodeName, pod.Status.Phase = "node-1", corev1.PodRunning
}

// ready is a member that runs and is ready.
func ready(pod *corev1.Pod) {
	running(pod)
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
}

// boundAt is when the API server noted that the pod got its node.
func boundAt(at time.Time) podOption {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)})
	}
}

func succeeded(pod *corev1.Pod) {
	pod.Spec.NodeName, pod.Status.Phase = "node-1", corev1.PodSucceeded
}

func failed(pod *corev1.Pod) {
	pod.Spec.NodeName, pod.Status.Phase = "node-1", corev1.PodFailed
}

func ownedBy(kind, name string) podOption {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "batch/v1", Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: ptr.To(true)}}
	}
}

// newPods returns n pods of the gang "gang" of a namespace.
func newPods(namespace string, n int, options ...podOption) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range n {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("pod-%d", i), Namespace: namespace, UID: types.UID(fmt.Sprintf("uid-%s-%d", namespace, i)),
				Labels: map[string]string{v1alpha1.GroupLabel: "gang"},
			},
			Spec:   corev1.PodSpec{SchedulerName: "muster"},
			Status: corev1.PodStatus{Phase: corev1.PodPending},
		}
		for _, option := range options {
			option(pod)
		}
		pods = append(pods, pod)
	}
	return pods
}

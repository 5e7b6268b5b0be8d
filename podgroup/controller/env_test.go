package controller

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
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
	if err := v1alpha1.AddToScheme(scheme); err != nil {
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
				return c.Apply(ctx, obj, opts...)
			},
			SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
				e.applied[sub]++
				e.beforeApply()
				return c.SubResource(sub).Apply(ctx, obj, opts...)
			},
		}).
		Build()
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
	result, err := e.reconciler.Reconcile(e.ctx, reconcile.Request{
		NamespacedName: types.NamespacedName{Namespace: namespace, Name: "gang"}})
	if err != nil {
		e.t.Fatal(err)
	}
	return result
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

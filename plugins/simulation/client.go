package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedschedulingv1beta1 "k8s.io/client-go/kubernetes/typed/scheduling/v1beta1"

	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// errDead is what a dead process would get from the API, if it still asked.
var errDead = fmt.Errorf("the process is dead")

// client is how a process reaches the API. What is not overridden is not for here and panics.
type client struct {
	kubernetes.Interface
	api  *api
	dead *bool
	// evicts is told of the pods that are asked to go.
	evicts func(types.UID)
}

func (c *client) CoreV1() typedcorev1.CoreV1Interface { return coreClient{client: c} }

func (c *client) SchedulingV1beta1() typedschedulingv1beta1.SchedulingV1beta1Interface {
	return schedulingClient{}
}

// schedulingClient takes what the scheduler writes about native pod groups. Nothing here reads it.
type schedulingClient struct {
	typedschedulingv1beta1.SchedulingV1beta1Interface
}

func (schedulingClient) PodGroups(string) typedschedulingv1beta1.PodGroupInterface {
	return nativeClient{}
}

type nativeClient struct {
	typedschedulingv1beta1.PodGroupInterface
}

func (nativeClient) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*schedulingv1beta1.PodGroup, error) {
	return &schedulingv1beta1.PodGroup{}, nil
}

type coreClient struct {
	typedcorev1.CoreV1Interface
	client *client
}

func (c coreClient) Pods(namespace string) typedcorev1.PodInterface {
	return podClient{client: c.client, namespace: namespace}
}

// Events is asked for by a part of the scheduler that publishes none here.
func (c coreClient) Events(string) typedcorev1.EventInterface { return nil }

type podClient struct {
	typedcorev1.PodInterface
	client    *client
	namespace string
}

func (c podClient) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Pod, error) {
	if *c.client.dead {
		return nil, errDead
	}
	if pod := c.client.api.pods[types.NamespacedName{Namespace: c.namespace, Name: name}]; pod != nil {
		return pod.DeepCopy(), nil
	}
	return nil, notFound(name)
}

func (c podClient) Delete(_ context.Context, name string, options metav1.DeleteOptions) error {
	if *c.client.dead {
		return errDead
	}
	key := types.NamespacedName{Namespace: c.namespace, Name: name}
	if len(options.DryRun) > 0 {
		_, err := c.client.api.only(key, options.Preconditions)
		return err
	}
	if p := options.Preconditions; p != nil && p.UID != nil {
		c.client.evicts(*p.UID)
	}
	return c.client.api.deleteOnly(key, options.Preconditions)
}

// Patch is of the status.
func (c podClient) Patch(_ context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, subresources ...string) (*corev1.Pod, error) {
	if kind != types.StrategicMergePatchType || !slices.Equal(subresources, []string{"status"}) {
		panic(fmt.Sprintf("simulation: a %s of %v of pod %s", kind, subresources, name))
	}
	if *c.client.dead {
		return nil, errDead
	}
	key := types.NamespacedName{Namespace: c.namespace, Name: name}
	old := c.client.api.pods[key]
	if old == nil {
		return nil, notFound(name)
	}
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, data, &corev1.Pod{})
	if err != nil {
		return nil, err
	}
	patched := &corev1.Pod{}
	if err := json.Unmarshal(after, patched); err != nil {
		return nil, err
	}
	if patched.UID != old.UID {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, fmt.Errorf("the UID does not match"))
	}
	c.client.api.updatePod(key, old.UID, func(pod *corev1.Pod) { pod.Status = patched.Status })
	return c.client.api.pods[key], nil
}

func notFound(name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
}

// groupClient writes the status of PodGroups.
type groupClient struct {
	dynamic.NamespaceableResourceInterface
	client *client
}

func (c groupClient) Namespace(namespace string) dynamic.ResourceInterface {
	return groupsIn{client: c.client, namespace: namespace}
}

type groupsIn struct {
	dynamic.ResourceInterface
	client    *client
	namespace string
}

// ApplyStatus sets the conditions that the object names. The others stay: no writer takes back one that it
// applied once.
func (c groupsIn) ApplyStatus(_ context.Context, name string, obj *unstructured.Unstructured, _ metav1.ApplyOptions) (*unstructured.Unstructured, error) {
	if *c.client.dead {
		return nil, errDead
	}
	var applied v1alpha1.PodGroup
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &applied); err != nil {
		return nil, err
	}
	key := types.NamespacedName{Namespace: c.namespace, Name: name}
	resource := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "podgroups"}
	switch group := c.client.api.groups[key]; {
	case group == nil:
		return nil, apierrors.NewNotFound(resource, name)
	case applied.UID != "" && applied.UID != group.UID:
		return nil, apierrors.NewConflict(resource, name, fmt.Errorf("the UID does not match"))
	}
	c.client.api.updateGroup(key, "", func(group *v1alpha1.PodGroup) {
		for _, condition := range applied.Status.Conditions {
			meta.SetStatusCondition(&group.Status.Conditions, condition)
		}
	})
	return obj, nil
}

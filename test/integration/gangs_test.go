package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	podresources "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	podgroups "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	trainer "github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// withNativeGangs makes this binary's cluster one that serves Kubernetes' own PodGroups, with Kubernetes' own
// scheduler. The gates are process-wide, so that such a cluster needs a process of its own.
const withNativeGangs = "MUSTER_TEST_NATIVE_GANGS"

// startNativeScheduler starts kube-scheduler, and Muster's controllers without its scheduler.
func startNativeScheduler(ctx context.Context) error {
	if _, err := cluster.StartDefaultScheduler(ctx, controlplane.SchedulerConfig{}); err != nil {
		return err
	}
	_, err := cluster.StartScheduler(ctx, controlplane.SchedulerConfig{Args: []string{"--scheduler=false"}})
	return err
}

// volcanoCRD is the part of Volcano's PodGroup that the trainer writes, and a queue by default as
// Volcano's webhook sets it.
func volcanoCRD() *apiextensionsv1.CustomResourceDefinition {
	field := func(kind string) apiextensionsv1.JSONSchemaProps { return apiextensionsv1.JSONSchemaProps{Type: kind} }
	quantity := apiextensionsv1.JSONSchemaProps{XIntOrString: true, AnyOf: []apiextensionsv1.JSONSchemaProps{field("integer"), field("string")}}
	queue := field("string")
	queue.Default = &apiextensionsv1.JSON{Raw: []byte(`"default"`)}
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "podgroups.scheduling.volcano.sh"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "scheduling.volcano.sh", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "podgroups", Singular: "podgroup", Kind: "PodGroup", ListKind: "PodGroupList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1beta1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {
						Type: "object",
						Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"minMember": field("integer"), "queue": queue, "priorityClassName": field("string"),
							"minResources": {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &quantity}},
							"networkTopology": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
								"mode": field("string"), "highestTierAllowed": field("integer"),
							}},
						},
					}},
				}},
			}},
		},
	}
}

// runtimeOf makes a runtime, in the scene's namespace, of one replicated job for the nodes.
func (s *scene) runtimeOf(name string, change func(*trainer.TrainingRuntimeSpec)) trainer.RuntimeRef {
	s.Helper()
	node := jobset.ReplicatedJob{Name: "node", Replicas: 1}
	node.Template.Labels = map[string]string{trainer.AncestorLabel: trainer.AncestorTrainer}
	node.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: trainer.NodeContainer, Image: "example"}}
	runtime := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace}}
	runtime.Spec.MLPolicy = &trainer.MLPolicy{NumNodes: ptr.To[int32](1)}
	runtime.Spec.Template.Spec.ReplicatedJobs = []jobset.ReplicatedJob{node}
	change(&runtime.Spec)
	s.must(kube.Create(s.ctx, runtime))
	return trainer.RuntimeRef{Name: name, Kind: ptr.To(trainer.TrainingRuntimeKind)}
}

func gangPolicy(spec *trainer.TrainingRuntimeSpec) {
	spec.PodGroupPolicy = &trainer.PodGroupPolicy{PodGroupPolicySource: trainer.PodGroupPolicySource{Coscheduling: &trainer.CoschedulingPodGroupPolicySource{}}}
}

// minResources says what the API server then makes of the pods, whatever the namespace adds to them.
func TestMinResourcesEqualThePods(t *testing.T) {
	s := newScene(t)
	s.must(kube.Create(s.ctx, &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "defaults", Namespace: s.namespace},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer,
			// A default limit alone is a default request too.
			Default: corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("1Gi")},
		}}},
	}))
	ref := s.runtimeOf("sidecars", func(spec *trainer.TrainingRuntimeSpec) {
		gangPolicy(spec)
		pod := &spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
		pod.InitContainers = []corev1.Container{
			{Name: "sidecar", Image: "example", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
			{Name: "fetch", Image: "example", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"memory": resource.MustParse("8Gi")},
				Limits: corev1.ResourceList{"memory": resource.MustParse("8Gi")}}},
		}
	})
	job := s.trainJob("llm", "sidecars", 3, 8)
	job.Spec.RuntimeRef = ref
	s.must(kube.Create(s.ctx, job))
	s.awaitTrainPods("llm", 3, false)

	want := corev1.ResourceList{}
	for _, pod := range s.trainPods("llm") {
		for name, quantity := range podresources.PodRequests(&pod, podresources.PodResourcesOptions{}) {
			sum := want[name]
			sum.Add(quantity)
			want[name] = sum
		}
	}
	group := &podgroups.PodGroup{}
	s.must(kube.Get(s.ctx, s.key("llm"), group))
	if len(want) != 3 || len(want) != len(group.Spec.MinResources) {
		t.Errorf("minResources = %v, the pods request %v", group.Spec.MinResources, want)
	}
	for name, quantity := range want {
		if got := group.Spec.MinResources[name]; got.Cmp(quantity) != 0 {
			t.Errorf("minResources has %s %s, the pods request %s", got.String(), name, quantity.String())
		}
	}
}

// A PodGroup of someone else's is neither used nor changed, and the TrainJob goes on when it is gone.
func TestForeignPodGroupIsNotAdopted(t *testing.T) {
	s := newScene(t)
	s.nodes(2, controlplane.NodeShape{})
	foreign := s.group("llm", 7)
	ref := s.runtimeOf("gang", gangPolicy)
	job := s.trainJob("llm", "gang", 2, 8)
	job.Spec.RuntimeRef = ref
	s.must(kube.Create(s.ctx, job))
	words := "PodGroup " + s.namespace + "/llm exists and does not belong to this TrainJob"
	s.awaitTrainJob("llm", trainer.TrainJobBlocked)
	s.must(kube.Get(s.ctx, s.key("llm"), job))
	if message := job.Status.Conditions[0].Message; !strings.Contains(message, words) {
		t.Errorf("message = %q", message)
	}
	s.awaitState("llm", "Blocked")
	s.await("event", func() string {
		events := &corev1.EventList{}
		s.must(kube.List(s.ctx, events, client.InNamespace(s.namespace)))
		for _, event := range events.Items {
			if event.InvolvedObject.Kind == trainer.TrainJobKind && strings.Contains(event.Message, words) {
				return ""
			}
		}
		return fmt.Sprintf("none of %d", len(events.Items))
	})
	if err := kube.Get(s.ctx, s.key("llm"), &jobset.JobSet{}); !apierrors.IsNotFound(err) {
		t.Errorf("there is a JobSet without its gang: %v", err)
	}
	live := &podgroups.PodGroup{}
	s.must(kube.Get(s.ctx, s.key("llm"), live))
	if live.Spec.MinMember != 7 || len(live.OwnerReferences) != 0 || live.UID != foreign.UID {
		t.Errorf("the PodGroup was changed: %+v", live)
	}
	s.must(kube.Delete(s.ctx, live))
	s.awaitTrainPods("llm", 2, true)
	s.awaitState("llm", "")
}

// A runtime for Volcano makes Volcano's groups, and removes them when the training is over.
func TestVolcanoGroups(t *testing.T) {
	s := newScene(t)
	ref := s.runtimeOf("volcano", func(spec *trainer.TrainingRuntimeSpec) {
		spec.PodGroupPolicy = &trainer.PodGroupPolicy{PodGroupPolicySource: trainer.PodGroupPolicySource{Volcano: &trainer.VolcanoPodGroupPolicySource{
			NetworkTopology: &trainer.VolcanoNetworkTopology{Mode: "soft"},
		}}}
		spec.Template.Annotations = map[string]string{"scheduling.volcano.sh/queue-name": "research"}
		spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.SchedulerName = "volcano"
	})
	job := s.trainJob("llm", "volcano", 4, 8)
	job.Spec.RuntimeRef = ref
	job.Spec.Suspend = ptr.To(true)
	s.must(kube.Create(s.ctx, job))
	group := &unstructured.Unstructured{}
	group.SetAPIVersion("scheduling.volcano.sh/v1beta1")
	group.SetKind("PodGroup")
	s.await("group", func() string {
		if err := kube.Get(s.ctx, s.key("llm"), group); err != nil {
			return err.Error()
		}
		return ""
	})
	want := `map[minMember:4 minResources:map[nvidia.com/gpu:32] networkTopology:map[highestTierAllowed:1 mode:soft] queue:research]`
	if got := fmt.Sprint(group.Object["spec"]); got != want || !metav1.IsControlledBy(group, job) {
		t.Errorf("group = %s, want %s", got, want)
	}
	before := group.GetResourceVersion()
	s.suspend(job, false)
	s.awaitTrainPods("llm", 4, false)
	for _, pod := range s.trainPods("llm") {
		if pod.Annotations["scheduling.k8s.io/group-name"] != "llm" || pod.Spec.SchedulerName != "volcano" {
			t.Errorf("pod %s: annotations %v, scheduler %s", pod.Name, pod.Annotations, pod.Spec.SchedulerName)
		}
	}
	s.must(kube.Get(s.ctx, s.key("llm"), group))
	if group.GetResourceVersion() != before {
		t.Error("the group was written again though nothing about it changed")
	}
	// It ends, by its deadline for instance.
	s.must(kube.Delete(s.ctx, group))
	s.await("group that was deleted", func() string {
		if err := kube.Get(s.ctx, s.key("llm"), group); err != nil {
			return err.Error()
		}
		return ""
	})
	for _, pod := range s.trainPods("llm") {
		s.setPhase(pod.Name, corev1.PodSucceeded)
	}
	s.awaitTrainJob("llm", trainer.TrainJobComplete)
	s.await("end of the group", func() string {
		if err := kube.Get(s.ctx, s.key("llm"), group); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("it is there: %v", err)
		}
		return ""
	})
}

// Where the API server does not serve them, a TrainJob that asks for native groups says so, and waits.
func TestNativeGroupsThatAreNotServed(t *testing.T) {
	s := newScene(t)
	job := s.trainJob("llm", "", 2, 8)
	job.Spec.RuntimeRef = s.runtimeOf("native", askForNativeGroups)
	s.must(kube.Create(s.ctx, job))
	s.awaitTrainJob("llm", trainer.TrainJobBlocked)
	s.must(kube.Get(s.ctx, s.key("llm"), job))
	if message := job.Status.Conditions[0].Message; !strings.Contains(message, "spec.template.metadata.annotations[trainer.muster.dev/pod-group-api]") ||
		!strings.Contains(message, "--runtime-config=scheduling.k8s.io/v1beta1=true") {
		t.Errorf("message = %q", message)
	}
}

func askForNativeGroups(spec *trainer.TrainingRuntimeSpec) {
	spec.Template.Annotations = map[string]string{"trainer.muster.dev/pod-group-api": "scheduling.k8s.io/v1beta1"}
}

// TestNativeGroups runs TestNativeTrainJob in a process whose cluster serves native groups.
func TestNativeGroups(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), binary, "-test.v", "-test.run", "^TestNativeTrainJob$")
	command.Env = append(os.Environ(), withNativeGangs+"=1")
	if log := os.Getenv("MUSTER_TEST_LOG"); log != "" {
		command.Env = append(command.Env, "MUSTER_TEST_LOG="+log+".native")
	}
	output, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS: TestNativeTrainJob") {
		t.Errorf("%v\n%s", err, output)
	}
}

// The native groups of a TrainJob, scheduled by kube-scheduler itself: all pods or none, and no group of the
// Job controller's beside them.
func TestNativeTrainJob(t *testing.T) {
	if os.Getenv(withNativeGangs) == "" {
		t.Skip("needs a cluster with native gangs; TestNativeGroups runs it")
	}
	s := newScene(t)
	s.nodes(3, controlplane.NodeShape{})
	job := s.trainJob("llm", "", 4, 8)
	job.Spec.RuntimeRef = s.runtimeOf("native", askForNativeGroups)
	s.must(kube.Create(s.ctx, job))
	s.awaitTrainPods("llm", 4, false)
	group := &schedulingv1beta1.PodGroup{}
	s.must(kube.Get(s.ctx, s.key("llm"), group))
	if gang := group.Spec.SchedulingPolicy.Gang; gang == nil || gang.MinCount != 4 || group.Spec.DisruptionMode == nil || group.Spec.DisruptionMode.All == nil {
		t.Errorf("spec = %+v", group.Spec)
	}
	s.await("verdict of kube-scheduler", func() string {
		for _, pod := range s.trainPods("llm") {
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable {
					return ""
				}
			}
		}
		return "none"
	})
	for _, pod := range s.trainPods("llm") {
		if pod.Spec.NodeName != "" || pod.Spec.SchedulingGroup == nil || ptr.Deref(pod.Spec.SchedulingGroup.PodGroupName, "") != "llm" {
			t.Errorf("pod %s is on node %q, in group %v", pod.Name, pod.Spec.NodeName, pod.Spec.SchedulingGroup)
		}
	}
	s.nodes(1, controlplane.NodeShape{})
	s.awaitTrainPods("llm", 4, true)
	groups := &schedulingv1beta1.PodGroupList{}
	s.must(kube.List(s.ctx, groups, client.InNamespace(s.namespace)))
	if len(groups.Items) != 1 {
		t.Errorf("%d groups, want the TrainJob's alone", len(groups.Items))
	}

	for _, pod := range s.trainPods("llm") {
		s.setPhase(pod.Name, corev1.PodSucceeded)
	}
	s.awaitTrainJob("llm", trainer.TrainJobComplete)
	s.await("end of the group", func() string {
		if err := kube.Get(s.ctx, s.key("llm"), group); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("it is there: %v, finalizers %v", err, group.Finalizers)
		}
		return ""
	})
}

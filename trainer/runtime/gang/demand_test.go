package gang

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/core"
	apiv1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/runtime"
)

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func newReader(t *testing.T, objects ...client.Object) client.Reader {
	t.Helper()
	scheme := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{corev1.AddToScheme, nodev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func limitRange(namespace, name string, kind corev1.LimitType, requests, limits corev1.ResourceList) *corev1.LimitRange {
	return &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: kind, Default: limits, DefaultRequest: requests}}},
	}
}

func podSet(replicas, count int32, spec corev1.PodSpec) *runtime.PodSet {
	set := &runtime.PodSet{Job: &jobsetv1alpha2.ReplicatedJob{}, Replicas: replicas, Count: count}
	set.Job.Template.Spec.Template.Spec = spec
	return set
}

func TestMinResourcesCountsTheNamespacesDefaults(t *testing.T) {
	reader := newReader(t,
		limitRange("research", "b", corev1.LimitTypeContainer, list("cpu", "8", "memory", "3Gi"), nil),
		limitRange("research", "a", corev1.LimitTypeContainer, list("cpu", "2"), list("cpu", "4")),
		limitRange("research", "c", corev1.LimitTypePod, list("cpu", "32"), nil),
		limitRange("elsewhere", "a", corev1.LimitTypeContainer, list("memory", "64Gi"), nil),
	)
	gang := Gang{Name: "llm", PodSets: []*runtime.PodSet{
		podSet(2, 3, corev1.PodSpec{Containers: []corev1.Container{
			{Name: "node", Resources: corev1.ResourceRequirements{Limits: list("nvidia.com/gpu", "8")}},
			{Name: "sidecar", Resources: corev1.ResourceRequirements{Requests: list("cpu", "1", "memory", "1Gi")}},
		}}),
		podSet(1, 1, corev1.PodSpec{Containers: []corev1.Container{{Name: "server"}}}),
	}}
	got, err := gang.MinResources(t.Context(), reader, "research")
	if err != nil {
		t.Fatal(err)
	}
	// 6 x (2 + 1) + 2 CPUs; 6 x (3 + 1) + 3 Gi.
	if diff := cmp.Diff(list("cpu", "20", "memory", "27Gi", "nvidia.com/gpu", "48"), got); diff != "" {
		t.Errorf("minResources (-want +got)\n%s", diff)
	}
}

func TestMinResourcesWithoutAnAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	empty := fake.NewClientBuilder().WithScheme(apiruntime.NewScheme()).Build()
	gang := Gang{PodSets: []*runtime.PodSet{podSet(1, 1, corev1.PodSpec{})}}
	if _, err := gang.MinResources(ctx, empty, "research"); err == nil {
		t.Error("no error though LimitRanges cannot be read")
	}
}

func TestMembers(t *testing.T) {
	gang := Gang{Name: "llm", PodSets: []*runtime.PodSet{podSet(3, 5, corev1.PodSpec{}), podSet(1, 2, corev1.PodSpec{})}}
	if members, err := gang.Members(); err != nil || members != 17 {
		t.Errorf("members = %d, %v", members, err)
	}
	gang.PodSets = append(gang.PodSets, podSet(1<<16, 1<<16, corev1.PodSpec{}))
	if members, err := gang.Members(); err == nil {
		t.Errorf("members = %d and no error", members)
	}
}

// What is counted is what the API server makes of the pod: LimitRanger's own code is asked.
func TestDefaultsEqualLimitRangers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"cpu", "memory", "nvidia.com/gpu"}
		draw := func(label string) corev1.ResourceList {
			if rapid.IntRange(0, 3).Draw(t, label+" unset") == 0 {
				return nil
			}
			l := corev1.ResourceList{}
			for _, name := range names {
				if rapid.Bool().Draw(t, label+" "+name) {
					l[corev1.ResourceName(name)] = *resource.NewQuantity(rapid.Int64Range(1, 9).Draw(t, name), resource.DecimalSI)
				}
			}
			return l
		}
		pod := &corev1.Pod{}
		for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
				Name: fmt.Sprint("c", i), Resources: corev1.ResourceRequirements{Requests: draw("requests"), Limits: draw("limits")},
			})
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "init containers") {
			c := corev1.Container{Name: fmt.Sprint("i", i), Resources: corev1.ResourceRequirements{Requests: draw("requests"), Limits: draw("limits")}}
			if rapid.Bool().Draw(t, "sidecar") {
				c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
		kinds := []corev1.LimitType{corev1.LimitTypeContainer, corev1.LimitTypePod, corev1.LimitTypePersistentVolumeClaim}
		limits := limitRange("research", "a", kinds[rapid.IntRange(0, 2).Draw(t, "kind")], draw("default requests"), draw("default limits"))
		apiv1.SetDefaults_LimitRangeItem(&limits.Spec.Limits[0])
		apiv1.SetObjectDefaults_Pod(pod)

		theirs := &core.Pod{}
		if err := apiv1.Convert_v1_Pod_To_core_Pod(pod.DeepCopy(), theirs, nil); err != nil {
			t.Fatal(err)
		}
		if err := limitranger.PodMutateLimitFunc(limits, theirs); err != nil {
			t.Fatal(err)
		}
		want := &corev1.Pod{}
		if err := apiv1.Convert_core_Pod_To_v1_Pod(theirs, want, nil); err != nil {
			t.Fatal(err)
		}
		applyDefaults(pod, limits)
		for i, containers := range [][2][]corev1.Container{{want.Spec.Containers, pod.Spec.Containers}, {want.Spec.InitContainers, pod.Spec.InitContainers}} {
			for c := range containers[0] {
				if diff := cmp.Diff(containers[0][c].Resources, containers[1][c].Resources, equateEmpty); diff != "" {
					t.Fatalf("list %d, container %d (-LimitRanger +ours)\n%s", i, c, diff)
				}
			}
		}
	})
}

// equateEmpty takes an empty list for none.
var equateEmpty = cmp.Transformer("empty", func(l corev1.ResourceList) map[string]string {
	strings := map[string]string{}
	for name, quantity := range l {
		strings[string(name)] = quantity.String()
	}
	return strings
})

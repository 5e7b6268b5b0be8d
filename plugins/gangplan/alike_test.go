package gangplan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2/ktesting"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/muster-sched/muster/plugins/stage"
)

// variants are what members of a gang may differ in.
var variants = []func(*corev1.Pod){
	func(*corev1.Pod) {},
	func(p *corev1.Pod) { p.Labels["index"] = "1" },
	func(p *corev1.Pod) { p.Labels["apart"] = "yes" },
	func(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](7) },
	func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"pool": "a"} },
	func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} },
	func(p *corev1.Pod) { p.Spec.Tolerations = tolerating(300) },
	func(p *corev1.Pod) { p.Spec.Tolerations = tolerating(600) },
	func(p *corev1.Pod) { p.Spec.Overhead = requesting(map[corev1.ResourceName]string{"cpu": "1"}).Requests },
	func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: requesting(map[corev1.ResourceName]string{"cpu": "9"}).Requests}
	},
	func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = requesting(map[corev1.ResourceName]string{stage.GPU: "8", "cpu": "1000m"})
	},
	func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = requesting(map[corev1.ResourceName]string{stage.GPU: "8", "cpu": "1"})
	},
	func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Resources: requesting(map[corev1.ResourceName]string{"cpu": "4"})}}
	},
	func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{
			RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Resources: requesting(map[corev1.ResourceName]string{"cpu": "4"}),
		}}
	},
	func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} },
	func(p *corev1.Pod) { p.Spec.Affinity = inZone("a") },
	func(p *corev1.Pod) { p.Spec.Affinity = inZone("b") },
}

func tolerating(seconds int64) []corev1.Toleration {
	return []corev1.Toleration{{Key: "gone", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds}}
}

func inZone(zone string) *corev1.Affinity {
	return st.MakePod().NodeAffinityIn("zone", []string{zone}, st.NodeSelectorTypeMatchExpressions).Obj().Spec.Affinity
}

// Members are sorted into the same classes whether or not neighbours are compared.
func TestNeighboursThatAreAlike(t *testing.T) {
	logger, _ := ktesting.NewTestContext(t)
	keepsAway := stage.Pod(1000, 0).Node("n0").PodAntiAffinityExists("apart", "kubernetes.io/hostname", st.PodAntiAffinityWithRequiredReq).Obj()
	_, infos := stage.NewFramework(t, []*corev1.Pod{keepsAway}, stage.Nodes(2, 8)...)
	other := stage.Pod(999, 1).Obj()
	rapid.Check(t, func(t *rapid.T) {
		c := NewCluster(nil)
		c.Sync(infos)
		var pods, between []*corev1.Pod
		for i := range rapid.IntRange(2, 8).Draw(t, "members") {
			pod := stage.Pod(i, 8).Obj()
			for range 2 {
				rapid.SampledFrom(variants).Draw(t, "variant")(pod)
			}
			pods, between = append(pods, pod), append(between, pod, other)
		}
		with, err := c.NewDemand(logger, pods, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		without, err := c.NewDemand(logger, between, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range pods {
			for j := range i {
				if a, b := with.Members[i].Class == with.Members[j].Class, without.Members[2*i].Class == without.Members[2*j].Class; a != b {
					t.Fatalf("members %d and %d are of one class: %v, and %v if they are no neighbours", j, i, a, b)
				}
			}
		}
	})
	if repelled := sets.New("apart"); !alike(stage.Pod(0, 8).Obj(), stage.Pod(1, 8).Obj(), repelled) {
		t.Error("equal members are not found to be alike")
	}
}

package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
)

// Members that each claim a device, of which every node has one, are planned with the devices of the
// members before them in mind: with too few devices none of them is ever reserved.
func TestMembersThatClaimDevices(t *testing.T) {
	s := newScene(t)
	nodes := s.nodes(3, controlplane.NodeShape{})
	class := s.deviceClass("")
	s.devices(nodes...)
	s.claimTemplate("device", class)
	letGo, plans := s.metric("muster_gang_commits_let_go_total"), s.metric("muster_gang_plan_duration_seconds")
	s.group("gang", 4)
	s.create(s.members("gang", 4, 1, claiming("device"))...)
	s.await("refusal for lack of devices", func() string { // the claims may be there later than the pods
		if c := s.awaitRefused("gang"); !strings.Contains(c.Message, "room for 3") || !strings.Contains(c.Message, "DynamicResources") {
			return c.Message
		}
		return ""
	})
	s.holdsNoDevice()
	nodes = append(nodes, s.nodes(1, controlplane.NodeShape{})...)
	s.devices(nodes[3])
	s.awaitBound("gang", 4)
	s.apart("gang")
	if got := s.metric("muster_gang_commits_let_go_total"); got != letGo {
		t.Errorf("%v commits were let go", got-letGo)
	}
	if got := s.metric("muster_gang_plan_duration_seconds") - plans; got > 20 {
		t.Errorf("the gang was planned %v times", got)
	}
}

// Extended resources that no node has, but a device class provides.
func TestExtendedResourcesFromDevices(t *testing.T) {
	s := newScene(t)
	nodes := s.nodes(3, controlplane.NodeShape{})
	name := "gpu." + s.namespace + ".example.com/gpu"
	s.deviceClass(name)
	s.devices(nodes[:2]...)
	asking := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceName(name): resource.MustParse("1")}
	}
	letGo := s.metric("muster_gang_commits_let_go_total")
	s.group("gang", 3)
	s.create(s.members("gang", 3, 0, asking)...)
	if c := s.awaitRefused("gang"); !strings.Contains(c.Message, "room for 2") {
		t.Errorf("refused: %s", c.Message)
	}
	s.devices(nodes[2])
	s.awaitBound("gang", 3)
	s.apart("gang")
	if got := s.metric("muster_gang_commits_let_go_total"); got != letGo {
		t.Errorf("%v commits were let go", got-letGo)
	}
}

// A claim that all members share is allocated before the first of them is reserved, and freed again if
// the gang does not start.
func TestMembersThatShareAClaim(t *testing.T) {
	s := newScene(t)
	nodes := s.nodes(2, controlplane.NodeShape{})
	class := s.deviceClass("")
	s.devices(nodes...)
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "all"},
		Spec:       resourcev1.ResourceClaimSpec{Devices: oneDevice(class)},
	}
	s.must(kube.Create(s.ctx, claim))
	sharing := func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "all", ResourceClaimName: ptr.To("all")}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "all"}}
	}
	letGo := s.metric("muster_gang_commits_let_go_total")
	s.group("gang", 4)
	s.create(s.members("gang", 4, 2, sharing)...)
	s.awaitBound("gang", 4)
	on := map[string]bool{}
	for _, node := range s.bound(s.namespace, "gang") {
		on[node] = true
	}
	if len(on) != 1 {
		t.Errorf("the members share a device of one node and are on %v", on)
	}
	s.must(kube.Get(s.ctx, types.NamespacedName{Namespace: s.namespace, Name: "all"}, claim))
	if len(claim.Status.ReservedFor) != 4 {
		t.Errorf("the claim is reserved for %v", claim.Status.ReservedFor)
	}
	// The next gang with that claim has to go to the same node, where it finds no room.
	s.group("late", 4)
	s.create(s.members("late", 4, 2, sharing)...)
	s.awaitRefused("late")
	if got := s.metric("muster_gang_commits_let_go_total"); got != letGo {
		t.Errorf("%v commits were let go", got-letGo)
	}
}

// Volumes on the nodes that wait for their first consumer.
func TestMembersWithLocalVolumes(t *testing.T) {
	s := newScene(t)
	nodes := s.nodes(4, controlplane.NodeShape{})
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Provisioner: "kubernetes.io/no-provisioner",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	s.make(class)
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	volume := func(i int) {
		s.make(&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", s.namespace, i)},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: size, StorageClassName: class.Name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchFields: nil, MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{nodes[i]}}},
				}}}},
			},
		})
	}
	volume(0)
	volume(2)
	members := s.members("gang", 3, 1)
	for i, p := range members {
		name := fmt.Sprintf("data-%d", i)
		s.must(kube.Create(s.ctx, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class.Name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: size},
			},
		}))
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
	}
	letGo := s.metric("muster_gang_commits_let_go_total")
	s.group("gang", 3)
	s.create(members...)
	if c := s.awaitRefused("gang"); !strings.Contains(c.Message, "room for 2") || !strings.Contains(c.Message, "VolumeBinding") {
		t.Errorf("refused: %s", c.Message)
	}
	volume(3)
	s.awaitBound("gang", 3)
	s.apart("gang")
	if got := s.metric("muster_gang_commits_let_go_total"); got != letGo {
		t.Errorf("%v commits were let go", got-letGo)
	}
}

// make creates an object that belongs to no namespace, until the test ends.
func (s *scene) make(o client.Object) {
	s.Helper()
	s.must(kube.Create(s.ctx, o))
	s.Cleanup(func() { s.must(client.IgnoreNotFound(kube.Delete(context.Background(), o))) })
}

// deviceClass makes a class of all devices of the test; extended is the extended resource that it stands
// for, if any.
func (s *scene) deviceClass(extended string) string {
	s.Helper()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace + ".example.com"}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", s.namespace+".example.com")}}}
	if extended != "" {
		class.Spec.ExtendedResourceName = &extended
	}
	s.make(class)
	return class.Name
}

// devices gives each node one device.
func (s *scene) devices(nodes ...string) {
	s.Helper()
	for _, node := range nodes {
		s.make(&resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + node},
			Spec: resourcev1.ResourceSliceSpec{
				Driver: s.namespace + ".example.com", NodeName: &node,
				Pool:    resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
				Devices: []resourcev1.Device{{Name: "device-0"}},
			},
		})
	}
}

func oneDevice(class string) resourcev1.DeviceClaim {
	return resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "device", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}}}
}

func (s *scene) claimTemplate(name, class string) {
	s.Helper()
	s.must(kube.Create(s.ctx, &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec:       resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: oneDevice(class)}},
	}))
}

// claiming makes a pod claim what a template describes.
func claiming(template string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimTemplateName: &template}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "device"}}
	}
}

// holdsNoDevice fails if a claim of the test is allocated.
func (s *scene) holdsNoDevice() {
	s.Helper()
	claims := &resourcev1.ResourceClaimList{}
	s.must(kube.List(s.ctx, claims, client.InNamespace(s.namespace)))
	for _, c := range claims.Items {
		if c.Status.Allocation != nil {
			s.Errorf("resource claim %s is allocated", c.Name)
		}
	}
}

// apart fails if two members of a gang are on one node.
func (s *scene) apart(group string) {
	s.Helper()
	used := map[string]string{}
	for pod, node := range s.bound(s.namespace, group) {
		if other, taken := used[node]; taken {
			s.Errorf("pods %s and %s are both on %s", pod, other, node)
		}
		used[node] = pod
	}
}

// metric returns the value of a counter or gauge of the scheduler, or how much a histogram has counted, all
// labels added up.
func (s *scene) metric(name string) float64 {
	s.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	s.must(err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

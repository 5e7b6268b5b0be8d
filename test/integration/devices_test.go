package integration

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
)

// Members that each claim a device, of which every node has one, cannot all be planned at once: what
// one of them is allocated is known only when it is reserved. The plan is made anew around it.
func TestMembersThatClaimDevices(t *testing.T) {
	s := newScene(t)
	nodes := s.nodes(4, controlplane.NodeShape{})
	class := s.devices(nodes...)
	s.must(kube.Create(s.ctx, &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "device"},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "device", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}},
		}}},
	}))
	s.group("gang", 4)
	s.create(s.members("gang", 4, 1, func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimTemplateName: ptr.To("device")}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "device"}}
	})...)
	s.awaitBound("gang", 4)
	used := map[string]string{}
	for pod, node := range s.bound(s.namespace, "gang") {
		if other, taken := used[node]; taken {
			t.Errorf("pods %s and %s share the one device of %s", pod, other, node)
		}
		used[node] = pod
	}
}

// devices gives each node one device, and returns the class to ask for one.
func (s *scene) devices(nodes ...string) (class string) {
	s.Helper()
	objects := []client.Object{&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace + ".example.com"}}}
	for _, node := range nodes {
		objects = append(objects, &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + node},
			Spec: resourcev1.ResourceSliceSpec{
				Driver: "devices.example.com", NodeName: &node,
				Pool:    resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
				Devices: []resourcev1.Device{{Name: "device-0"}},
			},
		})
	}
	for _, o := range objects {
		s.must(kube.Create(s.ctx, o))
		s.Cleanup(func() { s.must(client.IgnoreNotFound(kube.Delete(context.Background(), o))) })
	}
	return objects[0].GetName()
}

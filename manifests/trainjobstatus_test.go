package manifests

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const withTrainJobStatus = "overlays/with-trainjob-status"

// The default of --trainer-status-url, which the trainer writes into training pods; its port is that of
// --trainer-status-bind-address too.
const (
	statusURL  = "https://muster-webhooks.muster-system.svc:10443"
	statusPort = 10443
)

// The process listens where the Service sends reports, and the Service is the one that pods are told.
func TestTrainJobStatusFitsTogether(t *testing.T) {
	resources := build(t, withTrainJobStatus)
	service := only[corev1.Service](t, resources, "Service")[0]
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == "trainjob-status" })
	if i < 0 || len(service.Spec.Ports) != 2 {
		t.Fatalf("ports of the Service: %+v", service.Spec.Ports)
	}
	port := service.Spec.Ports[i]
	if got := fmt.Sprintf("https://%s.%s.svc:%d", service.Name, service.Namespace, port.Port); got != statusURL {
		t.Errorf("the Service is %s, pods are told %s", got, statusURL)
	}
	container := only[appsv1.Deployment](t, resources, "Deployment")[0].Spec.Template.Spec.Containers[0]
	if !slices.Contains(container.Args, "--trainer-feature-gates=TrainJobStatus=true") || !slices.Contains(container.Args, "--trainer-status-url="+statusURL) {
		t.Errorf("args %v", container.Args)
	}
	named := func(p corev1.ContainerPort) bool { return intstr.FromString(p.Name) == port.TargetPort }
	if i := slices.IndexFunc(container.Ports, named); i < 0 || container.Ports[i].ContainerPort != statusPort {
		t.Errorf("ports of the container %+v, Service %+v", container.Ports, port)
	}
	// The certificate is the webhooks': it is for the same Service.
	mounted := func(m corev1.VolumeMount) bool { return m.MountPath == webhooksCertDir && m.ReadOnly }
	if !slices.ContainsFunc(container.VolumeMounts, mounted) {
		t.Errorf("mounts %+v", container.VolumeMounts)
	}
}

// What the status server needs, and no more, comes and goes with it.
func TestTrainJobStatusRights(t *testing.T) {
	var own []rbacv1.PolicyRule
	for _, role := range only[rbacv1.ClusterRole](t, build(t, withTrainJobStatus), "ClusterRole") {
		if role.Name == "muster-trainjob-status" {
			own = role.Rules
		}
	}
	got := fmt.Sprint(own)
	want := fmt.Sprint([]rbacv1.PolicyRule{
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
	})
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

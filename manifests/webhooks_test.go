package manifests

import (
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const withWebhooks = "overlays/with-webhooks"

// The defaults of the process's flags.
const (
	webhooksService = "muster-system/muster-webhooks"
	webhooksSecret  = "muster-webhooks-cert"
	webhooksPort    = 9443
	webhooksCertDir = "/etc/muster-webhooks"
)

// The process, the Service, the Secret and the configurations must mean the same names, ports and paths.
func TestWebhooksFitTogether(t *testing.T) {
	resources := build(t, withWebhooks)
	service := only[corev1.Service](t, resources, "Service")[0]
	secret := only[corev1.Secret](t, resources, "Secret")[0]
	pod := only[appsv1.Deployment](t, resources, "Deployment")[0].Spec.Template

	if service.Namespace+"/"+service.Name != webhooksService {
		t.Errorf("Service %s/%s, want %s", service.Namespace, service.Name, webhooksService)
	}
	if secret.Name != webhooksSecret || secret.Namespace != service.Namespace || len(secret.Data) > 0 {
		t.Errorf("Secret %s/%s, want %s", secret.Namespace, secret.Name, webhooksSecret)
	}
	for key, value := range service.Spec.Selector {
		if pod.Labels[key] != value {
			t.Errorf("the Service selects %s=%s, the pods have %q", key, value, pod.Labels[key])
		}
	}
	container := pod.Spec.Containers[0]
	if !slices.Contains(container.Args, "--trainer-webhooks") || !slices.Contains(container.Args, "--trainer-webhooks-service="+webhooksService) {
		t.Errorf("args %v", container.Args)
	}
	named := func(p corev1.ContainerPort) bool {
		return intstr.FromString(p.Name) == service.Spec.Ports[0].TargetPort
	}
	if i := slices.IndexFunc(container.Ports, named); i < 0 || container.Ports[i].ContainerPort != webhooksPort {
		t.Errorf("ports %v, Service %v", container.Ports, service.Spec.Ports)
	}
	mount := container.VolumeMounts[len(container.VolumeMounts)-1]
	volume := pod.Spec.Volumes[len(pod.Spec.Volumes)-1]
	if mount.MountPath != webhooksCertDir || mount.Name != volume.Name || volume.Secret.SecretName != secret.Name {
		t.Errorf("mount %+v of volume %+v", mount, volume)
	}

	validating := only[admissionv1.ValidatingWebhookConfiguration](t, resources, "ValidatingWebhookConfiguration")[0]
	mutating := only[admissionv1.MutatingWebhookConfiguration](t, resources, "MutatingWebhookConfiguration")[0]
	if validating.Name != "validator.trainer.kubeflow.org" || mutating.Name != "defaulter.trainer.kubeflow.org" {
		t.Errorf("configurations %s, %s", validating.Name, mutating.Name)
	}
	type webhook struct {
		client   admissionv1.WebhookClientConfig
		rules    []admissionv1.RuleWithOperations
		policy   *admissionv1.FailurePolicyType
		match    *admissionv1.MatchPolicyType
		effects  *admissionv1.SideEffectClass
		optional bool
	}
	all := map[string]webhook{}
	for _, w := range validating.Webhooks {
		all["/validate"+w.Name[len("validator"):]] = webhook{w.ClientConfig, w.Rules, w.FailurePolicy, w.MatchPolicy, w.SideEffects, w.ObjectSelector != nil}
	}
	for _, w := range mutating.Webhooks {
		all["/mutate"+w.Name[len("defaulter"):]] = webhook{w.ClientConfig, w.Rules, w.FailurePolicy, w.MatchPolicy, w.SideEffects, w.ObjectSelector != nil}
	}
	for name, want := range map[string]struct {
		path, resource string
		optional       bool
	}{
		"/validate.trainjob.trainer.kubeflow.org":               {"/validate-trainer-kubeflow-org-v1alpha1-trainjob", "trainjobs", false},
		"/validate.trainingruntime.trainer.kubeflow.org":        {"/validate-trainer-kubeflow-org-v1alpha1-trainingruntime", "trainingruntimes", true},
		"/validate.clustertrainingruntime.trainer.kubeflow.org": {"/validate-trainer-kubeflow-org-v1alpha1-clustertrainingruntime", "clustertrainingruntimes", true},
		"/mutate.trainjob.trainer.kubeflow.org":                 {"/mutate-trainer-kubeflow-org-v1alpha1-trainjob", "trainjobs", false},
	} {
		got, ok := all[name]
		if !ok {
			t.Errorf("no webhook %s", name)
			continue
		}
		if ref := got.client.Service; ref.Name != service.Name || ref.Namespace != service.Namespace || *ref.Path != want.path || ptr.Deref(ref.Port, 443) != service.Spec.Ports[0].Port {
			t.Errorf("%s: service %+v", name, ref)
		}
		if len(got.rules) != 1 || !slices.Equal(got.rules[0].Resources, []string{want.resource}) ||
			!slices.Equal(got.rules[0].Operations, []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}) {
			t.Errorf("%s: rules %+v", name, got.rules)
		}
		if *got.policy != admissionv1.Fail || *got.match != admissionv1.Equivalent || *got.effects != admissionv1.SideEffectClassNone || got.optional != want.optional {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if len(all) != 4 {
		t.Errorf("%d webhooks", len(all))
	}
}

// What the webhooks need is granted with them only: read in Muster's namespace, written by name.
func TestWebhooksMayWriteByNameOnly(t *testing.T) {
	resources := build(t, withWebhooks)
	var rules []rbacv1.PolicyRule
	for _, role := range only[rbacv1.Role](t, resources, "Role") {
		rules = append(rules, role.Rules...)
	}
	for _, role := range only[rbacv1.ClusterRole](t, resources, "ClusterRole") {
		rules = append(rules, role.Rules...)
	}
	found := 0
	for _, rule := range rules {
		if !slices.Contains(rule.Resources, "secrets") && !slices.Contains(rule.APIGroups, "admissionregistration.k8s.io") {
			continue
		}
		found++
		for _, verb := range rule.Verbs {
			// Others make Secrets of their own, and look them up by name.
			if slices.Contains([]string{"update", "patch", "delete"}, verb) && len(rule.ResourceNames) != 1 {
				t.Errorf("%v", rule)
			}
		}
	}
	if found == 0 {
		t.Error("nothing is granted")
	}
}

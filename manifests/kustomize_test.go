package manifests

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	rbacvalidation "k8s.io/component-helpers/auth/rbac/validation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

var targets = []string{"base", "overlays/only-scheduler", "overlays/with-webhooks", "overlays/with-trainjob-status", "overlays/native"}

// schedulerConfigOf returns the file with the scheduler's configuration: the target's own, or base's.
func schedulerConfigOf(target string) string {
	if own := target + "/scheduler-config.yaml"; fs.ValidPath(own) {
		if _, err := fs.Stat(FS, own); err == nil {
			return own
		}
	}
	return schedulerConfig
}

// built are the targets that some test has built already.
var built = map[string][]*resource.Resource{}

func build(t *testing.T, target string) []*resource.Resource {
	t.Helper()
	if resources, ok := built[target]; ok {
		return resources
	}
	result, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), target)
	if err != nil {
		t.Fatal(err)
	}
	built[target] = result.Resources()
	return built[target]
}

// decodeInto converts a built object strictly: a field that the API does not know is an error.
func decodeInto(t *testing.T, from *resource.Resource, to any) {
	t.Helper()
	data, err := from.AsYAML()
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, to); err != nil {
		t.Fatalf("%s %s: %v", from.GetKind(), from.GetName(), err)
	}
}

func only[T any](t *testing.T, resources []*resource.Resource, kind string) []T {
	t.Helper()
	var found []T
	for _, r := range resources {
		if r.GetKind() == kind {
			var object T
			decodeInto(t, r, &object)
			found = append(found, object)
		}
	}
	return found
}

func eachTarget(t *testing.T, test func(t *testing.T, target string, resources []*resource.Resource)) {
	for _, target := range targets {
		t.Run(target, func(t *testing.T) { test(t, target, build(t, target)) })
	}
}

func TestNothingIsGrantedByWildcard(t *testing.T) {
	eachTarget(t, func(t *testing.T, _ string, resources []*resource.Resource) {
		check := func(name string, rules []rbacv1.PolicyRule) {
			for _, rule := range rules {
				for _, part := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs) {
					if strings.Contains(part, "*") {
						t.Errorf("%s: %v", name, rule)
					}
				}
				if len(rule.Verbs) == 0 || len(rule.Resources) == 0 {
					t.Errorf("%s: a rule that grants nothing: %v", name, rule)
				}
			}
		}
		roles := 0
		for _, role := range only[rbacv1.ClusterRole](t, resources, "ClusterRole") {
			check(role.Name, role.Rules)
			roles++
		}
		for _, role := range only[rbacv1.Role](t, resources, "Role") {
			check(role.Name, role.Rules)
			roles++
		}
		if roles < 3 {
			t.Errorf("want the scheduler's, the controllers' and the leases' role, got %d roles", roles)
		}
	})
}

// Leases are granted by name and namespace. Secrets, which MPI and Flux jobs need one each of, can be made and
// looked up by name: nobody can list them, change them, or take them away.
func TestNothingGrantsSecretsOrEscalation(t *testing.T) {
	eachTarget(t, func(t *testing.T, _ string, resources []*resource.Resource) {
		for _, role := range only[rbacv1.ClusterRole](t, resources, "ClusterRole") {
			for _, rule := range role.Rules {
				if slices.Contains(rule.Resources, "secrets") {
					if role.Name != "muster-controllers" || !slices.Equal(rule.Verbs, []string{"create", "get"}) {
						t.Errorf("%s grants %v of secrets in the whole cluster", role.Name, rule.Verbs)
					}
				}
				for _, forbidden := range []string{"leases", "clusterroles", "roles", "nodes/proxy", "pods/exec", "serviceaccounts/token"} {
					if slices.Contains(rule.Resources, forbidden) {
						t.Errorf("%s grants %s in the whole cluster", role.Name, forbidden)
					}
				}
				for _, forbidden := range []string{"escalate", "bind", "impersonate", "deletecollection"} {
					if slices.Contains(rule.Verbs, forbidden) {
						t.Errorf("%s grants %s", role.Name, forbidden)
					}
				}
			}
		}
	})
}

// The scheduler half is a kube-scheduler: what Kubernetes grants to its own one at this version, it
// needs too. A new version that grants more fails here.
func TestSchedulerMayWhatKubeSchedulerMay(t *testing.T) {
	var have []rbacv1.PolicyRule
	for _, role := range only[rbacv1.ClusterRole](t, build(t, "base"), "ClusterRole") {
		if role.Name == "muster-scheduler" {
			have = role.Rules
		}
	}
	var want []rbacv1.PolicyRule
	for _, role := range bootstrappolicy.ClusterRoles() {
		if role.Name != "system:kube-scheduler" && role.Name != "system:volume-scheduler" {
			continue
		}
		for _, rule := range role.Rules {
			if slices.Contains(rule.APIGroups, "coordination.k8s.io") {
				// Leases are granted by name, in Muster's namespace; candidates are for a kind of
				// leader election that Muster does not take part in.
				continue
			}
			// A group that no API server has served since Kubernetes 1.16.
			rule.APIGroups = slices.DeleteFunc(slices.Clone(rule.APIGroups), func(group string) bool { return group == "extensions" })
			want = append(want, rule)
		}
	}
	if len(want) < 10 {
		t.Fatalf("found only %d rules of kube-scheduler: its role has another name", len(want))
	}
	if ok, missing := rbacvalidation.Covers(have, want); !ok {
		t.Errorf("kube-scheduler may do more: %v", missing)
	}
}

// Both leases, by the names that the process asks for; kustomize renames what it takes for a reference.
func TestLeasesAreGrantedByName(t *testing.T) {
	eachTarget(t, func(t *testing.T, target string, resources []*resource.Resource) {
		data, err := FS.ReadFile(schedulerConfigOf(target))
		if err != nil {
			t.Fatal(err)
		}
		election := load(t, data).LeaderElection
		granted := map[string]bool{}
		for _, role := range only[rbacv1.Role](t, resources, "Role") {
			for _, rule := range role.Rules {
				for _, name := range rule.ResourceNames {
					for _, verb := range rule.Verbs {
						granted[role.Namespace+"/"+name+" "+verb] = true
					}
				}
			}
		}
		for _, lease := range []string{"muster-system/muster-controllers", election.ResourceNamespace + "/" + election.ResourceName} {
			for _, verb := range []string{"get", "update"} {
				if !granted[lease+" "+verb] {
					t.Errorf("no Role grants %s of lease %s: %v", verb, lease, granted)
				}
			}
		}
	})
}

func TestDeploymentIsLockedDown(t *testing.T) {
	eachTarget(t, func(t *testing.T, target string, resources []*resource.Resource) {
		deployments := only[appsv1.Deployment](t, resources, "Deployment")
		if len(deployments) != 1 {
			t.Fatalf("want one Deployment, got %d", len(deployments))
		}
		pod := deployments[0].Spec.Template.Spec
		if pod.SecurityContext == nil || !*pod.SecurityContext.RunAsNonRoot ||
			pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("pod security context: %+v", pod.SecurityContext)
		}
		if pod.PriorityClassName != "system-cluster-critical" {
			t.Errorf("priority class %q", pod.PriorityClassName)
		}
		if len(pod.Containers) != 1 {
			t.Fatalf("want one container, got %d", len(pod.Containers))
		}
		container := pod.Containers[0]
		security := container.SecurityContext
		if security == nil || *security.AllowPrivilegeEscalation || !*security.ReadOnlyRootFilesystem ||
			!slices.Equal(security.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(security.Capabilities.Add) > 0 {
			t.Errorf("container security context: %+v", security)
		}
		if container.LivenessProbe == nil || container.ReadinessProbe == nil || container.StartupProbe == nil {
			t.Error("a probe is missing")
		}
		if container.Image != "muster-scheduler:latest" {
			t.Errorf("image %q can't be set by the placeholder's name", container.Image)
		}
		affinity := pod.Affinity.PodAntiAffinity
		required := len(affinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0
		preferred := len(affinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0
		if isOnly := target == "overlays/only-scheduler"; required != isOnly || preferred == isOnly {
			t.Errorf("replicas apart: required %v, preferred %v", required, preferred)
		}
	})
}

func TestDeploymentReadsTheConfigurationThatIsDeployed(t *testing.T) {
	eachTarget(t, func(t *testing.T, target string, resources []*resource.Resource) {
		configMaps := only[corev1.ConfigMap](t, resources, "ConfigMap")
		if len(configMaps) != 1 {
			t.Fatalf("want one ConfigMap, got %d", len(configMaps))
		}
		file, err := FS.ReadFile(schedulerConfigOf(target))
		if err != nil {
			t.Fatal(err)
		}
		if configMaps[0].Data["scheduler-config.yaml"] != string(file) {
			t.Errorf("the ConfigMap is not %s", schedulerConfigOf(target))
		}
		deployment := only[appsv1.Deployment](t, resources, "Deployment")[0]
		pod := deployment.Spec.Template.Spec
		if name := pod.Volumes[0].ConfigMap.Name; name != configMaps[0].Name {
			t.Errorf("the pod mounts ConfigMap %q, want %q", name, configMaps[0].Name)
		}
		mount := pod.Containers[0].VolumeMounts[0].MountPath
		if want := "--config=" + mount + "/scheduler-config.yaml"; !slices.Contains(pod.Containers[0].Args, want) {
			t.Errorf("want %s in %v", want, pod.Containers[0].Args)
		}
	})
}

// The trainer sends pods to the profile that is deployed, or, where that is everybody's, nowhere.
func TestTrainerNamesTheDeployedProfile(t *testing.T) {
	eachTarget(t, func(t *testing.T, target string, resources []*resource.Resource) {
		data, err := FS.ReadFile(schedulerConfigOf(target))
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		if profile := load(t, data).Profiles[0].SchedulerName; profile != corev1.DefaultSchedulerName {
			want = []string{"--trainer-scheduler-name=" + profile}
		}
		args := only[appsv1.Deployment](t, resources, "Deployment")[0].Spec.Template.Spec.Containers[0].Args
		got := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return !strings.HasPrefix(arg, "--trainer-scheduler-name") })
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// Every namespaced object of Muster is in its namespace; kube-system gets only bindings.
func TestNamespaces(t *testing.T) {
	eachTarget(t, func(t *testing.T, _ string, resources []*resource.Resource) {
		clusterWide := []string{
			"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition",
			"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
		}
		for _, r := range resources {
			namespace, kind := r.GetNamespace(), r.GetKind()
			switch {
			case slices.Contains(clusterWide, kind):
				if namespace != "" {
					t.Errorf("%s %s has namespace %q", kind, r.GetName(), namespace)
				}
			case namespace == "kube-system":
				if kind != "Role" && kind != "RoleBinding" {
					t.Errorf("%s %s does not belong into kube-system", kind, r.GetName())
				}
			case namespace != "muster-system":
				t.Errorf("%s %s has namespace %q", kind, r.GetName(), namespace)
			}
		}
	})
}

func TestBindingsNameWhatExists(t *testing.T) {
	eachTarget(t, func(t *testing.T, _ string, resources []*resource.Resource) {
		account := only[corev1.ServiceAccount](t, resources, "ServiceAccount")[0]
		check := func(name string, ref rbacv1.RoleRef, namespace string, subjects []rbacv1.Subject) {
			found := ref.Name == "extension-apiserver-authentication-reader" && namespace == "kube-system" // Kubernetes' own.
			for _, r := range resources {
				found = found || r.GetKind() == ref.Kind && r.GetName() == ref.Name && r.GetNamespace() == namespace
			}
			if !found {
				t.Errorf("%s refers to %s %s/%s, which is not there", name, ref.Kind, namespace, ref.Name)
			}
			for _, subject := range subjects {
				if subject.Name != account.Name || subject.Namespace != account.Namespace {
					t.Errorf("%s: subject %+v is not the service account", name, subject)
				}
			}
		}
		for _, binding := range only[rbacv1.ClusterRoleBinding](t, resources, "ClusterRoleBinding") {
			check(binding.Name, binding.RoleRef, "", binding.Subjects)
		}
		for _, binding := range only[rbacv1.RoleBinding](t, resources, "RoleBinding") {
			check(binding.Name, binding.RoleRef, binding.Namespace, binding.Subjects)
		}
	})
}

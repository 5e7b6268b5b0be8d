package runtime

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

func TestSetEnv(t *testing.T) {
	container := &corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}}
	source := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}}
	SetEnv(container, corev1.EnvVar{Name: "C", Value: "3"}, corev1.EnvVar{Name: "A", ValueFrom: source})
	want := []corev1.EnvVar{{Name: "A", ValueFrom: source.DeepCopy()}, {Name: "B", Value: "2"}, {Name: "C", Value: "3"}}
	if diff := cmp.Diff(want, container.Env); diff != "" {
		t.Errorf("env (-want +got)\n%s", diff)
	}
	source.FieldRef.FieldPath = "changed"
	if container.Env[0].ValueFrom.FieldRef.FieldPath == "changed" {
		t.Error("the container shares the source with its caller")
	}
}

// Setting variables keeps their names distinct, the old ones in their order, and the last value of each.
func TestSetEnvProperties(t *testing.T) {
	variable := rapid.Custom(func(t *rapid.T) corev1.EnvVar {
		return corev1.EnvVar{
			Name:  rapid.SampledFrom([]string{"A", "B", "C", "D", "E"}).Draw(t, "name"),
			Value: rapid.StringMatching(`[0-9]`).Draw(t, "value"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		name := func(e corev1.EnvVar) string { return e.Name }
		before := rapid.SliceOfDistinct(variable, name).Draw(t, "before")
		set := rapid.SliceOf(variable).Draw(t, "set")
		container := &corev1.Container{Env: append([]corev1.EnvVar(nil), before...)}
		SetEnv(container, set...)

		want := map[string]string{}
		for _, e := range append(before, set...) {
			want[e.Name] = e.Value
		}
		got := map[string]string{}
		for i, e := range container.Env {
			if _, twice := got[e.Name]; twice {
				t.Fatalf("%s is there twice", e.Name)
			}
			if i < len(before) && e.Name != before[i].Name {
				t.Fatalf("variable %d is %s, was %s", i, e.Name, before[i].Name)
			}
			got[e.Name] = e.Value
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("values (-want +got)\n%s", diff)
		}
	})
}

func TestAddPort(t *testing.T) {
	cases := map[string]struct {
		ports []corev1.ContainerPort
		want  int
	}{
		"none":                       {nil, 1},
		"another without a name":     {[]corev1.ContainerPort{{ContainerPort: 8080}}, 2},
		"declared":                   {[]corev1.ContainerPort{{ContainerPort: 29500, Name: "rdzv"}}, 1},
		"declared with its protocol": {[]corev1.ContainerPort{{ContainerPort: 29500, Protocol: "TCP"}}, 1},
		"the same number for UDP":    {[]corev1.ContainerPort{{ContainerPort: 29500, Protocol: "UDP"}}, 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			container := &corev1.Container{Ports: tc.ports}
			AddPort(container, 29500)
			if len(container.Ports) != tc.want {
				t.Errorf("ports = %v, want %d", container.Ports, tc.want)
			}
		})
	}
}

func TestSetVolume(t *testing.T) {
	empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	pod := &corev1.PodSpec{Volumes: []corev1.Volume{{Name: "a"}, {Name: "b"}}}
	SetVolume(pod, corev1.Volume{Name: "a", VolumeSource: empty})
	SetVolume(pod, corev1.Volume{Name: "c", VolumeSource: empty})
	want := []corev1.Volume{{Name: "a", VolumeSource: empty}, {Name: "b"}, {Name: "c", VolumeSource: empty}}
	if diff := cmp.Diff(want, pod.Volumes); diff != "" {
		t.Errorf("volumes (-want +got)\n%s", diff)
	}
}

func TestSetMount(t *testing.T) {
	container := &corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "a", MountPath: "/a"}, {Name: "a", MountPath: "/b"}}}
	SetMount(container, corev1.VolumeMount{Name: "other", MountPath: "/a"})
	SetMount(container, corev1.VolumeMount{Name: "a", MountPath: "/c"})
	want := []corev1.VolumeMount{{Name: "other", MountPath: "/a"}, {Name: "a", MountPath: "/b"}, {Name: "a", MountPath: "/c"}}
	if diff := cmp.Diff(want, container.VolumeMounts); diff != "" {
		t.Errorf("mounts (-want +got)\n%s", diff)
	}
}

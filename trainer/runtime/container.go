package runtime

import corev1 "k8s.io/api/core/v1"

// SetEnv sets environment variables of a container: one that is there already is replaced where it
// stands, the others are appended in the order given.
func SetEnv(container *corev1.Container, env ...corev1.EnvVar) {
	for _, variable := range env {
		setEnv(container, variable)
	}
}

func setEnv(container *corev1.Container, variable corev1.EnvVar) {
	for i := range container.Env {
		if container.Env[i].Name == variable.Name {
			container.Env[i] = *variable.DeepCopy()
			return
		}
	}
	container.Env = append(container.Env, *variable.DeepCopy())
}

// AddPort declares a TCP port of a container, unless it is declared already.
func AddPort(container *corev1.Container, port int32) {
	for _, p := range container.Ports {
		if p.ContainerPort == port && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) {
			return
		}
	}
	container.Ports = append(container.Ports, corev1.ContainerPort{ContainerPort: port})
}

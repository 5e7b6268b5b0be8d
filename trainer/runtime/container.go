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

// SetVolume adds a volume to a pod, in the place of one of the same name if there is one.
func SetVolume(pod *corev1.PodSpec, volume corev1.Volume) {
	for i := range pod.Volumes {
		if pod.Volumes[i].Name == volume.Name {
			pod.Volumes[i] = volume
			return
		}
	}
	pod.Volumes = append(pod.Volumes, volume)
}

// SetMount mounts a volume into a container, in the place of what is mounted at the same path if anything is.
func SetMount(container *corev1.Container, mount corev1.VolumeMount) {
	for i := range container.VolumeMounts {
		if container.VolumeMounts[i].MountPath == mount.MountPath {
			container.VolumeMounts[i] = mount
			return
		}
	}
	container.VolumeMounts = append(container.VolumeMounts, mount)
}

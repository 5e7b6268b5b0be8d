// Package flux runs the training under Flux, a resource manager that is installed into the pods as they start.
package flux

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/child"
	"github.com/muster-sched/muster/trainer/runtime/framework"
)

// Name of the plugin.
const Name = "Flux"

// Environment variables of the training container that are settings of Flux, and their defaults.
const (
	envViewImage     = "FLUX_VIEW_IMAGE"
	envNetworkDevice = "FLUX_NETWORK_DEVICE"
	envQueuePolicy   = "FLUX_QUEUE_POLICY"

	defaultViewImage     = "ghcr.io/converged-computing/flux-view-ubuntu:tag-jammy"
	defaultNetworkDevice = "eth0"
	defaultQueuePolicy   = "fcfs"
)

// installerName is the name of the init container that brings Flux.
const installerName = "flux-installer"

// Volumes and where they are mounted.
const (
	installVolume  = "flux-install"
	installPath    = "/mnt/flux"
	softwareVolume = "spack-install"
	softwarePath   = "/opt/software"
	memoryVolume   = "shared-memory"
	memoryPath     = "/dev/shm"
	curveVolume    = "flux-curve"
	curvePath      = "/curve"
	// Not named after the TrainJob, as the ConfigMap is: a name that fits the one may be too long for the other.
	configVolume = "flux-entrypoint"
	configPath   = "/etc/flux-config"
)

// Flux wraps the training command into a Flux instance over all nodes.
type Flux struct {
	keeper *child.Keeper
}

var (
	_ framework.ValidationPlugin = (*Flux)(nil)
	_ framework.MLPolicyPlugin   = (*Flux)(nil)
	_ framework.ComponentPlugin  = (*Flux)(nil)
)

// New makes the plugin. It writes ConfigMaps and Secrets through c and reads them through live, which must not be
// cached.
func New(c client.Client, live client.Reader) *Flux {
	return &Flux{keeper: child.New(c, live)}
}

// Name implements framework.Plugin.
func (*Flux) Name() string {
	return Name
}

// word is what the settings may consist of: they become part of a configuration file.
var word = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// Validate implements framework.ValidationPlugin.
func (*Flux) Validate(info *runtime.Info, trainJob *v1alpha1.TrainJob) field.ErrorList {
	policy := policyOf(info)
	if policy == nil {
		return nil
	}
	var errs field.ErrorList
	if processes := policy.NumProcPerNode; processes != nil && *processes < 1 {
		errs = append(errs, field.Invalid(field.NewPath("runtime", "spec", "mlPolicy", "flux", "numProcPerNode"), *processes, "must be at least 1"))
	}
	if trainer := info.Trainer(); trainer != nil {
		named := func(c corev1.Container) bool { return c.Name == installerName }
		if i := slices.IndexFunc(trainer.PodSpec().InitContainers, named); i >= 0 {
			errs = append(errs, field.Invalid(field.NewPath("runtime", "spec", "template", "spec", "replicatedJobs").Key(trainer.Job.Name).
				Child("template", "spec", "template", "spec", "initContainers").Index(i).Child("name"), installerName, "is reserved: the trainer adds it"))
		}
	}
	settings := settingsOf(info, trainJob)
	for _, name := range []string{envNetworkDevice, envQueuePolicy} {
		if value := settings[name]; !word.MatchString(value) {
			errs = append(errs, field.Invalid(envPath(info, trainJob, name), value, "must consist of letters, digits, dots, hyphens and underscores"))
		}
	}
	if settings[envViewImage] == "" {
		errs = append(errs, field.Required(envPath(info, trainJob, envViewImage), "the image that Flux is installed from"))
	}
	return errs
}

// envPath returns the path of a setting: of the TrainJob's, else of the runtime's.
func envPath(info *runtime.Info, trainJob *v1alpha1.TrainJob, name string) *field.Path {
	named := func(env corev1.EnvVar) bool { return env.Name == name }
	if trainer := trainJob.Spec.Trainer; trainer != nil {
		if i := slices.IndexFunc(trainer.Env, named); i >= 0 {
			return field.NewPath("spec", "trainer", "env").Index(i).Child("value")
		}
	}
	return field.NewPath("runtime", "spec", "template", "spec", "replicatedJobs").Key(info.Trainer().Job.Name).
		Child("template", "spec", "template", "spec", "containers").Key(v1alpha1.NodeContainer).Child("env").Key(name)
}

// EnforceMLPolicy implements framework.MLPolicyPlugin.
func (*Flux) EnforceMLPolicy(info *runtime.Info, trainJob *v1alpha1.TrainJob) error {
	trainer := info.Trainer()
	if policyOf(info) == nil || trainer == nil {
		return nil
	}
	node := trainer.Container(v1alpha1.NodeContainer)
	if node == nil {
		return nil
	}
	pod := trainer.PodSpec()
	for _, volume := range volumes(trainJob) {
		runtime.SetVolume(pod, volume)
	}
	config := corev1.VolumeMount{Name: configVolume, MountPath: configPath, ReadOnly: true}
	install := corev1.VolumeMount{Name: installVolume, MountPath: installPath}
	pod.InitContainers = append(pod.InitContainers, corev1.Container{
		Name:         installerName,
		Image:        settingsOf(info, trainJob)[envViewImage],
		Command:      []string{"/bin/bash", configPath + "/" + initKey},
		VolumeMounts: []corev1.VolumeMount{install, config},
	})
	for _, mount := range []corev1.VolumeMount{
		install,
		{Name: softwareVolume, MountPath: softwarePath},
		config,
		{Name: curveVolume, MountPath: curvePath, ReadOnly: true},
		{Name: memoryVolume, MountPath: memoryPath},
	} {
		runtime.SetMount(node, mount)
	}
	// Word by word: joined to one text, words with spaces would fall apart.
	node.Command = slices.Concat([]string{"/bin/bash", configPath + "/" + entrypointKey}, node.Command, node.Args)
	node.Args = nil
	return nil
}

func volumes(trainJob *v1alpha1.TrainJob) []corev1.Volume {
	empty := func(name string, medium corev1.StorageMedium) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}}
	}
	return []corev1.Volume{
		empty(softwareVolume, ""),
		empty(installVolume, ""),
		{Name: configVolume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: configMapName(trainJob)},
			DefaultMode:          ptr.To[int32](0o755),
		}}},
		empty(memoryVolume, corev1.StorageMediumMemory),
		{Name: curveVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName:  curveName(trainJob),
			DefaultMode: ptr.To[int32](0o400),
		}}},
	}
}

// settingsOf returns the settings of Flux: the TrainJob's, else those of the runtime's container, else the
// defaults.
func settingsOf(info *runtime.Info, trainJob *v1alpha1.TrainJob) map[string]string {
	settings := map[string]string{
		envViewImage:     defaultViewImage,
		envNetworkDevice: defaultNetworkDevice,
		envQueuePolicy:   defaultQueuePolicy,
	}
	take := func(env []corev1.EnvVar) {
		for _, variable := range env {
			if _, known := settings[variable.Name]; known && variable.ValueFrom == nil {
				settings[variable.Name] = variable.Value
			}
		}
	}
	if trainer := info.Trainer(); trainer != nil {
		if node := trainer.Container(v1alpha1.NodeContainer); node != nil {
			take(node.Env)
		}
	}
	if trainJob.Spec.Trainer != nil {
		take(trainJob.Spec.Trainer.Env)
	}
	return settings
}

func policyOf(info *runtime.Info) *v1alpha1.FluxMLPolicySource {
	if info.MLPolicy == nil {
		return nil
	}
	return info.MLPolicy.Flux
}

// Build implements framework.ComponentPlugin. The Secret is without its key: it is made once, when the Secret is.
func (*Flux) Build(_ context.Context, info *runtime.Info, trainJob *v1alpha1.TrainJob) ([]client.Object, error) {
	trainer := info.Trainer()
	if policyOf(info) == nil || trainer == nil {
		return nil, nil
	}
	node := trainer.Container(v1alpha1.NodeContainer)
	if node == nil {
		return nil, nil
	}
	return []client.Object{curveSecret(trainJob), configMap(info, trainJob, trainer, node)}, nil
}

// Sync implements framework.ComponentPlugin.
func (f *Flux) Sync(ctx context.Context, trainJob *v1alpha1.TrainJob, objects []client.Object) error {
	return f.keeper.Sync(ctx, trainJob, objects, func() (map[string][]byte, error) { return newCertificate(trainJob) })
}

// Finish implements framework.ComponentPlugin: both go with the TrainJob, and hold up nobody until then.
func (*Flux) Finish(context.Context, *v1alpha1.TrainJob) error {
	return nil
}

// hostlist returns the names of count hosts, in Flux's notation.
func hostlist(prefix string, count int32) string {
	return fmt.Sprintf("%s-[%s]", prefix, idset(count))
}

// idset returns the numbers from zero to below count, in Flux's notation.
func idset(count int32) string {
	if count <= 1 {
		return "0"
	}
	return fmt.Sprintf("0-%d", count-1)
}

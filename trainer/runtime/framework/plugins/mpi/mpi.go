// Package mpi lets mpirun on the launcher reach the workers.
package mpi

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"

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
const Name = "MPI"

// Environment variables that Open MPI reads in place of mpirun's options: up to version 4 those of ORTE, from 5
// those of PRRTE. Each version ignores the other's without a word.
const (
	envORTEHostfile = "OMPI_MCA_orte_default_hostfile"
	envORTEKeepFQDN = "OMPI_MCA_orte_keep_fqdn_hostnames"
	envORTESlots    = "OMPI_MCA_orte_set_default_slots"
	envORTERSHArgs  = "OMPI_MCA_plm_rsh_args"

	envPRTEHostfile = "PRTE_MCA_prte_default_hostfile"
	envPRTEKeepFQDN = "PRTE_MCA_prte_keep_fqdn_hostnames"
	envPRTESlots    = "PRTE_MCA_prte_set_default_slots"
	envPRTESSHArgs  = "PRTE_MCA_plm_ssh_args"
)

// sshArgs keep ssh trying while the SSH server of a worker starts.
const sshArgs = "-o ConnectionAttempts=10"

// defaultSSHAuthMountPath is the API's default, for runtimes that were stored without it.
const defaultSSHAuthMountPath = "/root/.ssh"

var policyPath = field.NewPath("runtime", "spec", "mlPolicy", "mpi")

// MPI gives launcher and workers the keys by which they trust each other, and the launcher the list of nodes.
type MPI struct {
	keeper *child.Keeper
}

var (
	_ framework.ValidationPlugin = (*MPI)(nil)
	_ framework.MLPolicyPlugin   = (*MPI)(nil)
	_ framework.ComponentPlugin  = (*MPI)(nil)
)

// New makes the plugin. It writes ConfigMaps and Secrets through c and reads them through live, which must not be
// cached.
func New(c client.Client, live client.Reader) *MPI {
	return &MPI{keeper: child.New(c, live)}
}

// Name implements framework.Plugin.
func (*MPI) Name() string {
	return Name
}

// Validate implements framework.ValidationPlugin.
func (*MPI) Validate(info *runtime.Info, trainJob *v1alpha1.TrainJob) field.ErrorList {
	policy := info.MPI()
	if policy == nil {
		return nil
	}
	var errs field.ErrorList
	if slots := policy.NumProcPerNode; slots != nil && *slots < 1 {
		errs = append(errs, field.Invalid(policyPath.Child("numProcPerNode"), *slots, "must be at least 1"))
	}
	if implementation := ptr.Deref(policy.MPIImplementation, ""); implementation != "" && implementation != v1alpha1.MPIImplementationOpenMPI {
		errs = append(errs, field.NotSupported(policyPath.Child("mpiImplementation"), implementation,
			[]v1alpha1.MPIImplementation{v1alpha1.MPIImplementationOpenMPI}))
	}
	if mountPath := sshAuthMountPath(policy); !path.IsAbs(mountPath) || strings.Contains(mountPath, ":") {
		errs = append(errs, field.Invalid(policyPath.Child("sshAuthMountPath"), mountPath, "must be an absolute path without colons"))
	}
	errs = append(errs, validateJobs(info, trainJob)...)
	errs = append(errs, validateQueued(info, trainJob)...)
	errs = append(errs, runtime.ReservedEnv(trainJob.Spec.Trainer, "Open MPI",
		envORTEHostfile, envORTEKeepFQDN, envORTESlots, envORTERSHArgs,
		envPRTEHostfile, envPRTEKeepFQDN, envPRTESlots, envPRTESSHArgs)...)
	return append(errs, validateHostfile(info, trainJob)...)
}

// validateJobs checks that the runtime has the replicated jobs that the nodes are spread over.
func validateJobs(info *runtime.Info, trainJob *v1alpha1.TrainJob) field.ErrorList {
	launcher, workers := info.ByName(runtime.LauncherJob), info.ByName(runtime.WorkersJob)
	if launcher == nil && workers == nil {
		return field.ErrorList{field.Required(field.NewPath("runtime", "spec", "template", "spec", "replicatedJobs"),
			fmt.Sprintf("an MPI runtime needs jobs named %s and %s", runtime.LauncherJob, runtime.WorkersJob))}
	}
	asNode := ptr.Deref(info.MPI().RunLauncherAsNode, false)
	if trainer := trainJob.Spec.Trainer; trainer != nil && ptr.Deref(trainer.NumNodes, 1) > 1 && asNode && (launcher == nil || workers == nil) {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "trainer", "numNodes"), *trainer.NumNodes,
			fmt.Sprintf("must be 1: the runtime, whose launcher is a node, lacks one of the jobs %s and %s", runtime.LauncherJob, runtime.WorkersJob))}
	}
	return nil
}

// validateQueued refuses nodes that Kueue does not count: by the number that the runtime has, it takes the launcher for
// so many pods, and the workers for one.
func validateQueued(info *runtime.Info, trainJob *v1alpha1.TrainJob) field.ErrorList {
	trainer, workers := trainJob.Spec.Trainer, info.ByName(runtime.WorkersJob)
	switch {
	case !runtime.Queued(trainJob), trainer != nil && trainer.NumNodes != nil, workers == nil,
		workers.Ancestor == v1alpha1.AncestorTrainer, workers.Job.Template.Spec.Parallelism != nil, workers.Count <= 1:
		return nil
	}
	return field.ErrorList{field.Required(field.NewPath("spec", "trainer", "numNodes"), fmt.Sprintf(
		"Kueue does not count the nodes that the runtime asks for, which are %d", ptr.Deref(info.MLPolicy.NumNodes, 1)))}
}

// EnforceMLPolicy implements framework.MLPolicyPlugin.
func (*MPI) EnforceMLPolicy(info *runtime.Info, trainJob *v1alpha1.TrainJob) error {
	policy := info.MPI()
	if policy == nil {
		return nil
	}
	for _, name := range []string{runtime.LauncherJob, runtime.WorkersJob} {
		podSet := info.ByName(name)
		if podSet == nil {
			continue
		}
		launches := name == runtime.LauncherJob
		runtime.SetVolume(podSet.PodSpec(), sshAuthVolume(trainJob))
		if launches {
			runtime.SetVolume(podSet.PodSpec(), hostfileVolume(trainJob))
		}
		node := podSet.Container(v1alpha1.NodeContainer)
		if node == nil {
			continue
		}
		runtime.SetMount(node, corev1.VolumeMount{Name: sshAuthVolumeName, MountPath: sshAuthMountPath(policy)})
		if launches {
			runtime.SetMount(node, corev1.VolumeMount{Name: hostfileVolumeName, MountPath: hostfileDir})
			runtime.SetEnv(node, openMPIEnv(slots(info, trainJob))...)
		}
	}
	return nil
}

func openMPIEnv(slots int32) []corev1.EnvVar {
	count := strconv.Itoa(int(slots))
	return []corev1.EnvVar{
		{Name: envORTEHostfile, Value: hostfilePath},
		{Name: envORTEKeepFQDN, Value: "true"},
		{Name: envORTESlots, Value: count},
		{Name: envORTERSHArgs, Value: sshArgs},
		{Name: envPRTEHostfile, Value: hostfilePath},
		// Not kept: PRRTE would not know its own host under the name in the hostfile, and reach for it by SSH.
		{Name: envPRTEKeepFQDN, Value: "false"},
		{Name: envPRTESlots, Value: count},
		{Name: envPRTESSHArgs, Value: sshArgs},
	}
}

// slots returns the processes of each node: the TrainJob's number, else the runtime's. A runtime's one, which
// is also its default, stands for one on each accelerator.
func slots(info *runtime.Info, trainJob *v1alpha1.TrainJob) int32 {
	if trainer := trainJob.Spec.Trainer; trainer != nil && trainer.NumProcPerNode != nil {
		return *trainer.NumProcPerNode
	}
	if count := ptr.Deref(info.MPI().NumProcPerNode, 1); count != 1 {
		return count
	}
	if node := nodeContainer(info); node != nil {
		return max(runtime.AcceleratorsOf(&node.Resources).Count, 1)
	}
	return 1
}

// nodeContainer returns the container in which the processes run: the workers', or the launcher's where it is
// the only node.
func nodeContainer(info *runtime.Info) *corev1.Container {
	for _, name := range []string{runtime.WorkersJob, runtime.LauncherJob} {
		if podSet := info.ByName(name); podSet != nil && podSet.Count > 0 {
			return podSet.Container(v1alpha1.NodeContainer)
		}
	}
	return nil
}

func sshAuthMountPath(policy *v1alpha1.MPIMLPolicySource) string {
	return ptr.Deref(policy.SSHAuthMountPath, defaultSSHAuthMountPath)
}

// Build implements framework.ComponentPlugin. The Secret is without its keys: they are made once, when it is.
func (*MPI) Build(_ context.Context, info *runtime.Info, trainJob *v1alpha1.TrainJob) ([]client.Object, error) {
	if info.MPI() == nil {
		return nil, nil
	}
	return []client.Object{sshAuthSecret(trainJob), hostfileConfigMap(info, trainJob)}, nil
}

// Sync implements framework.ComponentPlugin.
func (m *MPI) Sync(ctx context.Context, trainJob *v1alpha1.TrainJob, objects []client.Object) error {
	return m.keeper.Sync(ctx, trainJob, objects, newKeys)
}

// Finish implements framework.ComponentPlugin: both go with the TrainJob, and hold up nobody until then.
func (*MPI) Finish(context.Context, *v1alpha1.TrainJob) error {
	return nil
}

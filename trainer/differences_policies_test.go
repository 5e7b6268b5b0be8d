package trainer

import (
	"fmt"
	"strings"
)

// Paths of the children of MPI's inputs.
const (
	launcherPath = jobsPath + "[launcher]" + podPath + "/spec/containers[node]"
	hostfilePath = "ConfigMap/llm-mpi-hostfile/data/hostfile"
)

const indexField = "metadata.annotations['batch.kubernetes.io/job-completion-index']"

// policyDifferences are the intended differences from Kubeflow Trainer 2.3.0 in what ML policies do. The issues
// are those of github.com/kubeflow/trainer.
var policyDifferences = map[string][]intent{
	"mpi":                         {openMPI5("8", "NCCL_DEBUG"), workersImage},
	"mpi-own-volumes":             {openMPI5("1")},
	"mpi-processes":               {openMPI5("6")},
	"mpi-runtime-gpus":            {openMPI5("4")},
	"mpi-template-counts-workers": {openMPI5("1")},
	"mpi-workers-are-the-trainer": {openMPI5("8")},
	"mpi-one-node": {openMPI5("1"), launcherIsTheNode, {
		why:         "the hostfile has the nodes there are (#3954)",
		differences: []difference{{hostfilePath, hostfile(1, "node-0-0", "launcher-0-0"), hostfile(1, "launcher-0-0")}},
	}},
	"mpi-no-trainer": {openMPI5("2"), launcherIsTheNode, {
		why:         "the hostfile has the nodes there are (#3954)",
		differences: []difference{{hostfilePath, hostfile(2, "node-0-0", "launcher-0-0"), hostfile(2, "launcher-0-0")}},
	}},
	"mpi-runtime-nodes": {openMPI5("1"), {
		why: "the runtime's number of nodes counts nodes, as the TrainJob's does: mpirun runs on one launcher",
		differences: []difference{
			{jobsPath + "[launcher]/template/spec/parallelism", "4", "1"},
			{jobsPath + "[launcher]/template/spec/completions", "4", "1"},
			{jobsPath + "[node]/template/spec/parallelism", "1", "3"},
			{jobsPath + "[node]/template/spec/completions", "1", "3"},
			{
				hostfilePath,
				hostfile(1, "node-0-0", "launcher-0-0", "launcher-0-1", "launcher-0-2", "launcher-0-3"),
				hostfile(1, "node-0-0", "node-0-1", "node-0-2", "launcher-0-0"),
			},
		},
	}},
	"mpi-runtime-gpus-job-cpu": {openMPI5("4"), {
		why: "the slots come from the resources that the container has, not from the TrainJob's part of them (#3974)",
		differences: []difference{
			{launcherPath + "/env[OMPI_MCA_orte_set_default_slots]/value", "1", "4"},
			{hostfilePath, hostfile(1, "node-0-0", "launcher-0-0"), hostfile(4, "node-0-0", "launcher-0-0")},
		},
	}},
	"mpi-launcher-is-no-node": {openMPI5("8", "NCCL_DEBUG"), workersImage, {
		why: "workers get the environment and the resources that are the nodes', whether or not the launcher is one (#3427, #2650)",
		differences: append(env("NCCL_DEBUG=INFO"),
			difference{path: nodePath + "/env[order]", muster: "NCCL_DEBUG"},
			difference{path: nodePath + "/resources", kubeflow: "{}"},
			difference{path: nodePath + "/resources/limits/nvidia.com/gpu", muster: "8"},
			difference{path: nodePath + "/resources/requests/cpu", muster: "16"},
			difference{path: nodePath + "/resources/requests/memory", muster: "64Gi"},
		),
	}},
	"mpi-gang": {openMPI5("8", "NCCL_DEBUG"), workersImage, {
		why:         "minResources counts what stands only among the limits, as the API server will make requests of it",
		differences: []difference{{path: groupPath + "/minResources/nvidia.com/gpu", muster: "24"}},
	}},
	"mpi-gang-in-phases": {openMPI5("8", "NCCL_DEBUG"), workersImage, {
		why: "a launcher that depends on workers is in another gang, which would wait for ever if they were one",
		differences: append(phase0("2", "32"),
			difference{path: "PodGroup/llm-phase-0/spec/minResources/memory", muster: "128Gi"},
			difference{path: "PodGroup/llm-phase-0/spec/minResources/nvidia.com/gpu", muster: "16"},
			difference{jobsPath + "[node]" + labelPath, "llm", "llm-phase-0"},
			difference{groupPath + "/minMember", "3", "1"},
			difference{groupPath + "/minResources/cpu", "48", "16"},
			difference{groupPath + "/minResources/memory", "192Gi", "64Gi"},
			difference{path: groupPath + "/minResources/nvidia.com/gpu", muster: "8"},
		),
	}},

	"jax-existing-port": {{
		why: "a port that the container declares already stays, with its name (#3925)",
		differences: []difference{
			{path: nodePath + "/ports[0]/containerPort", kubeflow: "29500"},
			{path: nodePath + "/ports[meet]/containerPort", muster: "29500"},
			{path: nodePath + "/ports[meet]/name", muster: "meet"},
			{path: nodePath + "/ports[order]", muster: "meet"},
		},
	}},
	"jax-no-trainer": {{
		why: "the environment of JAX does not depend on the TrainJob's having a spec.trainer (#4082)",
		differences: append(
			env("JAX_NUM_PROCESSES=2", "JAX_COORDINATOR_ADDRESS=llm-node-0-0.llm:29500"),
			difference{path: nodePath + "/env[JAX_PROCESS_ID]/name", muster: "JAX_PROCESS_ID"},
			difference{path: nodePath + "/env[JAX_PROCESS_ID]/valueFrom/fieldRef/fieldPath", muster: indexField},
			difference{path: nodePath + "/env[order]", muster: "JAX_NUM_PROCESSES JAX_PROCESS_ID JAX_COORDINATOR_ADDRESS"},
			difference{path: nodePath + "/ports[0]/containerPort", muster: "29500"},
		),
	}},
	"jax-subdomain": {{
		why:         "the coordinator's address is the one under which the pods are in the runtime's subdomain",
		differences: []difference{{nodePath + "/env[JAX_COORDINATOR_ADDRESS]/value", "llm-node-0-0.llm:29500", "llm-node-0-0.mesh:29500"}},
	}},

	"xgboost-no-trainer": {{
		why: "the environment of XGBoost does not depend on the TrainJob's having a spec.trainer (#4082)",
		differences: append(
			env("DMLC_TRACKER_URI=llm-node-0-0.llm", "DMLC_TRACKER_PORT=29500", "DMLC_NUM_WORKER=2"),
			difference{path: nodePath + "/env[DMLC_TASK_ID]/name", muster: "DMLC_TASK_ID"},
			difference{path: nodePath + "/env[DMLC_TASK_ID]/valueFrom/fieldRef/fieldPath", muster: indexField},
			difference{path: nodePath + "/env[order]", muster: "DMLC_TRACKER_URI DMLC_TRACKER_PORT DMLC_TASK_ID DMLC_NUM_WORKER"},
			difference{path: nodePath + "/ports[0]/containerPort", muster: "29500"},
		),
	}},
	"xgboost-runtime-gpus-job-cpu": {{
		why:         "the workers come from the resources that the container has, not from the TrainJob's part of them (#3974)",
		differences: []difference{{nodePath + "/env[DMLC_NUM_WORKER]/value", "2", "8"}},
	}},
	"xgboost-gpu-memory": {{
		why:         "a megabyte of a GPU's memory is no GPU (#3997)",
		differences: []difference{{nodePath + "/env[DMLC_NUM_WORKER]/value", "8000", "2"}},
	}},
	"xgboost-mig": {{
		why:         "a slice of a GPU is a device",
		differences: []difference{{nodePath + "/env[DMLC_NUM_WORKER]/value", "2", "4"}},
	}},

	"torch-gpu-memory": {{
		why:         "a megabyte of a GPU's memory is no GPU (#3997)",
		differences: []difference{{nodePath + "/env[PET_NPROC_PER_NODE]/value", "auto", "6"}},
	}},
	"torch-mig":    {{why: "a slice of a GPU is a device", differences: []difference{{nodePath + "/env[PET_NPROC_PER_NODE]/value", "6", "auto"}}}},
	"torch-gaudi":  {accelerated("8")},
	"torch-neuron": {accelerated("32")},
	"torch-tpu":    {accelerated("4")},

	"torchtune-cpu": {{
		why:         "the number of processes comes from the resources that the container has, not from the TrainJob's part of them (#3974)",
		differences: []difference{{nodePath + "/env[PET_NPROC_PER_NODE]/value", "4", "auto"}},
	}},
	"torchtune-no-trainer": {{
		why: "torchrun's environment does not depend on the TrainJob's having a spec.trainer (#4076)",
		differences: append(
			env("PET_NNODES=1", "PET_NPROC_PER_NODE=auto", "PET_MASTER_ADDR=llm-node-0-0.llm", "PET_MASTER_PORT=29500"),
			difference{path: nodePath + "/env[PET_NODE_RANK]/name", muster: "PET_NODE_RANK"},
			difference{path: nodePath + "/env[PET_NODE_RANK]/valueFrom/fieldRef/fieldPath", muster: indexField},
			difference{path: nodePath + "/env[order]", muster: "PET_NNODES PET_NPROC_PER_NODE PET_NODE_RANK PET_MASTER_ADDR PET_MASTER_PORT"},
			difference{path: nodePath + "/ports[0]/containerPort", muster: "29500"},
		),
	}},

	"flux": {
		{
			why: "the command reaches Flux word by word: joined to one text, words with spaces would fall apart",
			differences: []difference{
				{nodePath + "/command[2]", "lmp -in in.reaxc -v x", "lmp"},
				{path: nodePath + "/command[3]", muster: "-in"},
				{path: nodePath + "/command[4]", muster: "in.reaxc"},
				{path: nodePath + "/command[5]", muster: "-v"},
				{path: nodePath + "/command[6]", muster: "x"},
			},
		},
		{
			why:         "shared memory that nobody can write is none",
			differences: []difference{{path: nodePath + "/volumeMounts[shared-memory]/readOnly", kubeflow: "true"}},
		},
		{
			why:         "the key is random, where it could be computed from the TrainJob's UID, and so must not be made again",
			differences: []difference{{path: "Secret/llm-flux-curve/immutable", muster: "true"}},
		},
		fluxVolume,
	},
}

// intendedRuntimeDifferences are all differences that TrainJobs of the runtimes Kubeflow Trainer ships show.
var intendedRuntimeDifferences = map[string][]intent{
	"deepspeed-distributed": {openMPI5("8")},
	"mlx-distributed":       {openMPI5("8")},
}

// openMPI5 is what Open MPI 5 reads, beside what Open MPI 4 does; the user's variables stand after both.
func openMPI5(slots string, user ...string) intent {
	four := []string{"OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_keep_fqdn_hostnames", "OMPI_MCA_orte_set_default_slots", "OMPI_MCA_plm_rsh_args"}
	five := []string{"PRTE_MCA_prte_default_hostfile", "PRTE_MCA_prte_keep_fqdn_hostnames", "PRTE_MCA_prte_set_default_slots", "PRTE_MCA_plm_ssh_args"}
	values := []string{"/etc/mpi/hostfile", "false", slots, "-o ConnectionAttempts=10"}
	names := func(lists ...[]string) string {
		var all []string
		for _, list := range lists {
			all = append(all, list...)
		}
		return strings.Join(all, " ")
	}
	differences := []difference{{launcherPath + "/env[order]", names(four, user), names(four, five, user)}}
	for i, name := range five {
		differences = append(differences,
			difference{path: launcherPath + "/env[" + name + "]/name", muster: name},
			difference{path: launcherPath + "/env[" + name + "]/value", muster: values[i]},
		)
	}
	return intent{why: "Open MPI 5 reads other variables than Open MPI 4, and would run everything on the launcher (#4028)", differences: differences}
}

var workersImage = intent{
	why:         "workers run the TrainJob's image, in which mpirun starts the same program (#2825, #4030)",
	differences: []difference{{nodePath + "/image", "registry.example.com/train:1", "registry.example.com/mine:2"}},
}

var launcherIsTheNode = intent{
	why: "a launcher that is the only node has no workers (#3954)",
	differences: []difference{
		{jobsPath + "[node]/template/spec/parallelism", "1", "0"},
		{jobsPath + "[node]/template/spec/completions", "1", "0"},
	},
}

// fluxVolume is another name for the volume of the scripts.
var fluxVolume = func() intent {
	const kubeflow, muster = "llm-flux-entrypoint", "flux-entrypoint"
	pod := jobsPath + "[node]" + podPath + "/spec"
	i := intent{why: "the volume of the scripts has a name that is short enough whatever the TrainJob's is"}
	rename := func(list, field, value string) {
		i.differences = append(i.differences,
			difference{path: list + "[" + kubeflow + "]/" + field, kubeflow: strings.ReplaceAll(value, "NAME", kubeflow)},
			difference{path: list + "[" + muster + "]/" + field, muster: strings.ReplaceAll(value, "NAME", muster)},
		)
	}
	order := func(list, names string) {
		i.differences = append(i.differences, difference{list + "[order]", strings.ReplaceAll(names, "NAME", kubeflow), strings.ReplaceAll(names, "NAME", muster)})
	}
	for list, names := range map[string]string{
		nodePath + "/volumeMounts":                           "flux-install spack-install NAME flux-curve shared-memory",
		pod + "/initContainers[flux-installer]/volumeMounts": "flux-install NAME",
	} {
		rename(list, "name", "NAME")
		rename(list, "mountPath", "/etc/flux-config")
		rename(list, "readOnly", "true")
		order(list, names)
	}
	rename(pod+"/volumes", "name", "NAME")
	rename(pod+"/volumes", "configMap/name", "llm-flux-entrypoint")
	rename(pod+"/volumes", "configMap/defaultMode", "493")
	order(pod+"/volumes", "spack-install flux-install NAME shared-memory flux-curve")
	return i
}()

func accelerated(devices string) intent {
	return intent{
		why:         "there is a process for each accelerator, where torchrun would count CPUs, and those of the machine",
		differences: []difference{{nodePath + "/env[PET_NPROC_PER_NODE]/value", "6", devices}},
	}
}

func hostfile(slots int, hosts ...string) string {
	var lines strings.Builder
	for _, host := range hosts {
		fmt.Fprintf(&lines, "llm-%s.llm slots=%d\n", host, slots)
	}
	return lines.String()
}

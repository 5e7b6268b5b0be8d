package trainer

import (
	"maps"
	"strings"
)

// intent is a reason to differ from Kubeflow Trainer, and where it shows.
type intent struct {
	why         string
	differences []difference
}

// Paths of the JobSet of the inputs.
const (
	jobsPath = "JobSet/llm/spec/replicatedJobs"
	podPath  = "/template/spec/template"
	nodePath = jobsPath + "[node]" + podPath + "/spec/containers[node]"

	datasetPath = jobsPath + "[dataset-initializer]" + podPath + "/spec/containers[dataset-initializer]"
	modelPath   = jobsPath + "[model-initializer]" + podPath + "/spec/containers[model-initializer]"

	labelPath = podPath + "/metadata/labels/scheduling.x-k8s.io/pod-group"
	groupPath = "PodGroup/llm/spec"

	volcanoPath = podPath + "/metadata/annotations/scheduling.k8s.io/group-name"
)

// intendedDifferences are all differences from Kubeflow Trainer 2.3.0, by the input in which they show: these,
// and those of the policies.
var intendedDifferences = merge(policyDifferences, map[string][]intent{
	"torch-gang-limits-only": {{
		why: "minResources counts what stands only among the limits, as the API server will make requests of it",
		differences: []difference{
			{path: groupPath + "/minResources/nvidia.com/gpu", muster: "32"},
		},
	}},
	"replicas": {{
		why: "the gang has the pods of all replicas of a replicated job",
		differences: []difference{
			{groupPath + "/minMember", "4", "8"},
			{groupPath + "/minResources/cpu", "6", "14"},
		},
	}},
	"initializers-before-node": {{
		why: "jobs that wait for each other are in different gangs, which would wait for ever if they were one",
		differences: append(phase0("2", "2"),
			difference{jobsPath + "[dataset-initializer]" + labelPath, "llm", "llm-phase-0"},
			difference{jobsPath + "[model-initializer]" + labelPath, "llm", "llm-phase-0"},
			difference{groupPath + "/minMember", "6", "4"},
			difference{groupPath + "/minResources/cpu", "66", "64"},
		),
	}},
	"in-order": {{
		why: "jobs that start in order are in different gangs, which would wait for ever if they were one",
		differences: append(phase0("1", "2"),
			difference{jobsPath + "[server]" + labelPath, "llm", "llm-phase-0"},
			difference{groupPath + "/minMember", "3", "2"},
			difference{groupPath + "/minResources/cpu", "4", "2"},
		),
	}},
	"unlabelled-jobs": {{
		why: "jobs that are known by their names only are configured too, instead of what the TrainJob says of them being lost",
		differences: []difference{
			{path: datasetPath + "/env[CACHE]/name", muster: "CACHE"},
			{path: datasetPath + "/env[CACHE]/value", muster: "/cache"},
			{datasetPath + "/env[STORAGE_URI]/value", "hf://default", "hf://tatsu-lab/alpaca"},
			{datasetPath + "/env[order]", "STORAGE_URI", "STORAGE_URI CACHE"},
			{path: datasetPath + "/envFrom[0]/secretRef/name", muster: "hub"},
			{path: modelPath + "/env[STORAGE_URI]/name", muster: "STORAGE_URI"},
			{path: modelPath + "/env[STORAGE_URI]/value", muster: "hf://meta/llama"},
			{path: modelPath + "/env[order]", muster: "STORAGE_URI"},
			{nodePath + "/image", "registry.example.com/pytorch:2.13", "registry.example.com/train:1"},
			{path: nodePath + "/command[0]", muster: "torchrun"},
			{path: nodePath + "/command[1]", muster: "train.py"},
			{path: nodePath + "/args[0]", muster: "--epochs"},
			{path: nodePath + "/args[1]", muster: "3"},
			{path: nodePath + "/env[NCCL_DEBUG]/name", muster: "NCCL_DEBUG"},
			{path: nodePath + "/env[NCCL_DEBUG]/value", muster: "INFO"},
			{path: nodePath + "/env[order]", muster: "NCCL_DEBUG"},
		},
	}},
	"plain-no-policy": {{
		why: "resourcesPerNode is merged whether or not the runtime has an mlPolicy",
		differences: []difference{
			{path: nodePath + "/resources", kubeflow: "{}"},
			{path: nodePath + "/resources/requests/cpu", muster: "4"},
		},
	}},
	"ttl": {{
		why: "a JobSet gets its TTL when the end of the training is recorded, so that it is never gone before",
		differences: []difference{
			{path: "JobSet/llm/spec/ttlSecondsAfterFinished", kubeflow: "600"},
			{path: "JobSet/llm/metadata/annotations/trainer.muster.dev/ttl-seconds-after-finished", muster: "600"},
		},
	}},
	"torch-existing-port": {{
		why: "the rendezvous port is added to the ports of the container, and replaces none",
		differences: []difference{
			{nodePath + "/ports[0]/containerPort", "29500", "8080"},
			{path: nodePath + "/ports[1]/containerPort", muster: "29500"},
		},
	}},
	"torch-no-trainer": {{
		why: "torchrun's environment does not depend on the TrainJob's having a spec.trainer",
		differences: append(
			env("PET_NNODES=2", "PET_NPROC_PER_NODE=1", "PET_MASTER_ADDR=llm-node-0-0.llm", "PET_MASTER_PORT=29500"),
			difference{path: nodePath + "/env[PET_NODE_RANK]/name", muster: "PET_NODE_RANK"},
			difference{path: nodePath + "/env[PET_NODE_RANK]/valueFrom/fieldRef/fieldPath", muster: "metadata.annotations['batch.kubernetes.io/job-completion-index']"},
			difference{path: nodePath + "/env[order]", muster: "PET_NNODES PET_NPROC_PER_NODE PET_NODE_RANK PET_MASTER_ADDR PET_MASTER_PORT"},
			difference{path: nodePath + "/ports[0]/containerPort", muster: "29500"},
		),
	}},
	"torch-runtime-gpu-job-cpu": {{
		why: "the number of processes comes from the resources that the container has, not from the TrainJob's part of them",
		differences: []difference{
			{nodePath + "/env[PET_NPROC_PER_NODE]/value", "4", "auto"},
		},
	}},
	"torch-subdomain": {{
		why: "the rendezvous address is the one under which the pods are in the runtime's subdomain",
		differences: []difference{
			{nodePath + "/env[PET_MASTER_ADDR]/value", "llm-node-0-0.llm", "llm-node-0-0.mesh"},
		},
	}},
})

// intendedVolcanoDifferences are all differences that the inputs of Volcano show.
var intendedVolcanoDifferences = map[string][]intent{
	"limits-only": {{
		why:         "minResources counts what stands only among the limits, as the API server will make requests of it",
		differences: []difference{{path: groupPath + "/minResources/nvidia.com/gpu", muster: "32"}},
	}},
	"in-phases": {{
		why: "jobs that wait for each other are in different gangs, which would wait for ever if they were one",
		differences: append(volcanoPhase0("2", "2"),
			difference{jobsPath + "[dataset-initializer]" + volcanoPath, "llm", "llm-phase-0"},
			difference{jobsPath + "[model-initializer]" + volcanoPath, "llm", "llm-phase-0"},
			difference{groupPath + "/minMember", "6", "4"},
			difference{groupPath + "/minResources/cpu", "66", "64"},
		),
	}},
}

func merge(a, b map[string][]intent) map[string][]intent {
	merged := maps.Clone(a)
	maps.Copy(merged, b)
	return merged
}

// phase0 is a whole PodGroup that only Muster makes, for the pods before the training nodes.
func phase0(members, cpu string) []difference {
	return append(groupOfPhase0("scheduling.x-k8s.io/v1alpha1", members, cpu),
		difference{path: "PodGroup/llm-phase-0/spec/scheduleTimeoutSeconds", muster: "120"})
}

// volcanoPhase0 is such a group of Volcano.
func volcanoPhase0(members, cpu string) []difference {
	return groupOfPhase0("scheduling.volcano.sh/v1beta1", members, cpu)
}

func groupOfPhase0(apiVersion, members, cpu string) []difference {
	fields := map[string]string{
		"apiVersion":         apiVersion,
		"kind":               "PodGroup",
		"metadata/name":      "llm-phase-0",
		"metadata/namespace": "research",
		"metadata/ownerReferences[llm]/apiVersion":         "trainer.kubeflow.org/v1alpha1",
		"metadata/ownerReferences[llm]/blockOwnerDeletion": "true",
		"metadata/ownerReferences[llm]/controller":         "true",
		"metadata/ownerReferences[llm]/kind":               "TrainJob",
		"metadata/ownerReferences[llm]/name":               "llm",
		"metadata/ownerReferences[llm]/uid":                "7b1f6c5e-0000-4000-8000-000000000001",
		"metadata/ownerReferences[order]":                  "llm",
		"spec/minMember":                                   members,
		"spec/minResources/cpu":                            cpu,
	}
	var differences []difference
	for path, value := range fields {
		differences = append(differences, difference{path: "PodGroup/llm-phase-0/" + path, muster: value})
	}
	return differences
}

// env is variables of the training container that only Muster sets.
func env(assignments ...string) []difference {
	var differences []difference
	for _, assignment := range assignments {
		name, value, _ := strings.Cut(assignment, "=")
		differences = append(differences,
			difference{path: nodePath + "/env[" + name + "]/name", muster: name},
			difference{path: nodePath + "/env[" + name + "]/value", muster: value},
		)
	}
	return differences
}

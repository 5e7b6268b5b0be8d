package gangplan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// LevelArgs are the arguments by which a plugin is told the levels of the topology. It is embedded in the
// arguments of every plugin that plans gangs.
type LevelArgs struct {
	// TopologyLevels are the node labels that say where a node stands, outermost first. A node without the
	// label of a level is outside that level. None by default: the cluster is one domain of single nodes.
	TopologyLevels []string `json:"topologyLevels,omitempty"`

	// TopologyPreset names a list of labels that a cloud or a tool publishes: see Presets. It excludes
	// TopologyLevels.
	TopologyPreset string `json:"topologyPreset,omitempty"`
}

// cliqueLabel is the NVLink domain of a node with multi-node NVLink, as <cluster UUID>.<clique ID>. The device
// plugin of the NVIDIA GPU Operator sets it.
const cliqueLabel = "nvidia.com/gpu.clique"

// presets are lists of node labels, outermost first, by the name of who publishes them. Single nodes are the
// innermost level in each.
var presets = map[string][]string{
	// Kubernetes' well-known labels, which every cloud provider sets:
	// kubernetes.io/docs/reference/labels-annotations-taints. Azure publishes no labels below the zone.
	"kubernetes": {corev1.LabelTopologyRegion, corev1.LabelTopologyZone},
	// The zone and the NVLink domain, for clusters that tell nothing of the network in between.
	"nvlink": {corev1.LabelTopologyZone, cliqueLabel},
	// Google Kubernetes Engine, machine types of the AI Hypercomputer; on A4X a sub-block is an NVLink domain:
	// cloud.google.com/ai-hypercomputer/docs/workloads/schedule-gke-workloads-tas
	"gke": {corev1.LabelTopologyZone, "cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock",
		"cloud.google.com/gce-topology-host"},
	// Amazon EKS; some instance types have a fourth layer:
	// docs.aws.amazon.com/eks/latest/userguide/ml-workload-topology.html
	"aws": {corev1.LabelTopologyZone, "topology.k8s.aws/network-node-layer-1", "topology.k8s.aws/network-node-layer-2",
		"topology.k8s.aws/network-node-layer-3", "topology.k8s.aws/network-node-layer-4"},
	// Oracle Kubernetes Engine, RDMA shapes with a capacity topology:
	// github.com/oracle-quickstart/oci-hpc-oke, docs/using-rdma-network-locality-when-running-workloads-on-oke.md
	"oci": {corev1.LabelTopologyZone, "oci.oraclecloud.com/rdma.hpc_island_id", "oci.oraclecloud.com/rdma.network_block_id",
		"oci.oraclecloud.com/rdma.local_block_id"},
	// NVIDIA Topograph from 1.0 on; where the GPU Operator labels the NVLink domain, Topograph can leave it to that:
	// docs.nvidia.com/topograph/v1.0.0/reference/node-labels-and-annotations
	"topograph": {"fabric.topograph.run/tier-2", "fabric.topograph.run/tier-1", "fabric.topograph.run/tier-0",
		"accelerator.topograph.run/domain", "accelerator.topograph.run/sub-domain", cliqueLabel},
	// NVIDIA Topograph before 1.0:
	// docs.nvidia.com/topograph/reference/node-labels-and-annotations
	"topograph-v0": {"network.topology.nvidia.com/core", "network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf",
		"network.topology.nvidia.com/accelerator", cliqueLabel},
}

// Presets lists the names that TopologyPreset may have.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// Preset returns the levels of a preset, outermost first; nil if there is none of that name.
func Preset(name string) []string { return slices.Clone(presets[name]) }

// Levels returns the node labels of the levels, outermost first.
func (a *LevelArgs) Levels() []string {
	if a.TopologyPreset != "" {
		return Preset(a.TopologyPreset)
	}
	return a.TopologyLevels
}

// Validate returns what is wrong with the arguments, by field.
func (a *LevelArgs) Validate() field.ErrorList {
	var errs field.ErrorList
	levels, preset := field.NewPath("topologyLevels"), field.NewPath("topologyPreset")
	seen := map[string]bool{}
	for i, label := range a.TopologyLevels {
		for _, msg := range validation.IsQualifiedName(label) {
			errs = append(errs, field.Invalid(levels.Index(i), label, msg))
		}
		if seen[label] {
			errs = append(errs, field.Duplicate(levels.Index(i), label))
		}
		if label == corev1.LabelHostname && i < len(a.TopologyLevels)-1 {
			errs = append(errs, field.Invalid(levels.Index(i), label, "single nodes are the innermost level; it must be the last"))
		}
		seen[label] = true
	}
	if a.TopologyPreset == "" {
		return errs
	}
	if len(a.TopologyLevels) > 0 {
		errs = append(errs, field.Forbidden(preset, "topologyLevels names the levels already"))
	}
	if presets[a.TopologyPreset] == nil {
		errs = append(errs, field.NotSupported(preset, a.TopologyPreset, Presets()))
	}
	return errs
}

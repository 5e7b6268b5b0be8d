package workload

// Dialect is how pods say which gang they belong to.
type Dialect string

const (
	// Plain pods have no gang.
	Plain Dialect = "plain"

	// Label is a PodGroup of scheduling.x-k8s.io, named by a label.
	Label Dialect = "label"

	// Native is a PodGroup of scheduling.k8s.io, named in the spec.
	Native Dialect = "native"
)

// Scheduler is one of those that are compared.
type Scheduler struct {
	// Name in the report.
	Name string

	// Binary is the test binary that has it linked: "main", or the name of a module under hack/bench/peers.
	Binary string

	Dialect Dialect

	// Gates are the feature gates that it needs.
	Gates []string

	// Profile is the plugins and pluginConfig of its KubeSchedulerConfiguration, as YAML indented by two; empty for
	// kube-scheduler's defaults.
	Profile string

	// Topology is set if it can keep a gang in one rack, Preempts if it can make room for a whole gang.
	Topology, Preempts bool
}

const (
	// Ceiling is the scheduler without gangs: what the API server and etcd let through.
	Ceiling = "no gangs"

	// Ours is the scheduler whose ratios to the others are reported.
	Ours = "muster"

	// OursNative is Muster with the PodGroups of scheduling.k8s.io.
	OursNative = "muster native"

	// KubernetesNative is Kubernetes' own gang scheduling.
	KubernetesNative = "kubernetes native"

	// Coscheduling is the plugin of scheduler-plugins.
	Coscheduling = "coscheduling"
)

// RackLabel is the node label of racks, the innermost of the levels.
const (
	RackLabel = "topology.kubernetes.io/rack"
	levels    = "topology.kubernetes.io/zone, topology.kubernetes.io/block, " + RackLabel
)

const musterProfile = `  plugins:
    queueSort:
      disabled: [{name: "*"}]
      enabled: [{name: Coscheduling}]
    multiPoint:
      enabled: [{name: Coscheduling}, {name: GPUTopology, weight: 4}]
    preFilter:
      enabled: [{name: Coscheduling}]
    postFilter:
      enabled: [{name: Coscheduling}]
    placementGenerate:
      disabled: [{name: TopologyPlacementGenerator}]
    placementScore:
      enabled: [{name: GPUTopology, weight: 100}]
  pluginConfig:
  - name: Coscheduling
    args: {topologyLevels: [` + levels + `]}
  - name: GPUTopology
    args: {topologyLevels: [` + levels + `]}
`

var nativeGates = []string{"GenericWorkload", "TopologyAwareWorkloadScheduling"}

// Schedulers lists what is compared, the ceiling first.
func Schedulers() []Scheduler {
	return []Scheduler{
		{Name: Ceiling, Binary: "main", Dialect: Plain},
		{Name: Ours, Binary: "main", Dialect: Label, Profile: musterProfile, Topology: true, Preempts: true},
		{Name: OursNative, Binary: "main", Dialect: Native, Gates: nativeGates, Profile: musterProfile, Topology: true, Preempts: true},
		{Name: KubernetesNative, Binary: "main", Dialect: Native, Gates: nativeGates, Topology: true, Preempts: true},
		{Name: Coscheduling, Binary: "scheduler-plugins", Dialect: Label, Profile: `  plugins:
    queueSort:
      disabled: [{name: "*"}]
      enabled: [{name: Coscheduling}]
    multiPoint:
      enabled: [{name: Coscheduling}]
`},
	}
}

// Divide is how scheduler_perf of its version of Kubernetes calls division in its templates.
func (s Scheduler) Divide() string {
	if s.Binary == "main" {
		return "DivideInt"
	}
	return "div"
}

// mostWaiting is beside how many waiting gangs single pods are still scheduled: each event has kube-scheduler try all
// the older pods that wait again, on every node, and beside 2,000 gangs the younger ones had no turn in ten minutes.
const mostWaiting = 500

// Runs reports whether the scheduler can do what the case asks, all of it or, without gangs, as far as it goes for
// single pods.
func (s *Scheduler) Runs(c *Case) bool {
	switch {
	case s.Dialect == Plain:
		return !c.Refused && c.Waiting.Count <= mostWaiting
	case c.Topology:
		return s.Topology
	case c.Filling == Victims:
		return s.Preempts
	}
	return true
}

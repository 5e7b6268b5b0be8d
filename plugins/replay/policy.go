package replay

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/muster-sched/muster/plugins/simulation"
)

// Policy is a way to schedule.
type Policy struct {
	// Name is how it is asked for, and Summary says what it is.
	Name, Summary string
	// Peer is whether it is not Muster.
	Peer bool
	// start makes a cluster with it.
	start func(*run) (engine, error)
	// native is whether it needs the feature gate GenericWorkload.
	native bool
}

// Policies are all that there are, Muster's first.
func Policies() []Policy {
	return []Policy{
		muster("muster", "Muster as shipped", ""),
		muster("muster-reservation", "Muster with a reservation for who waits longer than 30 minutes, and backfill", "reservation: {afterSeconds: 1800}"),
		muster("muster-shortest", "Muster with the shortest declared run time first, and a reservation as above", "reservation: {afterSeconds: 1800}\nqueueOrder: ShortestFirst"),
		oneByOne("native", "a model of Kubernetes' own gang scheduling, default scoring", reverts, false),
		oneByOne("native-packed", "the same, scoring full nodes higher (MostAllocated by GPUs)", reverts, true),
		oneByOne("coscheduling", "a model of scheduler-plugins' Coscheduling, default scoring", parks, false),
		oneByOne("coscheduling-packed", "the same, scoring full nodes higher (MostAllocated by GPUs)", parks, true),
		oneByOne("no-gang", "a model of the default scheduler, pods one by one, default scoring", binds, false),
		oneByOne("no-gang-packed", "the same, scoring full nodes higher (MostAllocated by GPUs)", binds, true),
	}
}

// Checks are the real schedulers behind the models of peers, which under load take too long for a month, and models that
// show what the order of the queue does.
func Checks() []Policy {
	return []Policy{
		native("native-real", "the real kube-scheduler with GangScheduling, default scoring", nil),
		native("native-packed-real", "the same, scoring full nodes higher", mostAllocated()),
		noGang("no-gang-real", "the real kube-scheduler, default scoring", nil),
		noGang("no-gang-packed-real", "the same, scoring full nodes higher", mostAllocated()),
		oneByOne("oldest-first", "a model: gangs whole, packed, tried whenever something changes, the oldest first", byAge, true),
		oneByOne("smallest-first", "the same, those with the fewest GPUs first", bySize, true),
		oneByOne("shortest-first", "the same, the shortest declared run time first", byRunTime, true),
	}
}

// PoliciesNamed finds policies by their names; no names are all policies.
func PoliciesNamed(wanted ...string) ([]Policy, error) {
	all := Policies()
	if len(wanted) == 0 {
		return all, nil
	}
	all = append(all, Checks()...)
	var known []string
	for _, p := range all {
		known = append(known, p.Name)
	}
	var chosen []Policy
	for _, name := range wanted {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, fmt.Errorf("there is no policy %q; there are %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

const levels = "topologyLevels: [" + blockLabel + ", " + rackLabel + "]"

func muster(name, summary, args string) Policy {
	return Policy{Name: name, Summary: summary, start: func(r *run) (engine, error) {
		return newScheduler(r, simulation.Options{Coscheduling: levels + "\n" + args, GPUTopology: levels}, true)
	}}
}

func native(name, summary string, config []schedconfig.PluginConfig) Policy {
	return Policy{Name: name, Summary: summary, Peer: true, native: true, start: func(r *run) (engine, error) {
		return newScheduler(r, simulation.Options{Native: true, Scheduler: defaultScheduler(config, names.GangScheduling)}, true)
	}}
}

func oneByOne(name, summary string, style style, packed bool) Policy {
	return Policy{Name: name, Summary: summary, Peer: true, start: func(r *run) (engine, error) { return newParking(r, style, packed), nil }}
}

func noGang(name, summary string, config []schedconfig.PluginConfig) Policy {
	return Policy{Name: name, Summary: summary, Peer: true, start: func(r *run) (engine, error) {
		return newScheduler(r, simulation.Options{Scheduler: defaultScheduler(config)}, false)
	}}
}

// defaultScheduler is the default profile without what needs volumes, claims or images.
func defaultScheduler(config []schedconfig.PluginConfig, more ...string) *simulation.Scheduler {
	enabled := []schedconfig.Plugin{
		{Name: names.PrioritySort}, {Name: names.SchedulingGates}, {Name: names.NodeUnschedulable}, {Name: names.NodeName},
		{Name: names.TaintToleration, Weight: 3}, {Name: names.NodeAffinity, Weight: 2}, {Name: names.NodePorts},
		{Name: names.NodeResourcesFit, Weight: 1}, {Name: names.PodTopologySpread, Weight: 2}, {Name: names.InterPodAffinity, Weight: 2},
		{Name: names.NodeResourcesBalancedAllocation, Weight: 1}, {Name: names.DefaultBinder},
	}
	for _, name := range more {
		enabled = append(enabled, schedconfig.Plugin{Name: name})
	}
	s := &simulation.Scheduler{Plugins: &schedconfig.Plugins{}, PluginConfig: config}
	s.Plugins.MultiPoint.Enabled = enabled
	return s
}

func mostAllocated() []schedconfig.PluginConfig {
	return []schedconfig.PluginConfig{{Name: names.NodeResourcesFit, Args: &schedconfig.NodeResourcesFitArgs{
		ScoringStrategy: &schedconfig.ScoringStrategy{
			Type:      schedconfig.MostAllocated,
			Resources: []schedconfig.ResourceSpec{{Name: string(simulation.GPU), Weight: 1}},
		},
	}}}
}

// gates is held while a scheduler runs that depends on the process's feature gates: for writing with the gate
// GenericWorkload on, for reading with it off.
var gates sync.RWMutex

// withGates does something with the feature gates as a policy needs them.
func withGates(p Policy, do func() error) error {
	if !p.native {
		gates.RLock()
		defer gates.RUnlock()
		return do()
	}
	gates.Lock()
	defer gates.Unlock()
	if err := utilfeature.DefaultMutableFeatureGate.Set(string(features.GenericWorkload) + "=true"); err != nil {
		return err
	}
	err := do()
	if off := utilfeature.DefaultMutableFeatureGate.Set(string(features.GenericWorkload) + "=false"); off != nil && err == nil {
		err = off
	}
	return err
}

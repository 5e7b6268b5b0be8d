package gangplan

import (
	"reflect"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// emptiest is the domain that PodTopologySpread takes for the emptiest in a cycle state.
type emptiest struct {
	domain string
	pods   int64
}

// emptiestOf returns the emptiest domain for each spread that a state keeps. It reports false if that cannot be told:
// the state is the plugin's own, and only its fields are known.
func emptiestOf(state fwk.CycleState) ([]emptiest, bool) {
	data, err := state.Read(fwk.StateKey("PreFilter" + names.PodTopologySpread))
	if err != nil {
		return nil, false
	}
	own := reflect.Indirect(reflect.ValueOf(data))
	if own.Kind() != reflect.Struct {
		return nil, false
	}
	spreads := own.FieldByName("CriticalPaths")
	if spreads.Kind() != reflect.Slice {
		return nil, false
	}
	var out []emptiest
	for i := range spreads.Len() {
		paths := reflect.Indirect(spreads.Index(i))
		if paths.Kind() != reflect.Array || paths.Len() == 0 || paths.Index(0).Kind() != reflect.Struct {
			return nil, false
		}
		domain, pods := paths.Index(0).FieldByName("TopologyValue"), paths.Index(0).FieldByName("MatchNum")
		if domain.Kind() != reflect.String || !pods.CanInt() {
			return nil, false
		}
		out = append(out, emptiest{domain.String(), pods.Int()})
	}
	return out, true
}

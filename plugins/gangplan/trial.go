package gangplan

import (
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// trialKey marks the cycle state of a trial.
const trialKey fwk.StateKey = "muster.dev/trial"

type trialMark struct{}

func (trialMark) Clone() fwk.StateData { return trialMark{} }

func newTrialState() fwk.CycleState {
	state := framework.NewCycleState()
	state.Write(trialKey, trialMark{})
	return state
}

// IsTrial reports whether a plugin is asked while a gang is being planned, where a plugin that plans
// gangs itself has to stand aside.
func IsTrial(state fwk.CycleState) bool {
	_, err := state.Read(trialKey)
	return err == nil
}

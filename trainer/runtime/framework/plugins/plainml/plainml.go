// Package plainml counts the nodes of runtimes that name no training framework.
package plainml

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/framework"
)

// Name of the plugin.
const Name = "PlainML"

// PlainML sets the number of nodes where the runtime names no framework. It also refuses node and process
// counts that no framework could use, so that the framework plugins need not.
type PlainML struct{}

var (
	_ framework.ValidationPlugin = (*PlainML)(nil)
	_ framework.MLPolicyPlugin   = (*PlainML)(nil)
)

// New makes the plugin.
func New() *PlainML {
	return &PlainML{}
}

// Name implements framework.Plugin.
func (*PlainML) Name() string {
	return Name
}

// Validate implements framework.ValidationPlugin.
func (*PlainML) Validate(info *runtime.Info, trainJob *v1alpha1.TrainJob) field.ErrorList {
	var errs field.ErrorList
	atLeastOne := func(path *field.Path, value *int32) {
		if value != nil && *value < 1 {
			errs = append(errs, field.Invalid(path, *value, "must be at least 1"))
		}
	}
	if info.MLPolicy != nil {
		atLeastOne(field.NewPath("runtime", "spec", "mlPolicy", "numNodes"), info.MLPolicy.NumNodes)
	}
	if trainer := trainJob.Spec.Trainer; trainer != nil {
		path := field.NewPath("spec", "trainer")
		atLeastOne(path.Child("numNodes"), trainer.NumNodes)
		atLeastOne(path.Child("numProcPerNode"), trainer.NumProcPerNode)
	}
	return errs
}

// EnforceMLPolicy implements framework.MLPolicyPlugin.
func (*PlainML) EnforceMLPolicy(info *runtime.Info, trainJob *v1alpha1.TrainJob) error {
	if info.MLPolicy != nil && info.MLPolicy.MLPolicySource != (v1alpha1.MLPolicySource{}) {
		return nil
	}
	trainer := info.Trainer()
	if trainer != nil && trainJob.Spec.Trainer != nil && trainJob.Spec.Trainer.NumNodes != nil {
		trainer.Count = *trainJob.Spec.Trainer.NumNodes
	}
	return nil
}

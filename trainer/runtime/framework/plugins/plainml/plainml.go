// Package plainml checks what training needs of a TrainJob whatever its framework is.
package plainml

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime"
	"github.com/muster-sched/muster/trainer/runtime/framework"
)

// Name of the plugin.
const Name = "PlainML"

// PlainML refuses node and process counts that no framework could use, so that the framework plugins need
// not. A runtime that names no framework gets nothing but its nodes, and they are counted already.
type PlainML struct{}

var _ framework.ValidationPlugin = (*PlainML)(nil)

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

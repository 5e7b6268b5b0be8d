// Package plugins lists the plugins of the trainer.
package plugins

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/coscheduling"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/jobset"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/plainml"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/torch"
)

// All returns every plugin, in the order in which they run. CoScheduling stands before JobSet, because
// pods must find their group.
func All(c client.Client, schedulerName string) []framework.Plugin {
	return []framework.Plugin{
		plainml.New(),
		torch.New(),
		coscheduling.New(c, schedulerName),
		jobset.New(c),
	}
}

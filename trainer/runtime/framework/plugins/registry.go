// Package plugins lists the plugins of the trainer.
package plugins

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/coscheduling"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/flux"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/jax"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/jobset"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/mpi"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/native"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/plainml"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/torch"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/volcano"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/xgboost"
	"github.com/muster-sched/muster/trainer/runtime/gang"
)

// All returns every plugin, in the order in which they run. JobSet is the last, because pods must find their
// group, and what they mount. The plugins read and write through c, which may be cached. Secrets, ConfigMaps, and
// what c may not show yet, they read through live, which must not be.
func All(c client.Client, live client.Reader, schedulerName string) []framework.Plugin {
	return []framework.Plugin{
		plainml.New(),
		torch.New(),
		mpi.New(c, live),
		jax.New(),
		xgboost.New(),
		flux.New(c, live),
		coscheduling.New(c, live, schedulerName),
		volcano.New(c, live),
		native.New(c, live, schedulerName),
		jobset.New(c, live),
	}
}

// Groups returns the groups that plugins keep, in the order of the plugins.
func Groups(steps []framework.Plugin) []*gang.Groups {
	var groups []*gang.Groups
	for _, step := range steps {
		if keeper, ok := step.(interface{ Kept() *gang.Groups }); ok {
			groups = append(groups, keeper.Kept())
		}
	}
	return groups
}

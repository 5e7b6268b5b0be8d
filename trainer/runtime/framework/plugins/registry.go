// Package plugins lists the plugins of the trainer.
package plugins

import (
	"fmt"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
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
		coscheduling.New(c, schedulerName),
		volcano.New(c),
		native.New(c, schedulerName),
		jobset.New(c, live),
	}
}

// Groups returns empty objects of the kinds of groups that the plugins keep and the API server serves: the
// ones to index by gang.OwnerIndex and to watch. The plugins must be made after it, to know the same kinds.
func Groups(c client.Client) ([]client.Object, error) {
	groups := []client.Object{&podgroup.PodGroup{}}
	for _, group := range []client.Object{&volcano.PodGroup{}, &schedulingv1beta1.PodGroup{}} {
		gvk, err := c.GroupVersionKindFor(group)
		if err != nil {
			return nil, err
		}
		_, err = c.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking up %s: %w", gvk, err)
		}
		groups = append(groups, group)
	}
	return groups, nil
}

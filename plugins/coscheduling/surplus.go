package coscheduling

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-sched/muster/plugins/gangplan"
	"github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/podgroup/planner"
)

// maxKindsLeftOut bounds how many kinds of members are left out of one plan.
const maxKindsLeftOut = 8

// planOthers plans members of a gang that has its minimum when the first of them has no room: one whose slice is
// full must not keep those of other slices waiting. Members of the first one's kind are left out, then those of the
// next that has no room. Without a plan, any change of the cluster may help some kind, so that the verdict must
// not wait for a particular one.
func (pl *Coscheduling) planOthers(ctx context.Context, key types.NamespacedName, group *v1alpha1.PodGroup, c census, d *gangplan.Demand, verdict *refusal) (*gangplan.Demand, *planner.Plan, error) {
	for range maxKindsLeftOut {
		others := ofOtherKinds(d)
		if len(others) == 0 {
			return nil, nil, nil
		}
		verdict.watch = nil
		var err error
		if d, err = pl.demand(ctx, group, c, others, 1); err != nil {
			return nil, nil, err
		}
		plan, _, err := pl.plan(ctx, key, d)
		if err != nil || plan != nil {
			return d, plan, err
		}
	}
	return nil, nil, nil
}

// ofOtherKinds returns the members that the planner can tell from the first one.
func ofOtherKinds(d *gangplan.Demand) []*corev1.Pod {
	var others []*corev1.Pod
	for i, m := range d.Members {
		if m != d.Members[0] {
			others = append(others, d.Pods[i])
		}
	}
	return others
}

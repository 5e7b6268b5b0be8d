package coscheduling

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/muster-sched/muster/podgroup"
	group "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/framework"
	"github.com/muster-sched/muster/trainer/runtime/gang"
)

var _ framework.StatusPlugin = (*CoScheduling)(nil)

// Status implements framework.StatusPlugin: a TrainJob has failed when one of its gangs was given up, because its
// members did not meet in time too often. Its pods would wait for ever.
func (c *CoScheduling) Status(ctx context.Context, trainJob *v1alpha1.TrainJob) error {
	if trainJob.Finished() {
		return nil
	}
	groups := &group.PodGroupList{}
	if err := c.Client.List(ctx, groups, client.InNamespace(trainJob.Namespace), client.MatchingFields{gang.OwnerIndex: string(trainJob.UID)}); err != nil {
		return fmt.Errorf("listing groups: %w", err)
	}
	for i := range groups.Items {
		if message := GivenUp(&groups.Items[i]); message != "" {
			meta.SetStatusCondition(&trainJob.Status.Conditions, metav1.Condition{
				Type: v1alpha1.TrainJobFailed, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRendezvousTimedOut, Message: message,
			})
			return nil
		}
	}
	return nil
}

// GivenUp says why a gang is not tried any more; "" if it is, or if its status does not tell yet.
func GivenUp(g *group.PodGroup) string {
	settings, _ := podgroup.ParseSettings(g.Annotations)
	if !settings.Record.GivenUp || g.Status.Phase != schedulingv1alpha1.PodGroupFailed {
		return ""
	}
	message := fmt.Sprintf("PodGroup %s was given up: its members did not meet in time, %d times in a row", g.Name, settings.Record.Attempts)
	if timedOut := meta.FindStatusCondition(g.Status.Conditions, group.ConditionRendezvousTimedOut); timedOut != nil {
		message += "; the last time, " + timedOut.Message
	}
	return message
}

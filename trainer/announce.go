package trainer

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// announcer has TrainJobs looked at again because of something that is no object of theirs.
type announcer struct {
	// trainJobs lists the TrainJobs; it may be cached.
	trainJobs client.Reader

	// changed receives them.
	changed chan<- event.GenericEvent
}

// announce tells of the unfinished TrainJobs that concern names.
func (a *announcer) announce(ctx context.Context, concerns func(*v1alpha1.TrainJob) bool) error {
	list := &v1alpha1.TrainJobList{}
	if err := a.trainJobs.List(ctx, list); err != nil {
		return fmt.Errorf("listing TrainJobs: %w", err)
	}
	for i := range list.Items {
		trainJob := &list.Items[i]
		if trainJob.Finished() || !concerns(trainJob) {
			continue
		}
		select {
		case a.changed <- event.GenericEvent{Object: trainJob}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

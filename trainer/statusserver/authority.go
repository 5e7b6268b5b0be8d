package statusserver

import (
	"bytes"
	"context"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// authorityPeriod is how often the file is looked at. A new authority signs certificates long after it is
// mounted, and a kubelet needs a minute to bring it to the pods.
const authorityPeriod = time.Minute

// AuthorityWatcher tells of a change of the certificate authority, which all training pods must learn of.
type AuthorityWatcher struct {
	// File has the authority.
	File string

	// TrainJobs lists the TrainJobs; it may be cached.
	TrainJobs client.Reader

	// Changed receives every unfinished TrainJob after a change.
	Changed chan<- event.GenericEvent

	// Period is how often the file is looked at; zero means every minute.
	Period time.Duration
}

var _ manager.Runnable = (*AuthorityWatcher)(nil)

// Start implements manager.Runnable.
func (w *AuthorityWatcher) Start(ctx context.Context) error {
	period := w.Period
	if period == 0 {
		period = authorityPeriod
	}
	var known []byte
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		// It is read before it is complete, or before it is there, and then again.
		current, err := os.ReadFile(w.File)
		if err != nil || len(current) == 0 || bytes.Equal(current, known) {
			return
		}
		// The controller looks at all TrainJobs when it starts.
		if known == nil || w.announce(ctx) == nil {
			known = current
		}
	}, period)
	return nil
}

func (w *AuthorityWatcher) announce(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	trainJobs := &v1alpha1.TrainJobList{}
	if err := w.TrainJobs.List(ctx, trainJobs); err != nil {
		logger.Error(err, "Listing the TrainJobs that must learn of a new certificate authority")
		return err
	}
	logger.Info("The certificate authority of the status server has changed", "trainJobs", len(trainJobs.Items))
	for i := range trainJobs.Items {
		if trainJobs.Items[i].Finished() {
			continue
		}
		select {
		case w.Changed <- event.GenericEvent{Object: &trainJobs.Items[i]}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

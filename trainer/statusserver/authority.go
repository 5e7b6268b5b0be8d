package statusserver

import (
	"bytes"
	"context"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// authorityPeriod is how often the file is looked at. A new authority signs certificates long after it is
// mounted, and a kubelet needs a minute to bring it to the pods.
const authorityPeriod = time.Minute

// AuthorityWatcher tells of a change of the certificate authority, which all training pods must learn of.
type AuthorityWatcher struct {
	// File has the authority.
	File string

	// Changed is called after a change, again and again until it returns no error.
	Changed func(context.Context) error

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
		if known != nil {
			logger := klog.FromContext(ctx)
			logger.Info("The certificate authority of the status server has changed", "file", w.File)
			if err := w.Changed(ctx); err != nil {
				logger.Error(err, "Telling the training pods of the new certificate authority")
				return
			}
		}
		known = current
	}, period)
	return nil
}

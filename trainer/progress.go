package trainer

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/runtime/child"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/trainjobstatus"
	"github.com/muster-sched/muster/trainer/statusserver"
)

// setupProgress adds the status server to a manager. It returns the plugin that has pods report to it. Through
// announcer, all pods learn of a new certificate authority.
func setupProgress(mgr ctrl.Manager, opts statusserver.Options, announcer *announcer) (*trainjobstatus.TrainJobStatus, error) {
	if err := statusserver.Setup(mgr, opts); err != nil {
		return nil, fmt.Errorf("status server: %w", err)
	}
	all := func(*v1alpha1.TrainJob) bool { return true }
	watcher := &statusserver.AuthorityWatcher{File: opts.CAFile(), Changed: func(ctx context.Context) error { return announcer.announce(ctx, all) }}
	if err := mgr.Add(watcher); err != nil {
		return nil, fmt.Errorf("status server: %w", err)
	}
	keeper := child.New(mgr.GetClient(), mgr.GetAPIReader())
	return trainjobstatus.New(keeper, opts.URL, opts.CAFile()), nil
}

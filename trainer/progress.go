package trainer

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/muster-sched/muster/trainer/runtime/child"
	"github.com/muster-sched/muster/trainer/runtime/framework/plugins/trainjobstatus"
	"github.com/muster-sched/muster/trainer/statusserver"
)

// setupProgress adds the status server to a manager. It returns the plugin that has pods report to it, and a
// source of the TrainJobs whose pods must be told of a change.
func setupProgress(mgr ctrl.Manager, opts statusserver.Options) (*trainjobstatus.TrainJobStatus, source.Source, error) {
	if err := statusserver.Setup(mgr, opts); err != nil {
		return nil, nil, fmt.Errorf("status server: %w", err)
	}
	changed := make(chan event.GenericEvent)
	watcher := &statusserver.AuthorityWatcher{File: opts.CAFile(), TrainJobs: mgr.GetClient(), Changed: changed}
	if err := mgr.Add(watcher); err != nil {
		return nil, nil, fmt.Errorf("status server: %w", err)
	}
	keeper := child.New(mgr.GetClient(), mgr.GetAPIReader())
	return trainjobstatus.New(keeper, opts.URL, opts.CAFile()), source.Channel(changed, &handler.EnqueueRequestForObject{}), nil
}

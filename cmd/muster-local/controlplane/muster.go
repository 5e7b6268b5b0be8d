package controlplane

import (
	"context"
	"fmt"

	muster "github.com/muster-sched/muster/cmd/muster-scheduler/app"
	"github.com/muster-sched/muster/manifests"
)

// StartScheduler starts muster-scheduler, with its controllers, in this process, and returns when what
// was asked for is ready. Without a Configuration it runs the one that the manifests deploy, and the
// controllers leave the schedulerName of TrainJobs' pods to their runtimes; Args may say otherwise,
// for example --trainer-scheduler-name, --controllers= for a bare scheduler or --scheduler=false for the
// controllers alone.
//
// Muster's custom resource definitions must be installed: see Config.CRDs.
func (c *Cluster) StartScheduler(ctx context.Context, config SchedulerConfig) (*Scheduler, error) {
	if len(config.Configuration) == 0 {
		deployed, err := manifests.SchedulerConfig(nil)
		if err != nil {
			return nil, err
		}
		config.Configuration = deployed
	}
	files, err := c.writeSchedulerFiles(muster.Name, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", muster.Name, err)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	health := fmt.Sprintf("%s:%d", loopback, port)
	opts := muster.NewOptions()
	own := []string{
		"--controllers-leader-elect=false",
		"--controllers-metrics-bind-address=0",
		"--controllers-health-probe-bind-address=" + health,
	}
	if err := parse(opts.Flags(), files.args, own, config.Args); err != nil {
		return nil, fmt.Errorf("%s: %w", muster.Name, err)
	}
	var probes []string
	if opts.RunScheduler {
		probes = append(probes, files.ready)
	}
	if len(opts.Controllers.Names) > 0 {
		probes = append(probes, "http://"+health+"/readyz")
	}
	run := func(ctx context.Context) error { return muster.Run(ctx, opts) }
	return c.runScheduler(ctx, muster.Name, run, func() {}, probes...)
}

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
	"github.com/muster-sched/muster/cmd/muster-local/demo"
)

func newDemoCommand() *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show three training jobs under Muster and under the default scheduler",
		Args:  cobra.NoArgs,
		Long: `Starts a cluster of 16 nodes with 8 GPUs in 4 racks, submits three TrainJobs of which two fit at once,
and shows which gang is admitted whole, which waits and why. Then it runs the same jobs with the default
scheduler and compares, in numbers measured on the pods. Takes about a minute and ends by itself.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDemo(cmd.Context(), cmd.OutOrStdout(), keep) },
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "Leave the cluster up, with Muster as its scheduler, until Ctrl-C.")
	return cmd
}

func runDemo(ctx context.Context, out io.Writer, keep bool) error {
	screen := demo.NewScreen(out, os.Stdout)
	began := time.Now()
	o := &options{
		scheduler: schedulerMuster,
		topology:  demo.Topology,
		shape:     controlplane.NodeShape{Count: demo.Nodes, GPUs: demo.GPUsPerNode},
	}
	o.config.Progress = func(step string) { screen.Say("%5.1fs  %s", time.Since(began).Seconds(), step) }
	screen.Say("Starting a control plane with %d nodes of %d GPUs in 4 racks", demo.Nodes, demo.GPUsPerNode)
	cluster, err := startCluster(ctx, o)
	if err != nil {
		return err
	}
	defer cluster.Stop()
	schedulerOf := func(name string) demo.Scheduler {
		return func(ctx context.Context) (func(), error) { return o.startScheduler(ctx, cluster, name) }
	}
	if err := demo.Run(ctx, cluster, screen, schedulerOf(schedulerMuster), schedulerOf(schedulerDefault)); err != nil {
		return err
	}
	if !keep {
		return nil
	}
	if _, err := o.startScheduler(ctx, cluster, schedulerMuster); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nexport KUBECONFIG=%s\n\nPress Ctrl-C to stop.\n", cluster.Kubeconfig())
	return stayUp(ctx, cluster)
}

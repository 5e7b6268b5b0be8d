package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
)

func newUpCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster and keep it up until Ctrl-C",
		Args:  cobra.NoArgs,
		Long: `Starts etcd, kube-apiserver, kube-controller-manager, JobSet, simulated GPU nodes and Muster in this
process, prints how kubectl reaches the cluster, and keeps it up until Ctrl-C or SIGTERM, which
leave nothing behind except a --data-dir.

A simulated pod runs until it is deleted, or for as long as its annotation
` + controlplane.RunSecondsAnnotation + ` says.`,
		Example: `  # 32 nodes in two zones of four racks each
  muster-local up --nodes 32 --topology zone=2,rack=8

  # a cluster whose objects are still there the next time
  muster-local up --data-dir ~/.muster-local`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("topology") {
				o.topology = defaultTopology(o.shape.Count)
			}
			return up(cmd.Context(), cmd, o)
		},
	}
	addFlags(cmd, o)
	return cmd
}

func addFlags(cmd *cobra.Command, o *options) {
	fs := cmd.Flags()
	fs.IntVar(&o.shape.Count, "nodes", 16, "Simulated nodes. A --data-dir that has nodes keeps those.")
	fs.IntVar(&o.shape.GPUs, "gpus-per-node", 8, "GPUs of each node.")
	fs.StringVar(&o.topology, "topology", defaultTopology(16), "Levels of the network, outermost first, and the number of domains of each: region, zone, block, rack or a label key.")
	fs.StringVar(&o.config.DataDir, "data-dir", "", "Directory that keeps the cluster's state. Empty means a temporary one.")
	fs.StringVar(&o.config.LogFile, "log-file", "", "File that the components log to. Empty means one in the data directory.")
	fs.StringVar(&o.scheduler, "scheduler", schedulerMuster, "muster, default or none.")
	fs.Var(cliflag.NewMapStringBool(&o.config.FeatureGates), "feature-gates", "Kubernetes feature gates, for example GenericWorkload=true.")
	fs.Var(cliflag.NewMapStringBool(&o.config.RuntimeConfig), "runtime-config", "API versions to turn on or off, for example scheduling.k8s.io/v1beta1=true.")
}

// defaultTopology is one zone of four racks, or of fewer if there are not as many nodes.
func defaultTopology(nodes int) string {
	return fmt.Sprintf("zone=1,rack=%d", max(1, min(4, nodes)))
}

func up(ctx context.Context, cmd *cobra.Command, o *options) error {
	began := time.Now()
	out := cmd.OutOrStdout()
	o.config.Progress = func(step string) {
		fmt.Fprintf(out, "%5.1fs  %s\n", time.Since(began).Seconds(), step)
	}
	cluster, err := startCluster(ctx, o)
	if err != nil {
		return err
	}
	defer cluster.Stop()
	if o.scheduler != schedulerNone {
		o.config.Progress("starting the " + o.scheduler + " scheduler and Muster's controllers")
	}
	if _, err := o.startScheduler(ctx, cluster, o.scheduler); err != nil {
		return err
	}
	o.config.Progress("ready")
	fmt.Fprintf(out, "\nComponents log to %s\n\n", cluster.LogFile())
	fmt.Fprintf(out, "export KUBECONFIG=%s\n\n", cluster.Kubeconfig())
	fmt.Fprintln(out, "Press Ctrl-C to stop.")
	return stayUp(ctx, cluster)
}

// stayUp returns when the user asks for the end, or when a component has failed.
func stayUp(ctx context.Context, cluster *controlplane.Cluster) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-cluster.Failed():
		return err
	}
}

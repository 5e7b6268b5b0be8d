// Package app puts muster-scheduler together: kube-scheduler with Muster's plugins as one half,
// Muster's controllers as the other. Each half can run without the other, and more than one run
// can follow another in one process.
package app

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// Name is the name of the binary and, in the manifests, of the scheduler's profile.
const Name = "muster-scheduler"

// NewCommand returns the command of the muster-scheduler binary. It takes every flag of
// kube-scheduler, reads the same KubeSchedulerConfiguration, and ends on SIGTERM and SIGINT.
func NewCommand() *cobra.Command {
	opts := NewOptions()
	cmd := &cobra.Command{
		Use: Name,
		Long: `Muster gathers a whole training job before it lets any of it start. This is a
kube-scheduler with Muster's plugins, which a KubeSchedulerConfiguration enables and configures,
and in the same process the controllers that keep PodGroups and turn TrainJobs into JobSets.
Either half can run without the other: --controllers= is a bare scheduler, --scheduler=false
leaves only the controllers.`,
		Args: cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			// Everything that follows may ask for a feature gate.
			return opts.Scheduler.ComponentGlobalsRegistry.Set()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runCommand(cmd, opts)
		},
	}

	flagSets := opts.Flags()
	verflag.AddFlags(flagSets.FlagSet("global"))
	globalflag.AddGlobalFlags(flagSets.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range flagSets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, flagSets, columns)
	return cmd
}

// runCommand does what belongs to a process of its own and not to a library: logging, metrics about
// the build, signals.
func runCommand(cmd *cobra.Command, opts *Options) error {
	verflag.PrintAndExitIfRequested()
	registry := opts.Scheduler.ComponentGlobalsRegistry
	gates := registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := logsapi.ValidateAndApply(opts.Scheduler.Logs, gates); err != nil {
		return err
	}
	ctrllog.SetLogger(klog.Background())
	cliflag.PrintFlags(cmd.Flags())
	if gates, ok := gates.(featuregate.MutableFeatureGate); ok {
		gates.AddMetrics()
	}
	registry.AddMetrics()

	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks; with the handler gone, a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	return Run(ctx, opts)
}

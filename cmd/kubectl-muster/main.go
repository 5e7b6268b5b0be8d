// Command kubectl-muster is the user's tool. On the PATH, kubectl runs it as "kubectl muster".
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			os.Exit(130) // interrupted, which is not worth a message
		}
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:         "kubectl-muster",
		Short:       "Gang scheduling for training jobs, for its users",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl muster"},
		Args:        cobra.NoArgs,
		// Errors are reported by main, and a failure at run time is no reason to explain the flags.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cmd.AddCommand(newExplainCommand(), newQueueCommand(), newSimulateCommand(), newVersionCommand())
	return cmd
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of Kubernetes that this is built from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.Get().GitVersion)
			return err
		},
	}
}

// Command muster-local runs Muster on a real Kubernetes control plane with simulated GPU nodes, in one
// process and without containers or downloads.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	// A terminal that is closed ends the cluster as Ctrl-C does, or it would leave its directory.
	signals, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A second signal ends the process at once, for the impatient.
	context.AfterFunc(signals, stop)
	// So does a closed pipe, which shows when something is written.
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := context.WithCancel(signals)
	defer cancel()

	cmd := newCommand()
	cmd.SetOut(&output{Writer: os.Stdout, broken: cancel})
	if err := cmd.ExecuteContext(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			os.Exit(130) // interrupted, which is not worth a message
		}
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// output tells when nobody reads any more.
type output struct {
	io.Writer
	broken func()
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		o.broken()
	}
	return n, err
}

func newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "muster-local",
		Short: "Muster on a real control plane with simulated GPU nodes, in one process",
		Args:  cobra.NoArgs,
		// Errors are reported by main, and a failure at run time is no reason to explain the flags.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cmd.AddCommand(newUpCommand(), newDemoCommand())
	return cmd
}

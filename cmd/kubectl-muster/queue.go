package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-sched/muster/cmd/kubectl-muster/gangs"
)

func newQueueCommand() *cobra.Command {
	var (
		at     *cluster
		all    bool
		output string
	)
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "List the gangs that wait, who goes first on top",
		Long: "List the gangs that wait, by priority and age. Under the queue orders FairShare and ShortestFirst the scheduler's order is another;\n" +
			"the message of a gang (-o wide) says which namespaces stand before it. To stand first is not to block: who does not fit is passed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "wide" {
				return fmt.Errorf("there is no output %q; there is wide", output)
			}
			kube, namespace, err := at.connect()
			if err != nil {
				return err
			}
			if all {
				namespace = metav1.NamespaceAll
			}
			waiting, err := gangs.Queue(cmd.Context(), kube, namespace)
			if err != nil {
				return err
			}
			if len(waiting) == 0 {
				_, err := fmt.Fprintln(cmd.ErrOrStderr(), "No gang waits.")
				return err
			}
			return gangs.Table(cmd.OutOrStdout(), waiting, output == "wide", time.Now())
		},
	}
	at = newCluster(cmd.Flags())
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list the gangs of all namespaces")
	cmd.Flags().StringVarP(&output, "output", "o", "", "wide for the whole messages")
	return cmd
}

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-sched/muster/cmd/kubectl-muster/gangs"
)

func newExplainCommand() *cobra.Command {
	var at *cluster
	cmd := &cobra.Command{
		Use:     "explain [podgroup/|pod/|trainjob/]NAME",
		Aliases: []string{"why"},
		Short:   "Tell how far a gang or a TrainJob is, and why it waits",
		Long:    "Tell how far a gang is and, if it waits, why: what it needs, what is short and by how much, and what would help.",
		Example: `  # why the gang of a TrainJob does not start
  kubectl muster explain trainjob/llm -n team-a

  # the gang of a pod
  kubectl muster explain pod/llm-node-0-0`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			kube, namespace, err := at.connect()
			if err != nil {
				return err
			}
			found, err := gangs.Find(cmd.Context(), kube, namespace, args[0])
			if err != nil {
				return err
			}
			for i, f := range found {
				if i > 0 {
					if _, err := fmt.Fprintln(cmd.OutOrStdout()); err != nil {
						return err
					}
				}
				if err := f.Explain(cmd.OutOrStdout(), time.Now()); err != nil {
					return err
				}
			}
			return nil
		},
	}
	at = newCluster(cmd.Flags())
	return cmd
}

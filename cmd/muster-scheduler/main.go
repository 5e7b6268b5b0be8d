// Command muster-scheduler is kube-scheduler with Muster's plugins, and Muster's controllers in the
// same process.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the API clients
	_ "k8s.io/component-base/metrics/prometheus/version"  // the build's version as a metric

	"github.com/muster-sched/muster/cmd/muster-scheduler/app"
)

func main() {
	os.Exit(cli.Run(app.NewCommand()))
}

package perf

import (
	"flag"
	"fmt"
	"os"
	"testing"

	_ "k8s.io/component-base/logs/json/register"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"

	"github.com/muster-sched/muster/plugins/coscheduling"
	"github.com/muster-sched/muster/plugins/gputopology"
)

var folder = flag.String("bench-folder", "", "folder of the run's files, where its results go too")

func TestMain(m *testing.M) {
	if err := perf.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.Run()
}

func BenchmarkPerfScheduling(b *testing.B) {
	r, err := readRun(*folder)
	if err != nil {
		b.Fatal(err)
	}
	registry := frameworkruntime.Registry{
		coscheduling.Name: r.withCRD(coscheduling.New),
		gputopology.Name:  gputopology.New,
	}
	perf.RunBenchmarkPerfScheduling(b, r.config, "muster", registry,
		perf.WithNodeUpdateFn(r.nodesAreThere))
}

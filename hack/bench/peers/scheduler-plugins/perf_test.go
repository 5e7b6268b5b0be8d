package perf

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/ktesting"
	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme"
	"sigs.k8s.io/scheduler-plugins/pkg/coscheduling"

	"github.com/muster-sched/muster/hack/bench/harness"
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
	r, err := harness.ReadRun(*folder)
	if err != nil {
		b.Fatal(err)
	}
	registry := frameworkruntime.Registry{
		coscheduling.Name: func(ctx context.Context, args runtime.Object, h framework.Handle) (framework.Plugin, error) {
			if err := harness.InstallCRDs(ctx, h.KubeConfig(), r); err != nil {
				return nil, err
			}
			return coscheduling.New(ctx, args, h)
		},
	}
	perf.RunBenchmarkPerfScheduling(b, filepath.Join(*folder, "performance-config.yaml"), "coscheduling", registry,
		perf.WithPrepareFn(func(t ktesting.TContext) error { return harness.Prepare(t, r) }))
}

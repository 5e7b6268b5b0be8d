// Command bench-trainer measures how long, and with how much memory, a trainer controller makes the JobSets of many
// TrainJobs that are created at once, and what they cost it when they are all looked at again and nothing has changed.
// Each contender is a process of its own and gets a fresh control plane and the same limits.
//
//	bench-trainer -muster-local BINARY [-trainjobs N] muster=BINARY kubeflow=BINARY
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// The same for every contender.
const (
	qps         = 500
	burst       = 1000
	concurrency = 5
	creators    = 16
	patience    = 10 * time.Minute // for 1,000 TrainJobs
	progress    = 10 * time.Second
	steady      = 30 * time.Second
	namespace   = metav1.NamespaceDefault
	runtimeName = "torch-distributed-gang"
)

func main() {
	musterLocal := flag.String("muster-local", "bin/muster-local", "muster-local, which is the control plane")
	count := flag.Int("trainjobs", 1000, "TrainJobs to create")
	flag.Parse()
	log.SetLogger(klog.Background())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "contender\tTrainJobs\tall created\tall JobSets\tCPU\tmemory before\tmemory peak\tidle CPU\trestart CPU\trestart memory\trestart writes")
	for _, argument := range flag.Args() {
		name, binary, ok := strings.Cut(argument, "=")
		if !ok {
			fail(fmt.Errorf("%q is not NAME=BINARY", argument))
		}
		result, err := measure(ctx, *musterLocal, name, binary, *count)
		if err != nil {
			fail(fmt.Errorf("%s: %w", name, err))
		}
		fmt.Fprintf(out, "%s\t%d\t%.1f s\t%.1f s\t%.1f s\t%d MiB\t%d MiB\t%.1f %%\t%.1f s\t%d MiB\t%d\n", name, *count,
			result.created.Seconds(), result.jobSets.Seconds(), result.cpu.Seconds(), result.idleMiB, result.peakMiB,
			100*result.idleCPU.Seconds()/steady.Seconds(), result.restartCPU.Seconds(), result.restartMiB, result.restartWrites)
	}
	if err := out.Flush(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench-trainer:", err)
	os.Exit(1)
}

// result is what one contender needed.
type result struct {
	created, jobSets time.Duration // since the first TrainJob was sent
	cpu              time.Duration // of the controller, in this time
	idleMiB, peakMiB int           // of the controller: resident before, and at most
	idleCPU          time.Duration // of the controller, in a time of steady when all is done

	// What a controller needs that starts beside what is done, until it is idle: all of it is looked at once.
	restartCPU    time.Duration
	restartMiB    int
	restartWrites int // to the API server, events aside
}

func measure(ctx context.Context, musterLocal, name, binary string, count int) (*result, error) {
	dir, err := os.MkdirTemp("", "bench-trainer-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	plane, err := startControlPlane(ctx, musterLocal, dir)
	if err != nil {
		return nil, err
	}
	defer plane.stop()
	controller, err := startContender(ctx, name, binary, plane.kubeconfig, dir)
	if err != nil {
		return nil, err
	}
	defer func() { controller.stop() }()
	kube, err := newClient(plane.kubeconfig)
	if err != nil {
		return nil, err
	}

	before, err := controller.usage()
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	made, err := watchJobSets(watching, plane.kubeconfig)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := create(ctx, kube, count); err != nil {
		return nil, err
	}
	r := &result{created: time.Since(start), idleMiB: before.residentMiB}
	shown := start
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience*time.Duration(max(count/1000, 1)), true, func(context.Context) (bool, error) {
		n := made.count()
		if time.Since(shown) > progress {
			shown = time.Now()
			fmt.Fprintf(os.Stderr, "%s: %d of %d JobSets after %s\n", name, n, count, shown.Sub(start).Round(time.Second))
		}
		return n == count, nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%d of %d JobSets: %w", made.count(), count, err), controller.ended())
	}
	r.jobSets = time.Since(start)
	after, err := controller.usage()
	if err != nil {
		return nil, err
	}
	r.cpu, r.peakMiB = after.cpu-before.cpu, after.peakMiB

	if _, err := controller.settle(ctx); err != nil {
		return nil, err
	}
	if r.idleCPU, err = controller.work(ctx, steady); err != nil {
		return nil, err
	}
	controller.stop()
	written, err := writes(ctx, plane.kubeconfig)
	if err != nil {
		return nil, err
	}
	if controller, err = startContender(ctx, name, binary, plane.kubeconfig, dir); err != nil {
		return nil, err
	}
	last, err := controller.settle(ctx)
	if err != nil {
		return nil, err
	}
	r.restartCPU, r.restartMiB = last.cpu, last.peakMiB
	now, err := writes(ctx, plane.kubeconfig)
	r.restartWrites = now - written
	return r, err
}

func newClient(kubeconfig string) (client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	scheme := apiruntime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// busy tells whether an API server that has less to do may answer otherwise.
func busy(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err)
}

// create makes TrainJobs with several requests in flight. They are suspended: their JobSets are made as ever, and
// the JobSet controller makes no pods of them on the machine that is measured.
func create(ctx context.Context, kube client.Client, count int) error {
	var wg sync.WaitGroup
	errs := make([]error, creators)
	for c := range creators {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := c; i < count; i += creators {
				job := &v1alpha1.TrainJob{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("job-%d", i)},
					Spec: v1alpha1.TrainJobSpec{
						RuntimeRef: v1alpha1.RuntimeRef{Name: runtimeName},
						Suspend:    ptr.To(true),
						Trainer:    &v1alpha1.Trainer{NumNodes: ptr.To[int32](4), Command: []string{"torchrun", "train.py"}},
					},
				}
				// A machine that is busy with other things has etcd time out.
				err := retry.OnError(retry.DefaultBackoff, busy, func() error { return client.IgnoreAlreadyExists(kube.Create(ctx, job)) })
				if err != nil {
					errs[c] = err
					return
				}
			}
		}()
	}
	wg.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	return nil
}

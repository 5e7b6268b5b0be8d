package demo

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
)

// rendezvous plays the training code. As with torchrun, the pods of a job wait for each other; only when
// all of them run does the training start, and it takes its time from there.
type rendezvous struct {
	client    kubernetes.Interface
	namespace string
	started   map[string]bool // by job
}

// meeting returns the names of a job's pods, in order, if all of its members run.
func meeting(l *ledger, job string) []string {
	var names []string
	for _, pod := range l.pods {
		if pod.job == job && pod.running {
			names = append(names, pod.name)
		}
	}
	if len(names) < l.members[job] {
		return nil
	}
	slices.Sort(names)
	return names
}

// visit starts the training of a job if its pods have met and it has not started yet, and says whether
// it does. Errors of the start arrive on failed.
func (r *rendezvous) visit(ctx context.Context, l *ledger, w workload, failed chan<- error) bool {
	pods := meeting(l, w.name)
	if r.started[w.name] || pods == nil {
		return false
	}
	r.started[w.name] = true
	go func() {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, controlplane.RunSecondsAnnotation, seconds(w.training))
		if err := patchPods(ctx, r.client, r.namespace, pods, patch); err != nil {
			failed <- fmt.Errorf("start the training of %s: %w", w.name, err)
		}
	}()
	return true
}

// patchPods applies a merge patch to pods, in no order.
func patchPods(ctx context.Context, client kubernetes.Interface, namespace string, names []string, patch []byte) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		group.Go(func() error {
			_, err := client.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		})
	}
	return group.Wait()
}

// seconds renders a duration the way controlplane.RunSecondsAnnotation wants it.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

package demo

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/muster-sched/muster/cmd/muster-local/controlplane"
)

func TestRendezvous(t *testing.T) {
	var objects []runtime.Object
	for i := range 3 {
		objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("atlas-%d", i), Namespace: "demo"}})
	}
	client := fake.NewClientset(objects...)
	r := &rendezvous{client: client, namespace: "demo", started: map[string]bool{}}
	l := newLedger(at(0), map[string]int{"atlas": 3})
	w := workload{name: "atlas", nodes: 3, training: 2500 * time.Millisecond}
	failed := make(chan error, 1)
	visit := func() bool { return r.visit(t.Context(), l, w, failed) }
	run := func(i int, running bool) {
		l.set(at(1), fmt.Sprint(i), podState{name: fmt.Sprintf("atlas-%d", i), job: "atlas", node: "n", running: running})
	}

	for i := range 3 {
		run(i, i < 2)
	}
	if visit() {
		t.Error("the training started although a bound member does not run yet")
	}
	if len(client.Actions()) > 0 {
		t.Errorf("pods were touched before the rendezvous: %v", client.Actions())
	}
	run(2, true)
	if !visit() {
		t.Error("all members run and the training did not start")
	}
	if visit() {
		t.Error("the training started twice")
	}
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		for i := range 3 {
			pod, err := client.CoreV1().Pods("demo").Get(ctx, fmt.Sprintf("atlas-%d", i), metav1.GetOptions{})
			if err != nil || pod.Annotations[controlplane.RunSecondsAnnotation] != "2.5" {
				return false, err
			}
		}
		return true, nil
	}); err != nil {
		t.Errorf("not all pods were told to run for 2.5 seconds: %v", err)
	}
	select {
	case err := <-failed:
		t.Error(err)
	default:
	}
}

func TestRendezvousReportsFailure(t *testing.T) {
	r := &rendezvous{client: fake.NewClientset(), namespace: "demo", started: map[string]bool{}}
	l := newLedger(at(0), map[string]int{"atlas": 1})
	l.set(at(0), "0", podState{name: "gone", job: "atlas", node: "n", running: true})
	failed := make(chan error, 1)
	if !r.visit(t.Context(), l, workload{name: "atlas", nodes: 1}, failed) {
		t.Fatal("the training does not start")
	}
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "atlas") {
		t.Errorf("error %v, want one that names the job: its pod does not exist", err)
	}
}

// TestWorkloads guards what the demo promises: two of the three jobs fit at once, and no more.
func TestWorkloads(t *testing.T) {
	total, fitting := 0, 0
	for i, w := range workloads {
		total += w.nodes
		for _, other := range workloads[i+1:] {
			if w.nodes+other.nodes <= Nodes {
				fitting++
			}
		}
	}
	if total <= Nodes || fitting == 0 {
		t.Errorf("%d nodes asked of %d, %d pairs fit", total, Nodes, fitting)
	}
	for _, w := range workloads {
		job := w.trainJob("demo")
		if got := *job.Spec.Trainer.NumNodes; int(got) != w.nodes {
			t.Errorf("%s has %d nodes, want %d", w.name, got, w.nodes)
		}
		if w.training < time.Second {
			t.Errorf("%s trains for %s, too short to watch", w.name, w.training)
		}
	}
}

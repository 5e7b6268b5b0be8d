package controlplane

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	upstream "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/muster-sched/muster/manifests"
	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
)

// TestMuster starts muster-scheduler in its various forms, one after the other, in one cluster.
func TestMuster(t *testing.T) {
	crds, err := manifests.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, Config{CRDs: crds})
	addNodes(t, c, NodeShape{Count: 4, GPUs: 8})
	scheme := runtime.NewScheme()
	if err := podgroup.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cl, err := client.New(c.REST(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	pods := c.Client().CoreV1().Pods(metav1.NamespaceDefault)

	// gang creates a group of two pods of 8 GPUs.
	gang := func(t *testing.T, name string) {
		t.Helper()
		if err := cl.Create(t.Context(), &podgroup.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
			Spec:       upstream.PodGroupSpec{MinMember: 2},
		}); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			spec := template(nil)
			spec.Labels = map[string]string{podgroup.GroupLabel: name}
			spec.Name = fmt.Sprintf("%s-%d", name, i)
			spec.Spec.SchedulerName = "muster-scheduler"
			if _, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: spec.ObjectMeta, Spec: spec.Spec}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	running := func(t *testing.T, name string) {
		t.Helper()
		for i := range 2 {
			waitPhase(t, c, fmt.Sprintf("%s-%d", name, i), corev1.PodRunning)
		}
	}
	phaseOf := func(t *testing.T, name string, want upstream.PodGroupPhase) {
		t.Helper()
		eventually(t, "PodGroup "+name+" to be "+string(want), func(ctx context.Context) (bool, error) {
			group := &podgroup.PodGroup{}
			err := cl.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, group)
			return group.Status.Phase == want, err
		})
	}

	t.Run("both halves", func(t *testing.T) {
		muster, err := c.StartScheduler(t.Context(), SchedulerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer muster.Stop()
		gang(t, "first")
		running(t, "first")
		phaseOf(t, "first", upstream.PodGroupRunning)
	})

	t.Run("a wrong flag is named", func(t *testing.T) {
		_, err := c.StartScheduler(t.Context(), SchedulerConfig{Args: []string{"--controllers=gardener"}})
		if err == nil || !strings.Contains(err.Error(), "gardener") {
			t.Errorf("error %v", err)
		}
	})

	t.Run("started again, as a bare scheduler", func(t *testing.T) {
		muster, err := c.StartScheduler(t.Context(), SchedulerConfig{Args: []string{"--controllers="}})
		if err != nil {
			t.Fatal(err)
		}
		defer muster.Stop()
		gang(t, "second")
		running(t, "second")
	})

	t.Run("the controllers alone, beside the default scheduler", func(t *testing.T) {
		controllers, err := c.StartScheduler(t.Context(), SchedulerConfig{Args: []string{"--scheduler=false"}})
		if err != nil {
			t.Fatal(err)
		}
		defer controllers.Stop()
		standard, err := c.StartDefaultScheduler(t.Context(), SchedulerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer standard.Stop()
		phaseOf(t, "second", upstream.PodGroupRunning)
	})

	select {
	case err := <-c.Failed():
		t.Errorf("a stopped scheduler counts as a failure of the cluster: %v", err)
	default:
	}
}

package trainer

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

// Older trainers kept a runtime alive while TrainJobs used it; such a runtime must not stay for ever.
func TestOldFinalizerIsRemoved(t *testing.T) {
	for name, new := range map[string]func() client.Object{
		"TrainingRuntime":        func() client.Object { return &v1alpha1.TrainingRuntime{} },
		"ClusterTrainingRuntime": func() client.Object { return &v1alpha1.ClusterTrainingRuntime{} },
	} {
		t.Run(name, func(t *testing.T) {
			runtime := new()
			runtime.SetName("torch")
			runtime.SetFinalizers([]string{"example.com/keep", v1alpha1.ResourceInUseFinalizer})
			c := newCluster(t, runtime)
			remover := &finalizerRemover{client: c.Client, new: new}
			request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(runtime)}
			for range 2 {
				if _, err := remover.Reconcile(context.Background(), request); err != nil {
					t.Fatal(err)
				}
			}
			if len(c.writes) != 1 {
				t.Errorf("writes = %v, want one", c.writes)
			}
			if !c.get(runtime) {
				t.Fatal("the runtime is gone")
			}
			if diff := cmp.Diff([]string{"example.com/keep"}, runtime.GetFinalizers()); diff != "" {
				t.Errorf("finalizers (-want +got)\n%s", diff)
			}
		})
	}
	t.Run("the last one lets a deleted runtime go", func(t *testing.T) {
		now := metav1.NewTime(start)
		runtime := &v1alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{
			Name: "torch", DeletionTimestamp: &now, Finalizers: []string{v1alpha1.ResourceInUseFinalizer},
		}}
		c := newCluster(t, runtime)
		remover := &finalizerRemover{client: c.Client, new: func() client.Object { return &v1alpha1.ClusterTrainingRuntime{} }}
		for range 2 {
			if _, err := remover.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(runtime)}); err != nil {
				t.Fatal(err)
			}
		}
		if c.get(&v1alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}}) {
			t.Error("the runtime is still there")
		}
	})
}

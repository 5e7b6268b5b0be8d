package snapshot

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

func api(t interface{ Fatal(...any) }, objects ...client.Object) client.Client {
	scheme := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func storeOf(c client.Client) *Store {
	return &Store{Runtimes: c, Snapshots: c, Live: c, Writer: c}
}

func trainJob(kind string) *v1alpha1.TrainJob {
	job := &v1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "llm", UID: "u"}}
	job.Spec.RuntimeRef = v1alpha1.RuntimeRef{Name: "torch", Kind: ptr.To(kind)}
	return job
}

func spec(image string) v1alpha1.TrainingRuntimeSpec {
	job := jobsetv1alpha2.ReplicatedJob{Name: "node", Replicas: 1}
	job.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "node", Image: image}}
	return v1alpha1.TrainingRuntimeSpec{
		MLPolicy: &v1alpha1.MLPolicy{NumNodes: ptr.To[int32](2)},
		Template: v1alpha1.JobSetTemplateSpec{Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{job}}},
	}
}

func namespaced(image string) *v1alpha1.TrainingRuntime {
	return &v1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: "torch", Labels: map[string]string{"a": "b"}}, Spec: spec(image)}
}

func clusterWide(image string) *v1alpha1.ClusterTrainingRuntime {
	return &v1alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch", Labels: map[string]string{"a": "b"}}, Spec: spec(image)}
}

// What is taken comes back, of either kind.
func TestTakeAndGet(t *testing.T) {
	for kind, runtime := range map[string]client.Object{
		"TrainingRuntime": namespaced("one"), "ClusterTrainingRuntime": clusterWide("one"),
	} {
		t.Run(kind, func(t *testing.T) {
			ctx, job, store := context.Background(), trainJob(kind), storeOf(api(t, runtime))
			if got, err := store.Get(ctx, job); got != nil || err != nil {
				t.Fatalf("before: %v, %v", got, err)
			}
			current, err := store.Current(ctx, job)
			if err != nil {
				t.Fatal(err)
			}
			before := current.object.DeepCopyObject()
			if err := store.Take(ctx, job, current); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, current.object); diff != "" {
				t.Errorf("taking a snapshot changed the runtime, which may belong to a cache (-before +after)\n%s", diff)
			}
			got, err := store.Get(ctx, job)
			if err != nil {
				t.Fatal(err)
			}
			want := spec("one")
			if diff := cmp.Diff(&want, got.Spec); diff != "" || got.Kind != kind || got.Name != "torch" || got.Labels["a"] != "b" {
				t.Errorf("got %s %s %v, spec (-want +got)\n%s", got.Kind, got.Name, got.Labels, diff)
			}
			if err := store.Take(ctx, job, current); !apierrors.IsAlreadyExists(err) {
				t.Errorf("taking it again: %v", err)
			}
		})
	}
}

func TestCurrentOfEachKind(t *testing.T) {
	ctx := context.Background()
	store := storeOf(api(t, namespaced("own"), clusterWide("all")))
	for kind, image := range map[string]string{"TrainingRuntime": "own", "ClusterTrainingRuntime": "all"} {
		got, err := store.Current(ctx, trainJob(kind))
		if err != nil || got.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image != image {
			t.Errorf("%s: %v, %v", kind, got, err)
		}
	}
	elsewhere := trainJob("TrainingRuntime")
	elsewhere.Namespace = "production"
	if _, err := store.Current(ctx, elsewhere); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "torch") {
		t.Errorf("a runtime of another namespace: %v", err)
	}
}

// A cache that lags behind, or lacks snapshots without a label, hides nothing.
func TestLiveReadsFillTheCachesGaps(t *testing.T) {
	ctx, job := context.Background(), trainJob("ClusterTrainingRuntime")
	live, stale := api(t, clusterWide("one")), api(t)
	store := &Store{Runtimes: stale, Snapshots: stale, Live: live, Writer: live}
	current, err := store.Current(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Take(ctx, job, current); err != nil {
		t.Fatal(err)
	}
	if got, err := store.Get(ctx, job); err != nil || got == nil {
		t.Errorf("the snapshot behind the cache: %v, %v", got, err)
	}
}

// As Kubeflow Trainer writes it: no label, owned by the TrainJob.
func TestSnapshotOfAnotherTrainer(t *testing.T) {
	job := trainJob("TrainingRuntime")
	theirs := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "research", Name: "llm-runtime-snapshot",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: "llm", UID: "u", Controller: ptr.To(true)}},
		},
		Data: map[string]string{"runtime": "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainingRuntime\nmetadata:\n  name: torch\n  namespace: research\n" +
			"spec:\n  mlPolicy:\n    numNodes: 7\n  template:\n    spec:\n      replicatedJobs:\n      - name: node\n        template:\n          spec:\n            template:\n              spec:\n                containers: []\n"},
	}
	got, err := storeOf(api(t, theirs, namespaced("changed"))).Get(context.Background(), job)
	if err != nil || got == nil || *got.Spec.MLPolicy.NumNodes != 7 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// No text in a snapshot makes the reader panic: it is a runtime or unusable.
func TestDecodeAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`(kind: ClusterTrainingRuntime\n)?(apiVersion: trainer.kubeflow.org/v1alpha1\n)?(metadata: (\{name: torch\}|\[\]|torch)\n)?(spec: (\{\}|\[\]|null|7|\{template: \{spec: \{replicatedJobs: \[null\]\}\}\})\n)?`)).Draw(t, "text")
		job := trainJob("ClusterTrainingRuntime")
		got, err := decode(job, &corev1.ConfigMap{Data: map[string]string{dataKey: text}})
		if (got == nil) == (err == nil) {
			t.Fatalf("got %v, %v", got, err)
		}
		if err != nil {
			if _, ok := err.(*Unusable); !ok {
				t.Fatalf("error %T", err)
			}
		}
	})
}

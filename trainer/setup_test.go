package trainer

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	podgroup "github.com/muster-sched/muster/podgroup/api/v1alpha1"
	"github.com/muster-sched/muster/trainer/api/v1alpha1"
)

func TestRequireCRDs(t *testing.T) {
	kinds := map[string]schema.GroupVersionKind{
		"trainjobs.trainer.kubeflow.org with version v1alpha1":               v1alpha1.GroupVersion.WithKind("TrainJob"),
		"trainingruntimes.trainer.kubeflow.org with version v1alpha1":        v1alpha1.GroupVersion.WithKind("TrainingRuntime"),
		"clustertrainingruntimes.trainer.kubeflow.org with version v1alpha1": v1alpha1.GroupVersion.WithKind("ClusterTrainingRuntime"),
		"jobsets.jobset.x-k8s.io with version v1alpha2":                      jobsetv1alpha2.GroupVersion.WithKind("JobSet"),
		"podgroups.scheduling.x-k8s.io with version v1alpha1":                podgroup.GroupVersion.WithKind("PodGroup"),
	}
	without := func(missing string) meta.RESTMapper {
		mapper := meta.NewDefaultRESTMapper(nil)
		for name, kind := range kinds {
			if name != missing {
				mapper.Add(kind, meta.RESTScopeNamespace)
			}
		}
		return mapper
	}
	if err := requireCRDs(without("")); err != nil {
		t.Errorf("with all: %v", err)
	}
	for name := range kinds {
		err := requireCRDs(without(name))
		if want := "CustomResourceDefinition " + name + " is not installed"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want %q", err, want)
		}
	}
}

func TestAddToScheme(t *testing.T) {
	scheme := apiruntime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for object := range CacheByObject() {
		if _, _, err := scheme.ObjectKinds(object); err != nil {
			t.Errorf("the cache has %T, which the scheme lacks: %v", object, err)
		}
	}
}

func TestKeepOwnManagedFields(t *testing.T) {
	jobSet := &jobsetv1alpha2.JobSet{}
	jobSet.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "jobset", Subresource: "status"}, {Manager: "trainer", Operation: "Apply"}, {Manager: "kueue"}, {Manager: "trainer", Operation: "Update"},
	}
	got, err := KeepOwnManagedFields(jobSet)
	if err != nil || got != any(jobSet) {
		t.Fatalf("transform returned %v, %v", got, err)
	}
	if len(jobSet.ManagedFields) != 2 || jobSet.ManagedFields[0].Operation != "Apply" || jobSet.ManagedFields[1].Operation != "Update" {
		t.Errorf("managed fields = %v", jobSet.ManagedFields)
	}
	tombstone := cache.DeletedFinalStateUnknown{Key: "a/b"}
	if got, err := KeepOwnManagedFields(tombstone); err != nil || got != any(tombstone) {
		t.Errorf("transform of a tombstone returned %v, %v", got, err)
	}
}

package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"
)

// apiServer answers discovery: it serves the given resources by group and version, and nothing else.
func apiServer(t *testing.T, served map[string][]string) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		groupVersion, found := strings.CutPrefix(r.URL.Path, "/apis/")
		resources, served := served[groupVersion]
		if !found || !served {
			http.NotFound(w, r)
			return
		}
		list := metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: groupVersion,
		}
		for _, resource := range resources {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource, Namespaced: true})
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

var (
	podGroupAPI = map[string][]string{"scheduling.x-k8s.io/v1alpha1": {"podgroups", "podgroups/status"}}
	trainerAPI  = map[string][]string{
		"scheduling.x-k8s.io/v1alpha1":  {"podgroups"},
		"trainer.kubeflow.org/v1alpha1": {"trainjobs", "trainingruntimes", "clustertrainingruntimes"},
		"jobset.x-k8s.io/v1alpha2":      {"jobsets"},
	}
)

func TestControllersNeedTheirCustomResources(t *testing.T) {
	without := func(groupVersion string) map[string][]string {
		served := map[string][]string{}
		for name, resources := range trainerAPI {
			if name != groupVersion {
				served[name] = resources
			}
		}
		return served
	}
	for _, test := range []struct {
		name        string
		controllers []string
		served      map[string][]string
		want        []string
	}{
		{name: "all there", controllers: []string{"podgroup", "trainer"}, served: trainerAPI},
		{name: "no controllers, no needs", served: nil},
		{name: "podgroup alone", controllers: []string{"podgroup"}, served: podGroupAPI},
		{
			name: "no PodGroups", controllers: []string{"podgroup"}, served: without("scheduling.x-k8s.io/v1alpha1"),
			want: []string{"controller podgroup needs podgroups of scheduling.x-k8s.io/v1alpha1", "CustomResourceDefinition podgroups.scheduling.x-k8s.io"},
		},
		{
			name: "no JobSet", controllers: []string{"podgroup", "trainer"}, served: without("jobset.x-k8s.io/v1alpha2"),
			want: []string{"controller trainer needs jobsets of jobset.x-k8s.io/v1alpha2"},
		},
		{
			name: "every missing resource is named", controllers: []string{"trainer"}, served: podGroupAPI,
			want: []string{"trainjobs", "trainingruntimes", "clustertrainingruntimes", "jobsets"},
		},
		{
			name: "another version is not enough", controllers: []string{"podgroup"}, served: map[string][]string{"scheduling.x-k8s.io/v1": {"podgroups"}},
			want: []string{"podgroups of scheduling.x-k8s.io/v1alpha1"},
		},
		{
			name: "the group is there, the resource is not", controllers: []string{"podgroup"},
			served: map[string][]string{"scheduling.x-k8s.io/v1alpha1": {"elasticquotas"}},
			want:   []string{"podgroups of scheduling.x-k8s.io/v1alpha1"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			opts := ControllerOptions{Names: test.controllers}
			err := checkServed(t.Context(), apiServer(t, test.served), opts.requirements())
			if (err != nil) != (len(test.want) > 0) {
				t.Fatalf("got %v, want an error: %v", err, len(test.want) > 0)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("want %q in %v", want, err)
				}
			}
		})
	}
}

func TestFeatureGatesNeedTheirAPIs(t *testing.T) {
	gates := featuregate.NewFeatureGate()
	if err := gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		features.GenericWorkload:   {Default: false, PreRelease: featuregate.Alpha},
		features.CompositePodGroup: {Default: false, PreRelease: featuregate.Alpha},
	}); err != nil {
		t.Fatal(err)
	}
	if needs := schedulerRequirements(gates); len(needs) > 0 {
		t.Errorf("with the gates off nothing is needed, got %+v", needs)
	}
	if err := gates.Set("GenericWorkload=true"); err != nil {
		t.Fatal(err)
	}
	err := checkServed(t.Context(), apiServer(t, nil), schedulerRequirements(gates))
	if err == nil {
		t.Fatal("the scheduler would wait for ever for an API that is not served")
	}
	for _, want := range []string{"feature gate GenericWorkload", "podgroups of scheduling.k8s.io/v1beta1", "--runtime-config=scheduling.k8s.io/v1beta1=true"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %v", want, err)
		}
	}
	served := map[string][]string{"scheduling.k8s.io/v1beta1": {"workloads", "podgroups"}}
	if err := checkServed(t.Context(), apiServer(t, served), schedulerRequirements(gates)); err != nil {
		t.Errorf("served: want no error, got %v", err)
	}
	if err := gates.Set("CompositePodGroup=true"); err != nil {
		t.Fatal(err)
	}
	if err := checkServed(t.Context(), apiServer(t, served), schedulerRequirements(gates)); err == nil || !strings.Contains(err.Error(), "compositepodgroups") {
		t.Errorf("want compositepodgroups named, got %v", err)
	}
}

func TestAPIServerThatDoesNotAnswer(t *testing.T) {
	config := apiServer(t, nil)
	config.Host = "http://127.0.0.1:1"
	opts := ControllerOptions{Names: []string{"podgroup"}}
	err := checkServed(t.Context(), config, opts.requirements())
	if err == nil || !strings.Contains(err.Error(), "ask the API server for scheduling.x-k8s.io/v1alpha1") {
		t.Errorf("want an error that says what was asked, got %v", err)
	}
	if strings.Contains(err.Error(), "install") {
		t.Errorf("nothing is known to be missing: %v", err)
	}
}

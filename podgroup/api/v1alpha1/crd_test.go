package v1alpha1

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// The definition is scheduler-plugins' own but for its descriptions and status.conditions: whatever that
// accepts, stores and prints, this one does.
func TestCRDIsUpstreamsWithConditions(t *testing.T) {
	ours := readCRD(t, filepath.Join("..", "..", "..", "manifests", "crds", "scheduling.x-k8s.io_podgroups.yaml"))
	upstream := readCRD(t, filepath.Join(moduleDir(t, "sigs.k8s.io/scheduler-plugins"), "manifests", "coscheduling", "crd.yaml"))

	status := ours.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
	conditions, ok := status.Properties["conditions"]
	if !ok {
		t.Fatal("the schema has no status.conditions")
	}
	delete(status.Properties, "conditions")
	if conditions.XListType == nil || *conditions.XListType != "map" || !cmp.Equal(conditions.XListMapKeys, []string{"type"}) {
		t.Error("status.conditions is no map by type: the scheduler and the controller could not own one condition each")
	}

	if ours.Name != upstream.Name {
		t.Errorf("the definition is called %s, want %s", ours.Name, upstream.Name)
	}
	const approval = "api-approved.kubernetes.io"
	if got, want := ours.Annotations[approval], upstream.Annotations[approval]; got != want {
		t.Errorf("annotation %s is %q, want %q: the API server guards the group's name with it", approval, got, want)
	}
	stripDescriptions(ours)
	stripDescriptions(upstream)
	if diff := cmp.Diff(upstream.Spec, ours.Spec); diff != "" {
		t.Errorf("the definition differs from upstream's (-upstream +ours):\n%s", diff)
	}
}

func readCRD(t *testing.T, path string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if len(crd.Spec.Versions) != 1 {
		t.Fatalf("%s has %d versions, want 1", path, len(crd.Spec.Versions))
	}
	return crd
}

// moduleDir returns the folder of a module that this one requires.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatalf("looking for module %s: %v", module, err)
	}
	return strings.TrimSpace(string(output))
}

func stripDescriptions(crd *apiextensionsv1.CustomResourceDefinition) {
	version := &crd.Spec.Versions[0]
	for i := range version.AdditionalPrinterColumns {
		version.AdditionalPrinterColumns[i].Description = ""
	}
	stripSchema(version.Schema.OpenAPIV3Schema)
}

func stripSchema(schema *apiextensionsv1.JSONSchemaProps) {
	schema.Description = ""
	for name, property := range schema.Properties {
		stripSchema(&property)
		schema.Properties[name] = property
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		stripSchema(schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		stripSchema(schema.AdditionalProperties.Schema)
	}
}

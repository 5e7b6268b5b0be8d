// Package jobset carries the manifests of JobSet that its controller cannot run without. They are
// generated from the module that go.mod requires; see README.md.
package jobset

import (
	_ "embed"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:generate go run ./render .

//go:embed crd.yaml
var crd []byte

//go:embed mutating-webhook.yaml
var mutating []byte

//go:embed validating-webhook.yaml
var validating []byte

// CRD returns the JobSet custom resource definition.
func CRD() (*apiextensionsv1.CustomResourceDefinition, error) {
	return decode[apiextensionsv1.CustomResourceDefinition]("crd.yaml", crd)
}

// MutatingWebhooks returns the webhooks that default JobSets and their pods. They point at a Service;
// the caller points them at the server it runs.
func MutatingWebhooks() (*admissionv1.MutatingWebhookConfiguration, error) {
	return decode[admissionv1.MutatingWebhookConfiguration]("mutating-webhook.yaml", mutating)
}

// ValidatingWebhooks returns the webhooks that validate JobSets and their pods. They point at a
// Service; the caller points them at the server it runs.
func ValidatingWebhooks() (*admissionv1.ValidatingWebhookConfiguration, error) {
	return decode[admissionv1.ValidatingWebhookConfiguration]("validating-webhook.yaml", validating)
}

func decode[T any](name string, data []byte) (*T, error) {
	object := new(T)
	if err := yaml.UnmarshalStrict(data, object); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return object, nil
}

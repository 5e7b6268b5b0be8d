// Package manifests carries Muster's deployment inside the binaries that need it: the local
// control plane, the tests and the tools install from here what a cluster gets from kustomize.
package manifests

import (
	"bufio"
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"
)

// FS holds the tree as it is in the repository: crds, base, components, overlays and, where there are any,
// runtimes.
//
//go:embed */*.yaml components/*/*.yaml overlays/*/*.yaml
var FS embed.FS

// schedulerConfig is the file that base puts into the scheduler's ConfigMap.
const schedulerConfig = "base/scheduler-config.yaml"

// CRDs returns the custom resource definitions that Muster's controllers and plugins need, in the
// order of their file names. JobSet's, which the trainer needs too, come with JobSet.
func CRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	objects, err := readDir("crds")
	if err != nil {
		return nil, err
	}
	crds := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(objects))
	for _, object := range objects {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, crd, true); err != nil {
			return nil, fmt.Errorf("CustomResourceDefinition %q: %w", object.GetName(), err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

// Runtimes returns the training runtimes that Muster ships, in the order of their file names.
func Runtimes() ([]*unstructured.Unstructured, error) {
	return readDir("runtimes")
}

// SchedulerConfig returns, as YAML, the KubeSchedulerConfiguration that base deploys, after mutate
// has adapted it (a nil mutate changes nothing). What runs outside a cluster sets here what it
// must: the kubeconfig, the profile's name, leader election.
func SchedulerConfig(mutate func(*configv1.KubeSchedulerConfiguration)) ([]byte, error) {
	data, err := FS.ReadFile(schedulerConfig)
	if err != nil {
		return nil, err
	}
	config := &configv1.KubeSchedulerConfiguration{}
	if err := yaml.UnmarshalStrict(data, config); err != nil {
		return nil, fmt.Errorf("%s: %w", schedulerConfig, err)
	}
	if mutate != nil {
		mutate(config)
	}
	return yaml.Marshal(config)
}

// readDir decodes every object of one folder of FS, kustomizations aside. A folder that is not
// there has no objects.
func readDir(dir string) ([]*unstructured.Unstructured, error) {
	entries, err := FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, entry := range entries {
		if entry.IsDir() || entry.Name() == "kustomization.yaml" {
			continue
		}
		name := path.Join(dir, entry.Name())
		data, err := FS.ReadFile(name)
		if err != nil {
			return nil, err
		}
		decoded, err := decode(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		objects = append(objects, decoded...)
	}
	return objects, nil
}

// decode splits a YAML stream into its objects; documents without content are passed over.
func decode(data []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(content, []byte("null")) {
			continue
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(content); err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
}

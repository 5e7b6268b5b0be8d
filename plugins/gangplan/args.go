package gangplan

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// DecodeArgs reads a plugin's arguments as the scheduler passes them, none at all included, into a
// struct. An unknown field is an error that names it.
func DecodeArgs(plugin string, obj runtime.Object, into any) error {
	switch raw := obj.(type) {
	case nil:
	case *runtime.Unknown:
		if err := yaml.UnmarshalStrict(raw.Raw, into); err != nil {
			return fmt.Errorf("decoding the arguments of plugin %s: %w", plugin, err)
		}
	default:
		return fmt.Errorf("arguments of plugin %s: want raw arguments, got %T", plugin, obj)
	}
	return nil
}

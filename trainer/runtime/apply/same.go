package apply

import (
	"bytes"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// Same tells whether an apply of wanted would leave a live object as it is: the object has all that is
// wanted, and the trainer owns nothing in its metadata and spec, or its data, that is wanted no more. What
// the API server and webhooks filled in, and what others own, is no difference. When in doubt, such as
// without managed fields, the answer is no: an apply that changes nothing is harmless.
func Same(live client.Object, wanted *unstructured.Unstructured) (bool, error) {
	owned, err := ownedFields(live.GetManagedFields())
	if err != nil || owned == nil {
		return false, err
	}
	current, err := Configuration(live)
	if err != nil {
		return false, err
	}
	same := true
	for _, section := range sections {
		if part, ok := wanted.Object[section]; ok {
			same = same && contains(current.Object[section], part)
		}
		owned.WithPrefix(fieldpath.PathElement{FieldName: &section}).Leaves().Iterate(func(path fieldpath.Path) {
			same = same && kept(current.Object[section], wanted.Object[section], path)
		})
	}
	return same, nil
}

// sections are the parts of the objects that the trainer applies.
var sections = []string{"metadata", "spec", "data", "immutable", "type"}

// ownedFields returns the fields that the trainer's last apply owns, nil if it never applied.
func ownedFields(entries []metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	for _, entry := range entries {
		if entry.Manager != FieldOwner || entry.Operation != metav1.ManagedFieldsOperationApply || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
			return nil, fmt.Errorf("reading managed fields: %w", err)
		}
		return set, nil
	}
	return nil, nil
}

// contains tells whether current has all of wanted. Lists must have equal length: an element that others
// added makes an apply necessary, which then changes nothing.
func contains(current, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		current, ok := current.(map[string]any)
		if !ok {
			return len(wanted) == 0 && current == nil
		}
		for key := range wanted {
			if !contains(current[key], wanted[key]) {
				return false
			}
		}
		return true
	case []any:
		current, _ := current.([]any)
		if len(current) != len(wanted) {
			return false
		}
		for i := range wanted {
			if !contains(current[i], wanted[i]) {
				return false
			}
		}
		return true
	default:
		return equality.Semantic.DeepEqual(current, wanted)
	}
}

// kept tells whether the field at a path that the trainer owns is wanted still. Lists and maps at the end of
// a path are owned whole, and must be equal.
func kept(current, wanted any, path fieldpath.Path) bool {
	for _, element := range path {
		var ok bool
		if wanted, ok = step(wanted, element); !ok {
			return false
		}
		if current, ok = step(current, element); !ok {
			return false
		}
	}
	switch current.(type) {
	case map[string]any, []any:
		return equality.Semantic.DeepEqual(current, wanted)
	default:
		return true
	}
}

// step goes from an object to its field, or from a list to its element.
func step(object any, element fieldpath.PathElement) (any, bool) {
	switch {
	case element.FieldName != nil:
		fields, _ := object.(map[string]any)
		next, ok := fields[*element.FieldName]
		return next, ok
	case element.Key != nil:
		return byKey(object, *element.Key)
	case element.Value != nil:
		list, _ := object.([]any)
		wanted := (*element.Value).Unstructured()
		return wanted, slices.ContainsFunc(list, func(v any) bool { return equality.Semantic.DeepEqual(v, wanted) })
	default:
		return nil, false
	}
}

// byKey returns the element of a list that has the key's values. A key field that the element lacks, such as
// a port's protocol, was defaulted by the schema and does not tell elements apart.
func byKey(list any, key value.FieldList) (any, bool) {
	elements, _ := list.([]any)
	for _, element := range elements {
		fields, _ := element.(map[string]any)
		matches := true
		for _, k := range key {
			if v, ok := fields[k.Name]; ok && !value.Equals(value.NewValueInterface(v), k.Value) {
				matches = false
			}
		}
		if matches {
			return element, true
		}
	}
	return nil, false
}

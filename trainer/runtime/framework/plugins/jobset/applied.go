package jobset

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// applied tells whether an apply of wanted would leave a live JobSet as it is: the JobSet has all that is
// wanted, and the trainer owns nothing in it that is wanted no more. What the API server and JobSet's
// webhook filled in, and what others own, is no difference. A live object without managed fields is taken
// to differ.
func applied(live *jobsetv1alpha2.JobSet, wanted *unstructured.Unstructured) (bool, error) {
	owned, err := ownedFields(live.ManagedFields)
	if err != nil || owned == nil {
		return false, err
	}
	current, err := toApply(live)
	if err != nil {
		return false, err
	}
	for _, section := range []string{"spec", "metadata"} {
		if !contains(current.Object[section], wanted.Object[section]) {
			return false, nil
		}
	}
	stale := false
	owned.Leaves().Iterate(func(path fieldpath.Path) {
		stale = stale || !present(wanted.Object, path)
	})
	return !stale, nil
}

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

// present tells whether an object has a field at a path.
func present(object any, path fieldpath.Path) bool {
	for _, element := range path {
		switch {
		case element.FieldName != nil:
			fields, _ := object.(map[string]any)
			next, ok := fields[*element.FieldName]
			if !ok {
				return false
			}
			object = next
		case element.Key != nil:
			next, ok := byKey(object, *element.Key)
			if !ok {
				return false
			}
			object = next
		default:
			// Set values and atomic lists: contains has compared them whole.
			return true
		}
	}
	return true
}

// byKey returns the element of a list map that has the key's values. A key field that the element lacks,
// such as a port's protocol, was defaulted by the schema and does not tell elements apart.
func byKey(list any, key value.FieldList) (any, bool) {
	elements, _ := list.([]any)
	for _, element := range elements {
		fields, _ := element.(map[string]any)
		matches := true
		for _, k := range key {
			if v, ok := fields[k.Name]; ok && !equality.Semantic.DeepEqual(v, k.Value.Unstructured()) {
				matches = false
			}
		}
		if matches {
			return element, true
		}
	}
	return nil, false
}
